"""How the scores of thousands of rows may be distributed, drawn where they will lie.

The counterpart of :mod:`tl_topk.check.families` in torch: a kind of row draws all of its rows at
once, each with parameters of its own. Needs torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd
from typing import TypeAlias

import torch
from torch import Tensor

__all__ = ["KINDS", "Draw", "bits_of_scores"]

_SAMPLES = (64, 256, 1024, 4096)  # that a kernel may look at first
_SIGNED = {"float32": torch.int32, "float16": torch.int16, "bfloat16": torch.int16}
_INFINITE = {"float32": 0x7F800000, "float16": 0x7C00, "bfloat16": 0x7F80}


@dataclass(frozen=True)
class Draw:
    """What a kind of row is asked for, and its source of chance.

    Attributes:
        rows, width: of the scores.
        k: how many will be selected: many kinds are built around the k-th element.
        dtype: of the scores.
        generator: of the device on which they will lie.
    """

    rows: int
    width: int
    k: int
    dtype: str
    generator: torch.Generator

    @property
    def device(self) -> torch.device:
        return self.generator.device

    def place(self) -> Tensor:
        """int64 (1, width): where an element lies in its row."""
        return torch.arange(self.width, device=self.device)[None]

    def normal(self) -> Tensor:
        """float32 (rows, width)."""
        return torch.randn(self.rows, self.width, generator=self.generator, device=self.device)

    def uniform(self) -> Tensor:
        """float32 (rows, width) in [0, 1)."""
        return torch.rand(self.rows, self.width, generator=self.generator, device=self.device)

    def integers(self, low: int, high: int) -> Tensor:
        """int64 (rows, 1) in [low, high)."""
        return torch.randint(
            low, max(high, low + 1), (self.rows, 1), generator=self.generator, device=self.device
        )

    def choice(self, options: Sequence[float]) -> Tensor:
        """One of ``options`` for each row, (rows, 1)."""
        values = torch.tensor(options, device=self.device)
        return values[self.integers(0, len(options))]

    def scattered(self) -> Tensor:
        """int64 (rows, width): each row a permutation of 0 ... width - 1 in no apparent order."""
        step = int(self.integers(1, self.width + 1)[0]) | 1
        while gcd(step, self.width) != 1:
            step += 2
        return (self.place() * step + self.integers(0, self.width)) % self.width


#: float32 scores, or the bits of scores in the dtype asked for, (rows, width).
Kind: TypeAlias = Callable[[Draw], Tensor]


def _normal(draw: Draw) -> Tensor:
    scale = 10.0 ** draw.integers(-6, 7).float()
    return draw.normal() * scale + draw.choice([0.0, 1.0, -3.0, 100.0]) * scale


def _indexer(draw: Draw) -> Tensor:
    """Weighted sums of ReLU, as the indexers of sparse attention make them."""
    total = torch.zeros((), device=draw.device)
    for _ in range(4):
        weight = torch.randn(draw.rows, 1, generator=draw.generator, device=draw.device)
        total = total + draw.normal().relu() * weight
    return total


def _plateau(draw: Draw) -> Tensor:
    return (draw.normal() - draw.choice([-2.0, 0.0, 1.0, 2.0, 3.0])).relu()


def _heavy_tails(draw: Draw) -> Tensor:
    return draw.normal() / draw.normal().abs().clamp(min=1e-6)


def _lognormal(draw: Draw) -> Tensor:
    return (draw.normal() * draw.choice([1.0, 4.0, 20.0])).exp()


def _any_bits(draw: Draw) -> Tensor:
    """Every kind of float, most of them huge, tiny or NaN."""
    signed = _SIGNED[draw.dtype]
    limits = torch.iinfo(signed)
    return torch.randint(
        limits.min,
        limits.max + 1,
        (draw.rows, draw.width),
        generator=draw.generator,
        device=draw.device,
        dtype=signed,
    )


def _bits_of_few(draw: Draw) -> Tensor:
    """Notable bit patterns and their neighbours: zeros, denormals, infinities, NaN."""
    infinite = _INFINITE[draw.dtype]
    top = 31 if draw.dtype == "float32" else 15
    notable = [0, 1, 2, infinite - 2, infinite - 1, infinite, infinite + 1, infinite // 2]
    signed = [bits - (s << top) for bits in notable for s in (0, 1)]
    table = torch.tensor(signed, device=draw.device).to(_SIGNED[draw.dtype])
    some = draw.integers(1, len(signed) + 1)
    which = (draw.uniform() * some).long() + draw.integers(0, len(signed))
    return table[which % len(signed)]


def _neighbours(draw: Draw) -> Tensor:
    """Scores a few steps apart: every edge of every bin is met from both sides."""
    infinite = _INFINITE[draw.dtype]
    base = draw.integers(0, infinite - 5000)
    reach = draw.choice([2.0, 64.0, 300.0, 4096.0])
    sign = draw.integers(0, 2) << (31 if draw.dtype == "float32" else 15)
    bits = base + (draw.uniform() * reach).long() - sign
    return bits.to(_SIGNED[draw.dtype])


def _all_equal(draw: Draw) -> Tensor:
    values = draw.choice([0.0, -0.0, 1.0, 1.0000044, -2.5, torch.inf, -torch.inf, torch.nan])
    return values.expand(draw.rows, draw.width)


def _few_values(draw: Draw) -> Tensor:
    return (draw.uniform() * draw.integers(2, 70)).floor() / 64


def _sawtooth(draw: Draw) -> Tensor:
    period = draw.integers(1, 300)
    return (draw.place() % period).float() / period


def _stairs(draw: Draw) -> Tensor:
    steps = (draw.place() // draw.integers(1, 300)).float()
    return steps * draw.choice([1.0, -1.0])


def _monotonic(draw: Draw) -> Tensor:
    line = torch.linspace(-0.9999, 0.9999, draw.width, device=draw.device)
    return torch.erfinv(line)[None] * draw.choice([1.0, -1.0, 1e-3, -1e30])


def _in_step(draw: Draw) -> Tensor:
    """Periodic in step with a strided sample, which then sees one value only."""
    stride = max(1, draw.width // _SAMPLES[int(draw.integers(0, len(_SAMPLES))[0])])
    period = (stride + draw.integers(-1, 2)).clamp(min=1)
    return (draw.place() % period).float() + draw.uniform() * 0.5


def _sample_lies(draw: Draw) -> Tensor:
    """What a strided sample sees is of another kind than the rest."""
    stride = max(1, draw.width // _SAMPLES[int(draw.integers(0, len(_SAMPLES))[0])])
    seen = draw.place() % stride == draw.integers(0, stride)
    normal = draw.normal()
    lies = draw.choice([100.0, -100.0, torch.inf, -torch.inf, torch.nan, 0.0])
    return torch.where(seen, normal * draw.choice([1.0, 0.0, 1e-5]) + lies, normal)


def _some_lanes_lie(draw: Draw) -> Tensor:
    """As those of some vectors, lanes, warps or blocks would, whose numbers are bits of a place."""
    shift, bits = draw.integers(0, 14), draw.integers(1, 6)
    seen = (draw.place() >> shift) % (1 << bits) == draw.integers(0, 32) % (1 << bits)
    normal = draw.normal()
    return torch.where(seen, normal + draw.choice([100.0, -100.0, 5.0, torch.nan]), normal)


def _outliers(draw: Draw) -> Tensor:
    """A map from minimum to maximum would put all the rest into one bin."""
    few = draw.scattered() < draw.integers(1, 40)
    ends = draw.choice([1e30, -1e30, 3.4e38, -3.4e38, torch.inf, -torch.inf, 6e4])
    return torch.where(few, ends, draw.normal() * draw.choice([1.0, 1e-3]) + 1)


def _one_binade(draw: Draw) -> Tensor:
    return 1 + draw.uniform() * draw.choice([0.245, 1.0, 1e-4])


def _halving(draw: Draw) -> Tensor:
    return torch.exp2(-(draw.scattered() % draw.integers(2, 240)).float())


def _all_magnitudes(draw: Draw) -> Tensor:
    return torch.exp2(draw.uniform() * 280 - 145) * draw.normal().sign()


def _bin_edges(draw: Draw) -> Tensor:
    """Multiples of a range's 255th part, and what lies a step or two beside them."""
    low = draw.choice([0.0, 1.0, -1.0, 1e30, -3e-38])
    size = draw.choice([1.0, 3.0, 1e30, 5e-38, 0.01])
    edges = low + size * (draw.uniform() * 256).floor() / 255
    aside = (draw.uniform() * 5).int() - 2
    return (edges.view(torch.int32) + aside).view(torch.float32)


