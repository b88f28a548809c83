"""From a case to tensors: several inputs of one kind, so that no call finds its own in a cache."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass

import torch
from torch import Tensor

from bench.cases import Case
from bench.distributions import find_distribution, reduce_entropy

__all__ = ["Inputs", "make_inputs"]

#: More than four times the L2 cache of an H200.
_ROTATED_BYTES = 256 << 20
_MAX_SLOTS = 256


@dataclass(frozen=True)
class Inputs:
    """What a case's contenders are called with.

    Attributes:
        case: whose inputs these are.
        scores: (slots, rows, width): one slot a call, in turn.
        lengths: int32 (rows,), or None.
        row_starts: int32 (rows,), or None.
    """

    case: Case
    scores: Tensor
    lengths: Tensor | None
    row_starts: Tensor | None

    @property
    def slots(self) -> int:
        return len(self.scores)

    def row_lengths(self) -> Tensor:
        """int32 (rows,), for contenders that must be told."""
        if self.lengths is not None:
            return self.lengths
        rows, width = self.scores.shape[1:]
        return torch.full((rows,), width, dtype=torch.int32, device=self.scores.device)


def make_inputs(case: Case, device: str) -> Inputs:
    """Drawn on the device, the same each time: the seed comes from the case itself.

    Cases that differ in k, order or values alone get the same scores.
    """
    slots = 2 if device == "cpu" else min(_MAX_SLOTS, max(2, -(-_ROTATED_BYTES // case.bytes)))
    generator = torch.Generator(device)
    generator.manual_seed(zlib.crc32(f"{case.rows} {case.width} {case.distribution}".encode()))
    scores = find_distribution(case.distribution)(generator, (slots, case.rows, case.width))
    if case.entropy < 32:
        scores = reduce_entropy(scores, case.entropy)
    return Inputs(
        case, scores.to(getattr(torch, case.dtype)), _lengths(case, device), _starts(case, device)
    )


def _lengths(case: Case, device: str) -> Tensor | None:
    rows = torch.arange(case.rows, device=device)
    if case.lengths is None:
        return None
    if case.lengths == "mixed":
        stride = math.isqrt(case.rows) | 1
        while math.gcd(stride, case.rows) != 1:
            stride += 2
        lengths = rows * stride % case.rows * case.width // max(case.rows - 1, 1)
    elif case.lengths == "causal":
        lengths = case.width - case.rows + 1 + rows
    else:
        lengths = torch.full_like(rows, case.lengths)
    return lengths.int()


def _starts(case: Case, device: str) -> Tensor | None:
    """Odd, so that no row is aligned as it would be without them."""
    if not case.row_starts:
        return None
    return (torch.arange(case.rows, device=device) * 2 + 1).int()
