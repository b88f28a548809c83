"""FlashInfer's top-k functions.

Like FlashInfer's, every function lists a row no longer than k in order and pads with -1.
``deterministic`` asks for a repeatable order: then slots are by ascending index, or by value where
``sorted`` asks for that. Unlike FlashInfer's, the elements are the same on every call without it
too: of equal ones those of lowest index, ``tie_break`` SMALL; LARGE is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import tl_topk
from tl_topk.integrations._patch import engine_module, patched_functions

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["install", "top_k", "top_k_page_table_transform", "top_k_ragged_transform"]

_NONE, _SMALL = 0, 1  # values of FlashInfer's TopKTieBreak


def top_k(
    input: Tensor,
    k: int,
    sorted: bool = False,
    deterministic: bool = False,
    tie_break: int = _NONE,
    dsa_graph_safe: bool = False,
) -> tuple[Tensor, Tensor]:
    """The ``k`` largest of each row.

    Args:
        input: ``(rows, length)``; float32, float16 or bfloat16.
        k: how many, at most the length.
        sorted: best first; equal ones by ascending index, NaN last.
        deterministic: a repeatable order of slots.
        tie_break: NONE (0) or SMALL (1).
        dsa_graph_safe: always so.

    Returns:
        Values in the input's dtype and int64 indices, ``(rows, k)`` each.
    """
    _check_tie_break(tie_break)
    if k > input.shape[-1]:
        raise ValueError(f"k: expected at most the length, {input.shape[-1]}, got {k}")
    order = "value" if sorted else _order(deterministic)
    values, indices = tl_topk.topk(input, k, order=order)
    return values, indices.long()


def top_k_page_table_transform(
    input: Tensor,
    src_page_table: Tensor,
    lengths: Tensor,
    k: int,
    row_to_batch: Tensor | None = None,
    deterministic: bool = False,
    tie_break: int = _NONE,
    dsa_graph_safe: bool = False,
    row_starts: Tensor | None = None,
    page_table_row_starts: Tensor | None = None,
    *,
    page_size: int = 1,
    out: Tensor | None = None,
    out_raw_indices: Tensor | None = None,
) -> Tensor:
    """The ``k`` largest of each row as slots of a paged cache.

    An index ``i`` of row ``r``, counted from the row's start, becomes
    ``src_page_table[b, page_table_row_starts[r] + i // page_size] * page_size + i % page_size``.

    Args:
        input: ``(rows, max_len)``.
        src_page_table: int32 ``(batch, pages)``.
        lengths: int32 ``(rows,)``.
        k: how many.
        row_to_batch: optional int32 ``(rows,)``: the ``b`` of each row, by default its number.
        deterministic, tie_break, dsa_graph_safe: as for :func:`top_k`.
        row_starts: optional int32 ``(rows,)``: where rows start in ``input``.
        page_table_row_starts: optional int32 ``(rows,)``, in pages; by default ``row_starts``,
            which needs a page size of 1.
        page_size: a power of two.
        out: optional int32 ``(rows, k)`` to fill.
        out_raw_indices: optional, the same for the indices.

    Returns:
        int32 ``(rows, k)``: ``out`` if given. -1 as well for indices beyond the page table.
    """
    _check_tie_break(tie_break)
    if page_table_row_starts is None and row_starts is not None:
        if page_size != 1:
            raise ValueError(
                "page_table_row_starts: expected a tensor, as row_starts is given and page_size is"
                f" {page_size}, got None"
            )
        page_table_row_starts = row_starts
    return tl_topk.topk_paged(
        input,
        k,
        src_page_table,
        page_size=page_size,
        lengths=lengths,
        row_starts=row_starts,
        page_starts=page_table_row_starts,
        row_to_request=row_to_batch,
        order=_order(deterministic),
        out=out,
        out_indices=out_raw_indices,
    )


def top_k_ragged_transform(
    input: Tensor,
    offsets: Tensor,
    lengths: Tensor,
    k: int,
    deterministic: bool = False,
    tie_break: int = _NONE,
    dsa_graph_safe: bool = False,
    row_starts: Tensor | None = None,
) -> Tensor:
    """The ``k`` largest of each row, with the row's offset added to their indices.

    Args:
        offsets: int32 ``(rows,)``.
        input, lengths, k, deterministic, tie_break, dsa_graph_safe, row_starts: as for
            :func:`top_k_page_table_transform`.

    Returns:
        int32 ``(rows, k)``.
    """
    _check_tie_break(tie_break)
    return tl_topk.topk_ragged(
        input, k, offsets, lengths=lengths, row_starts=row_starts, order=_order(deterministic)
    )


def _order(deterministic: bool) -> str:
    return "index" if deterministic else "any"


def _check_tie_break(tie_break: int) -> None:
    if tie_break not in (_NONE, _SMALL):
        raise ValueError(f"tie_break: expected NONE (0) or SMALL (1), got {tie_break!r}")


_FUNCTIONS = (top_k, top_k_page_table_transform, top_k_ragged_transform)


@contextmanager
def install() -> Iterator[None]:
    """While it is open, FlashInfer and whoever imported from it use the functions above.

    Raises:
        ImportError: FlashInfer is not importable.
        ValueError: this version's functions take other arguments; the message names the function.
    """
    engine_module("flashinfer")
    with patched_functions("flashinfer", _FUNCTIONS, "flashinfer.topk"):
        yield