def _some_not_numbers(draw: Draw) -> Tensor:
    normal = draw.normal()
    share = draw.choice([0.01, 0.5, 0.99, 1.0])
    return torch.where(draw.uniform() < share, torch.nan, normal)


def _some_infinite(draw: Draw) -> Tensor:
    normal, chance = draw.normal(), draw.uniform()
    row = torch.where(chance < draw.choice([0.01, 0.5, 1.0]), torch.inf, normal)
    return torch.where(chance < draw.choice([0.0, 0.01, 0.5]), -torch.inf, row)


def _ranked(draw: Draw) -> Tensor:
    """So many elements above, so many equal to or near the k-th, and the rest below."""
    place = draw.scattered() if int(draw.integers(0, 3)[0]) else draw.place()
    tied = draw.choice([1, 2, 31, 255, 256, 257, 511, 2047, 2048, 2049, draw.width]).long()
    above = (draw.k - (draw.uniform()[:, :1] * (tied + 2)).long() + draw.integers(-1, 2)).clamp(0)
    high = 5 + draw.uniform() * draw.choice([0.0, 1.0, 1e30])
    middle = torch.full_like(high, 4.0).view(torch.int32)
    steps = (draw.uniform() * draw.choice([1.0, 1.0, 3.0, 300.0])).int()
    low = draw.choice([0.0, 3.9999998, -torch.inf, torch.nan, -1.0]) - draw.uniform()
    flat = draw.integers(0, 2).bool()
    low = torch.where(flat, draw.choice([0.0, -7.0]), low)
    row = torch.where(place < above + tied, (middle + steps).view(torch.float32), low)
    return torch.where(place < above, high, row)


