"""The scores on the CPU, by a definition that no library's order of summation can touch.

A dot product is formed in float64 (exact for float8, whose products span 43 bits) and rounded to
float32 once; ReLU, weights and the sum over heads follow in float32, head by head; the key's scale
comes last. So a score is the same alone, in any batch and on any page.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tl_topk.indexer.arguments import FP8, Arguments
from tl_topk.indexer.sizes import DIM, PAGE

__all__ = ["NOT_SEEN", "compute_scores", "visible_range"]

#: The score of a key that the row does not see, or whose page is not there.
NOT_SEEN = -torch.inf

_CHUNK = 256 * PAGE  # keys in float64 at a time: 16 MiB of them


def visible_range(a: Arguments) -> tuple[Tensor | None, Tensor | None]:
    """(starts, lengths) of the rows, int32 ``(rows,)`` each; None for 0 and for the whole width."""
    if a.context_lens is not None:
        lens = a.context_lens
        if lens.dim() == 1:
            steps = torch.arange(1 - a.next_n, 1, dtype=torch.int32, device=a.device)
            lens = lens.unsqueeze(1) + steps
        lens = lens.div(a.compress_ratio, rounding_mode="floor")
        return None, lens.reshape(-1).clamp(0, a.width)
    starts = None if a.row_starts is None else a.row_starts.clamp(0, a.width)
    if a.row_ends is None:
        return starts, None
    ends = a.row_ends.clamp(0, a.width)
    return starts, ends if starts is None else (ends - starts).clamp(min=0)


def compute_scores(a: Arguments, starts: Tensor | None, lengths: Tensor | None) -> Tensor:
    """``(rows, width)`` float32, :data:`NOT_SEEN` outside of the rows' ranges."""
    scores = torch.full((a.rows, a.width), NOT_SEEN)
    for row in range(a.rows):
        begin = 0 if starts is None else int(starts[row])
        end = a.width if lengths is None else begin + int(lengths[row])
        query = a.q[row].double()
        for first in range(begin, end, _CHUNK):
            last = min(first + _CHUNK, end)
            if a.block_table is None:
                keys = a.keys[first:last]
                scales = None if a.key_scales is None else a.key_scales[first:last]
                scores[row, first:last] = _score(query, a.weights[row], keys, scales)
            else:
                pages = a.block_table[row // a.next_n, first // PAGE : (last - 1) // PAGE + 1]
                found = _score_pages(a, query, row, pages)
                scores[row, first:last] = found[: last - first]
    return scores


def _score_pages(a: Arguments, query: Tensor, row: int, pages: Tensor) -> Tensor:
    there = (pages >= 0) & (pages < a.pages)
    scores = torch.full((len(pages), PAGE), NOT_SEEN)
    content = a.keys[pages[there]].flatten(1)
    keys, scales = content, None
    if a.has_scales:
        keys = content[:, : PAGE * DIM].contiguous().view(FP8)
        scales = content[:, PAGE * DIM :].contiguous().view(torch.float32).flatten()
    scores[there] = _score(query, a.weights[row], keys.reshape(-1, DIM), scales).view(-1, PAGE)
    return scores.flatten()


def _score(query: Tensor, weights: Tensor, keys: Tensor, scales: Tensor | None) -> Tensor:
    """``(keys,)`` of one query ``(heads, dim)``. A product that is NaN counts as 0, as the GPU's
    maximum has it.
    """
    products = (query @ keys.double().T).float()
    products = torch.where(products > 0, products, 0.0)
    total = torch.zeros(keys.shape[0])
    for of_head, weight in zip(products, weights, strict=True):
        total += of_head * weight
    return total if scales is None else total * scales
