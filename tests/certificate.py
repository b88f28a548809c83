"""A proof that a result is right, without sorting: for batches too large for the oracle.

Let w be the worst element selected. If the selected are distinct, and exactly as many elements
as were selected rank at or before w, then they are those elements. It runs where the data lies.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

NOT_A_NUMBER = 1 - 2**31  # below -inf, and a place in the row still fits under it


def rank_keys(scores: Tensor, largest: bool) -> Tensor:
    """int64 keys (length,) of one row: all distinct, and larger for what ranks first."""
    numbers = scores.float() + 0.0  # -0 becomes +0
    patterns = (numbers if largest else -numbers + 0.0).view(torch.int32).long()
    keys = torch.where(patterns >= 0, patterns, -(patterns & 0x7FFFFFFF))
    keys = torch.where(numbers.isnan(), NOT_A_NUMBER, keys)
    return (keys << 32) - torch.arange(len(scores), device=scores.device)


def assert_certified(
    scores: Tensor,
    indices: Tensor,
    values: Tensor | None = None,
    *,
    lengths: Tensor | None = None,
    row_starts: Tensor | None = None,
    largest: bool = True,
    order: Literal["any", "index", "value"] = "any",
) -> None:
    """Fails unless each row of indices (rows, k) is the answer for that row of scores."""
    rows, width = scores.shape
    k = indices.shape[1]
    begins = [0] * rows if row_starts is None else row_starts.clamp(0, width).tolist()
    ends = [width] * rows
    if lengths is not None:
        ends = [
            max(begin, min(width, begin + length))
            for begin, length in zip(begins, lengths.tolist(), strict=True)
        ]
    facts = []  # stay on the device: one transfer for all rows
    for row, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        count = min(k, end - begin)
        real, padding = indices[row, :count].long(), indices[row, count:]
        keys = rank_keys(scores[row, begin:end], largest)
        in_range = (real >= 0) & (real < end - begin)
        chosen = keys[real.clamp(0, max(end - begin - 1, 0))]
        sorted_keys = chosen.sort(descending=True).values
        ascending = {"any": -sorted_keys, "index": real, "value": -chosen}[order]
        before = (keys >= chosen.min()).sum() if count else count
        same = torch.tensor(True, device=scores.device)
        if values is not None:
            bits = torch.int32 if scores.dtype == torch.float32 else torch.int16
            source = scores[row, begin:end].view(bits)[real.clamp(0, max(end - begin - 1, 0))]
            same = (source == values[row, :count].view(bits)).all()
            infinity = float("-inf") if largest else float("inf")
            same &= (values[row, count:] == infinity).all()
        facts.append(
            torch.stack(
                [
                    in_range.all() & (padding == -1).all(),
                    (sorted_keys[1:] < sorted_keys[:-1]).all(),
                    torch.as_tensor(before == count, device=scores.device),
                    (ascending[1:] > ascending[:-1]).all(),
                    same,
                ]
            )
        )
    names = ("in range and padded", "distinct", "the right set", "in order", "right in value")
    for name, verdicts in zip(names, torch.stack(facts).T.tolist(), strict=True):
        wrong = [row for row, verdict in enumerate(verdicts) if not verdict]
        assert not wrong, (
            f"not {name}: {len(wrong)} rows of {rows} x {width} {scores.dtype}, "
            f"the first is {wrong[0]}; k = {k}, order = {order!r}, largest = {largest}"
        )