def _in_one_stretch(draw: Draw) -> Tensor:
    """All that is wanted lies side by side."""
    begin = draw.integers(0, draw.width)
    size = (draw.k * draw.choice([0.5, 1.0, 2.0])).long() + draw.integers(-1, 2)
    place = draw.place()
    return draw.normal() + 20.0 * ((place >= begin) & (place < begin + size))


KINDS: dict[str, Kind] = {
    "normal": _normal,
    "indexer": _indexer,
    "plateau": _plateau,
    "heavy tails": _heavy_tails,
    "lognormal": _lognormal,
    "any bits": _any_bits,
    "bits of few": _bits_of_few,
    "neighbours": _neighbours,
    "all equal": _all_equal,
    "few values": _few_values,
    "sawtooth": _sawtooth,
    "stairs": _stairs,
    "monotonic": _monotonic,
    "in step": _in_step,
    "sample lies": _sample_lies,
    "some lanes lie": _some_lanes_lie,
    "outliers": _outliers,
    "one binade": _one_binade,
    "halving": _halving,
    "all magnitudes": _all_magnitudes,
    "bin edges": _bin_edges,
    "some not numbers": _some_not_numbers,
    "some infinite": _some_infinite,
    "ranked": _ranked,
    "in one stretch": _in_one_stretch,
}


def bits_of_scores(drawn: Tensor, dtype: str) -> Tensor:
    """int32 or int16 bits in ``dtype`` of what a kind of row drew."""
    if not drawn.is_floating_point():
        return drawn
    return drawn.contiguous().to(getattr(torch, dtype)).view(_SIGNED[dtype])
