"""From checked arguments to the result: which way, and its steps."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from tl_topk._ffi.plan import TopKPlan
from tl_topk.api import topk_indices
from tl_topk.dispatch import Choice
from tl_topk.indexer.arguments import Arguments
from tl_topk.indexer.decisions import decided
from tl_topk.indexer.host_scores import NOT_SEEN, compute_scores, visible_range
from tl_topk.indexer.results import convert_positions

__all__ = ["run"]

#: Scores of keys in a row are kept for so many rows at once as fit in here, unless they are asked
#: for: prefill has more of them than memory, and these are still in the cache when selected from.
_MOST_SCORES = 1 << 24


def run(a: Arguments, return_scores: bool, choice: Choice) -> Tensor | tuple[Tensor, Tensor]:
    way = decided(a, choice).backend
    indices = a.out
    if indices is None:
        indices = torch.empty((a.rows, a.k), dtype=torch.int32, device=a.device)
    if return_scores:
        return indices, _fill(a, way, indices, keep=True)
    step = a.rows
    if a.block_table is None and a.width > 0:
        step = max(_MOST_SCORES // a.width, 1)
    if step >= a.rows:
        _fill(a, way, indices, keep=False)
    else:
        for first in range(0, a.rows, step):
            part = slice(first, first + step)
            _fill(a.some_rows(part), way, indices[part], keep=False)
    return indices


def _fill(a: Arguments, way: str, indices: Tensor, keep: bool) -> Tensor:
    """Fills ``indices``; returns the scores, with -inf at what rows do not see if they are kept."""
    if way == "cpu":
        starts, lengths = visible_range(a)
        scores = compute_scores(a, starts, lengths)
    elif a.keys.shape[0] == 0 or a.rows == 0 or a.width == 0:
        starts, lengths = visible_range(a)
        scores = torch.full((a.rows, a.width), NOT_SEEN, device=a.device)
    else:
        from tl_topk.indexer import device_scores

        # Only what a row sees is written: the rest matters to those alone who look at it.
        fill = torch.full if keep else _uninitialised
        scores = fill((a.rows, a.width), NOT_SEEN, device=a.device)
        if way == "pipelined" and a.k > 0:
            device_scores.select_pages(a, scores, indices)
            return scores
        starts, lengths = device_scores.compute_scores(a, scores)
        if a.k > 0:
            plan = _overlapping_plan(*scores.shape, a.k, a.order, a.device.index)
            plan.run(scores, indices, lengths=lengths, row_starts=starts)
            convert_positions(a, indices)
            return scores
    selector = "cpu" if way == "cpu" else "dsmem"
    topk_indices(
        scores,
        a.k,
        lengths=lengths,
        row_starts=starts,
        order=a.order,
        backend=selector,
        out=indices,
    )
    convert_positions(a, indices)
    return scores


@lru_cache(maxsize=512)
def _overlapping_plan(rows: int, width: int, k: int, order: str, device: int) -> TopKPlan:
    """Selects from scores that the kernel ahead on the stream writes, and is launched during it."""
    plan = TopKPlan(rows, width, k, "float32", order, True, False, "cuda", device)
    plan.overlap()
    return plan


def _uninitialised(shape: tuple[int, int], _: float, device: torch.device) -> Tensor:
    return torch.empty(shape, device=device)
