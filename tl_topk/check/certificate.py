"""A proof that the answers of thousands of rows are right, without sorting, where they lie.

Let w be the worst element selected. If the selected are distinct, and exactly as many elements as
were selected rank at or before w, then they are the best. Needs torch, and of it only integers: the
scores are compared by their bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tl_topk.check.reference import padding_bits

__all__ = ["Selection", "Verdicts", "certify"]

_INFINITE = {"float32": 0x7F800000, "float16": 0x7C00, "bfloat16": 0x7F80}
_NOT_A_NUMBER = -(2**31) + 1  # below the key of -inf
_LAST = 0xFFFFFFFF
_NONE = 2**63 - 1

#: What a row's answer must be, in the order in which a failure is told.
_CLAIMS = (
    "an index is outside the row",
    "a slot past the elements does not hold -1",
    "an index occurs twice",
    "not the best are selected",
    "the indices are right but not in order",
    "a value does not have the bits of its score",
)


@dataclass(frozen=True)
class Selection:
    """What was asked of every row.

    Attributes:
        bits: int32 or int16 (rows, width), neither of them 0: the scores.
        begins, ends: int64 (rows,): the columns that each row covers.
    """

    bits: Tensor
    dtype: str
    begins: Tensor
    ends: Tensor
    k: int
    order: str
    largest: bool


@dataclass(frozen=True)
class Verdicts:
    """For each row and each claim whether it is broken: bool (claims, rows)."""

    broken: Tensor

    def first(self) -> tuple[int, str] | None:
        """The first row that is wrong, and what about it; None where all are right."""
        rows = self.broken.any(0)
        if not bool(rows.any()):
            return None
        row = int(rows.nonzero()[0])
        return row, _CLAIMS[int(self.broken[:, row].nonzero()[0])]


def certify(asked: Selection, indices: Tensor, values: Tensor | None) -> Verdicts:
    """Judges ``indices``, int32 (rows, k), and ``values``, the bits of (rows, k) scores."""
    rows, width = asked.bits.shape
    device = asked.bits.device
    begin, end = asked.begins[:, None], asked.ends[:, None]
    place = torch.arange(width, device=device)[None]
    keys = _keys(asked.bits, asked.dtype, asked.largest)
    count = (end - begin).clamp(max=asked.k)
    real = torch.arange(asked.k, device=device)[None] < count
    given = indices.long()
    outside = real & ((given < 0) | (given >= end - begin))
    unpadded = ~real & (given != -1)

    at = torch.where(real, given + begin, width).clamp(0, width)  # slots without element: beyond
    marks = torch.zeros(rows, width + 1, dtype=torch.bool, device=device)
    marks.scatter_(1, at, True)
    distinct = marks[:, :width].sum(1, keepdim=True)
    chosen = keys.gather(1, at.clamp(max=width - 1)).long()
    ranks = (chosen << 32) | (_LAST - given.clamp(min=0))
    worst = torch.where(real, ranks, _NONE).amin(1, keepdim=True) if asked.k else count + _NONE
    key, last = (worst >> 32).int(), _LAST - (worst & _LAST) + begin
    before = (keys > key) | ((keys == key) & (place <= last))
    before &= (place >= begin) & (place < end)
    missed = (before.sum(1, keepdim=True) != count) & (count > 0)

    disordered = torch.zeros(rows, 1, dtype=torch.bool, device=device)
    if asked.order != "any" and asked.k > 1:
        following = -ranks if asked.order == "value" else given
        wrong = real[:, 1:] & (following[:, 1:] <= following[:, :-1])
        disordered = wrong.any(1, keepdim=True)
    miscopied = torch.zeros_like(disordered)
    if values is not None and asked.k:
        padding = _signed(padding_bits(asked.dtype, asked.largest), asked.bits.dtype)
        copied = asked.bits.gather(1, at.clamp(max=width - 1))
        expected = torch.where(real, copied, padding)
        miscopied = (values != expected).any(1, keepdim=True)
    claims = (
        outside.any(1, keepdim=True),
        unpadded.any(1, keepdim=True),
        distinct != count,
        missed,
        disordered,
        miscopied,
    )
    return Verdicts(torch.cat(claims, 1).T)


def _keys(bits: Tensor, dtype: str, largest: bool) -> Tensor:
    """int32 keys: larger for what ranks first, equal for +0 and -0, least for NaN."""
    magnitude = (bits & (0x7FFFFFFF if dtype == "float32" else 0x7FFF)).int()
    keys = torch.where((bits < 0) == largest, -magnitude, magnitude)
    return keys.masked_fill_(magnitude > _INFINITE[dtype], _NOT_A_NUMBER)


def _signed(bits: int, dtype: torch.dtype) -> int:
    limits = torch.iinfo(dtype)
    return bits - (1 << limits.bits) if bits > limits.max else bits
