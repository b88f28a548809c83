"""vLLM's selectors, as its operators ``torch.ops._C`` offer them.

Like vLLM's, every function fills ``indices`` with positions relative to the row's start, lists a
row no longer than k in order, pads with -1, and leaves the order of slots open otherwise. Unlike
them, each selects exactly the best elements on any input, of equal ones those of lowest index,
takes any k and float16 and bfloat16 scores too, and leaves the workspace alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import tl_topk
from tl_topk.integrations._patch import engine_module, patched_operators
from tl_topk.mapped import Mapping, Outputs, select_mapped
from tl_topk.select import Options

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "cooperative_topk",
    "install",
    "persistent_topk",
    "top_k_per_row_decode",
    "top_k_per_row_prefill",
]


def top_k_per_row_decode(
    logits: Tensor,
    next_n: int,
    seq_lens: Tensor,
    indices: Tensor,
    num_rows: int,
    stride0: int,
    stride1: int,
    top_k: int,
) -> None:
    """Fills ``indices`` for decoding: row ``r`` sees the first elements of its row alone.

    Args:
        logits: ``(num_rows, L)`` or with further rows, which are left out.
        next_n: rows of a request; row ``i`` of a request of length ``n`` sees
            ``n - next_n + i + 1`` elements.
        seq_lens: int32 ``(num_rows / next_n,)``, or ``(num_rows / next_n, next_n)`` with what each
            row sees.
        indices: int32 ``(num_rows, top_k)`` or larger; only that part is written.
        num_rows, stride0, stride1: of ``logits``; ``stride1`` must be 1.
        top_k: how many.
    """
    rows = _rows(logits, num_rows, stride0, stride1)
    outputs = Outputs(indices=indices[:num_rows, :top_k])
    _fill(rows, top_k, Mapping(lengths=seq_lens, next_n=next_n), outputs)


def top_k_per_row_prefill(
    logits: Tensor,
    row_starts: Tensor,
    row_ends: Tensor,
    indices: Tensor,
    num_rows: int,
    stride0: int,
    stride1: int,
    top_k: int,
) -> None:
    """Fills ``indices`` for prefill: row ``r`` is ``logits[r, row_starts[r] : row_ends[r]]``.

    Args:
        row_starts, row_ends: int32 ``(num_rows,)``.
        logits, indices, num_rows, stride0, stride1, top_k: as for :func:`top_k_per_row_decode`.
    """
    rows = _rows(logits, num_rows, stride0, stride1)
    outputs = Outputs(indices=indices[:num_rows, :top_k])
    _fill(rows, top_k, Mapping(row_starts=row_starts, row_ends=row_ends), outputs)


def persistent_topk(
    logits: Tensor, lengths: Tensor, output: Tensor, workspace: Tensor, k: int, max_seq_len: int
) -> None:
    """Fills ``output`` for decoding, from the lengths of the rows.

    Args:
        logits: ``(rows, L)``.
        lengths: int32, ``rows`` of them in any shape.
        output: int32 ``(rows, k)``.
        workspace: neither read nor written.
        k: how many.
        max_seq_len: not looked at: lengths are clamped to the row.
    """
    tl_topk.topk_indices(logits, k, lengths=lengths.reshape(-1), out=output)


def cooperative_topk(
    logits: Tensor, lengths: Tensor, output: Tensor, workspace: Tensor, k: int, max_seq_len: int
) -> None:
    """The same as :func:`persistent_topk`."""
    persistent_topk(logits, lengths, output, workspace, k, max_seq_len)


def _rows(logits: Tensor, num_rows: int, stride0: int, stride1: int) -> Tensor:
    if not 0 <= num_rows <= logits.shape[0]:
        raise ValueError(f"num_rows: expected 0 to {logits.shape[0]}, got {num_rows}")
    if stride0 != logits.stride(0) and num_rows > 1:
        raise ValueError(f"stride0: expected that of logits, {logits.stride(0)}, got {stride0}")
    if stride1 != 1:
        raise ValueError(f"stride1: expected 1, got {stride1}")
    return logits[:num_rows]


def _fill(logits: Tensor, k: int, mapping: Mapping, outputs: Outputs) -> None:
    select_mapped(Options(k, True, "any", "auto", False), logits, mapping, outputs, "indices")


_OPERATORS = (
    top_k_per_row_decode,
    top_k_per_row_prefill,
    persistent_topk,
    cooperative_topk,
)


@contextmanager
def install() -> Iterator[None]:
    """While it is open, ``torch.ops._C`` has the functions above in the place of vLLM's own, of
    which there may be some or all.

    Raises:
        ImportError: vLLM is not importable.
        ValueError: this version's operators take other arguments; the message names the operator.
    """
    engine_module("vllm._custom_ops")  # registers them
    with patched_operators("_C", _OPERATORS):
        yield
