"""SGLang's selectors, as ``sgl_kernel`` and its JIT kernels for DeepSeek V4 offer them.

Like SGLang's, every function lists a row no longer than ``topk`` in order, pads with -1, and leaves
the order of slots open otherwise. Unlike them, each selects exactly the best elements on any input,
of equal ones those of lowest index, takes any ``topk`` and float16 and bfloat16 scores too, and an
empty row for a length below 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import tl_topk
from tl_topk.integrations._patch import engine_module, patched_functions

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "fast_topk_transform_fused",
    "fast_topk_transform_ragged_fused",
    "fast_topk_v2",
    "install",
    "plan_topk_v2",
    "topk_transform_512_v2",
]


def fast_topk_v2(
    score: Tensor, lengths: Tensor, topk: int, row_starts: Tensor | None = None
) -> Tensor:
    """The best ``topk`` of each row, relative to the row's start.

    Args:
        score: ``(B, L)``.
        lengths: int32 ``(B,)``.
        topk: how many.
        row_starts: optional int32 ``(B,)``: row ``i`` is ``score[i, row_starts[i]:][:lengths[i]]``.

    Returns:
        int32 ``(B, topk)``.
    """
    return tl_topk.topk_indices(score, topk, lengths=lengths, row_starts=row_starts)


def fast_topk_transform_fused(
    score: Tensor,
    lengths: Tensor,
    page_table_size_1: Tensor,
    cu_seqlens_q: Tensor,
    topk: int,
    row_starts: Tensor | None = None,
) -> Tensor:
    """The same, each index mapped through the page table of its row's request, page size 1.

    Args:
        page_table_size_1: int32 ``(requests, M)``.
        cu_seqlens_q: int32 ``(requests + 1,)``: the rows of each request. Not looked at where there
            is one row a request and no row starts, which is decoding.

    Returns:
        int32 ``(B, topk)``; -1 as well for indices beyond the page table's columns.
    """
    requests = cu_seqlens_q.shape[0] - 1
    decoding = row_starts is None and requests == score.shape[0]
    return tl_topk.topk_paged(
        score,
        topk,
        page_table_size_1,
        lengths=lengths,
        row_starts=row_starts,
        query_starts=None if decoding else cu_seqlens_q,
    )


def fast_topk_transform_ragged_fused(
    score: Tensor,
    lengths: Tensor,
    topk_indices_offset: Tensor,
    topk: int,
    row_starts: Tensor | None = None,
) -> Tensor:
    """The same, with each row's offset added to its indices.

    Args:
        topk_indices_offset: int32 ``(B,)``.

    Returns:
        int32 ``(B, topk)``.
    """
    return tl_topk.topk_ragged(
        score, topk, topk_indices_offset, lengths=lengths, row_starts=row_starts
    )


def plan_topk_v2(seq_lens: Tensor, static_threshold: int = 0) -> Tensor:
    """Metadata for :func:`topk_transform_512_v2`, which needs none: nothing is computed.

    Returns:
        int32 ``(B + 1, 2)``, of the shape that SGLang's callers expect, not initialised.
    """
    return seq_lens.new_empty(seq_lens.shape[0] + 1, 2)


def topk_transform_512_v2(
    scores: Tensor,
    seq_lens: Tensor,
    page_tables: Tensor | None,
    out_page_indices: Tensor,
    page_size: int,
    metadata: Tensor | None,
    out_raw_indices: Tensor | None = None,
) -> None:
    """DeepSeek V4's: fills ``out_page_indices`` with slots, as many of each row as it has columns.

    Args:
        scores: ``(B, L)``.
        seq_lens: int32 ``(B,)``; a negative one is an empty row.
        page_tables: int32 ``(B, pages)``; None for plain indices.
        out_page_indices: int32 ``(B, k)``.
        page_size: a power of two.
        metadata: not looked at.
        out_raw_indices: optional int32 ``(B, k)`` for the indices before the mapping.
    """
    k = out_page_indices.shape[1]
    if page_tables is None:
        tl_topk.topk_indices(scores, k, lengths=seq_lens, out=out_page_indices)
        if out_raw_indices is not None:
            out_raw_indices.copy_(out_page_indices)
        return
    tl_topk.topk_paged(
        scores,
        k,
        page_tables,
        page_size=page_size,
        lengths=seq_lens,
        out=out_page_indices,
        out_indices=out_raw_indices,
    )


_SGL_KERNEL = (fast_topk_v2, fast_topk_transform_fused, fast_topk_transform_ragged_fused)
_JIT = (plan_topk_v2, topk_transform_512_v2)


@contextmanager
def install(jit_module: str | None = None) -> Iterator[None]:
    """While it is open, ``sgl_kernel`` and whoever imported from it use the functions above.

    Args:
        jit_module: the module of SGLang that holds ``topk_transform_512_v2``, patched as well;
            which one it is has changed between versions.

    Raises:
        ImportError: the engine, or the module named, is not importable.
        ValueError: this version's functions take other arguments; the message names the function.
    """
    engine_module("sgl_kernel")
    with ExitStack() as stack:
        stack.enter_context(patched_functions("sgl_kernel", _SGL_KERNEL, "sgl_kernel"))
        if jit_module is not None:
            stack.enter_context(patched_functions(jit_module, _JIT, jit_module))
        yield
