"""The selector of TileLang's DeepSeek V3.2 example, ``topk_selector.py``.

Like the example's, indices count from the row's first element, not from its start, and slots that
no element is left for hold 0. Unlike it, it selects exactly the best elements of any row of any
length, of equal ones those of lowest index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor

from tl_topk.integrations._patch import patched_functions
from tl_topk.mapped import Mapping, Outputs, select_mapped
from tl_topk.select import Options

__all__ = ["install", "tl_topk", "tl_topk_impl"]


def tl_topk(input: Tensor, starts: Tensor, ends: Tensor, topk: int) -> Tensor:
    """The best ``topk`` of ``input[r, starts[r] : ends[r]]`` for every row ``r``.

    Args:
        input: ``(batch, seq_len)``.
        starts, ends: int32 ``(batch,)``.
        topk: how many.

    Returns:
        int32 ``(batch, topk)``.
    """
    indexes = input.new_empty((input.shape[0], topk), dtype=torch.int32)
    _select(topk, input, indexes, starts, ends)
    return indexes


def tl_topk_impl(
    topk: int, in_dtype: str = "float32", out_dtype: str = "int32"
) -> Callable[[Tensor, Tensor, Tensor, Tensor], None]:
    """The example's kernel: ``kernel(input, index, starts, ends)`` fills ``index``.

    Args:
        topk: how many.
        in_dtype: not looked at: that of ``input`` counts.
        out_dtype: ``"int32"``.
    """
    if out_dtype != "int32":
        raise ValueError(f"out_dtype: expected 'int32', got {out_dtype!r}")
    return partial(_select, topk)


def _select(topk: int, input: Tensor, index: Tensor, starts: Tensor, ends: Tensor) -> None:
    options = Options(topk, True, "any", "auto", False)
    mapping = Mapping(row_starts=starts, row_ends=ends, offsets=starts)
    select_mapped(options, input, mapping, Outputs(ragged=index), "ragged")
    index.clamp_(min=0)  # the example's zeros


@contextmanager
def install(module: str = "topk_selector") -> Iterator[None]:
    """While it is open, the example, imported as ``module``, and whoever imported from it use the
    functions above.

    Raises:
        ImportError: there is no such module.
        ValueError: its functions take other arguments; the message names the function.
    """
    with patched_functions(module, (tl_topk, tl_topk_impl), module):
        yield
