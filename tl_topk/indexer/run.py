"""From checked arguments to the result: which way, and its steps."""

from __future__ import annotations

import torch
from torch import Tensor

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
    nothing_to_read = a.keys.shape[0] == 0 or a.rows == 0 or a.width == 0
    if way == "cpu" or nothing_to_read:
        return _fill_plainly(a, "cpu" if way == "cpu" else "dsmem", indices, nothing_to_read)
    from tl_topk.indexer import device_scores, device_selection

    # Only what a row sees is written: the rest matters to those alone who look at it.
    fill = torch.full if keep else _uninitialised
    scores = fill((a.rows, a.width), NOT_SEEN, device=a.device)
    if a.k == 0:
        device_scores.compute_scores(a, scores)
    elif way == "pipelined":
        device_scores.select_pages(a, scores, indices)
    else:
        device_selection.score_and_select(a, scores, indices)
    return scores


def _fill_plainly(a: Arguments, selector: str, indices: Tensor, nothing_to_read: bool) -> Tensor:
    starts, lengths = visible_range(a)
    if nothing_to_read:
        scores = torch.full((a.rows, a.width), NOT_SEEN, device=a.device)
    else:
        scores = compute_scores(a, starts, lengths)
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


def _uninitialised(shape: tuple[int, int], _: float, device: torch.device) -> Tensor:
    return torch.empty(shape, device=device)
