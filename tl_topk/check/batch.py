"""Thousands of rows at once: drawn, selected from and judged where they lie. Needs torch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from tl_topk.api import TopK, topk, topk_indices
from tl_topk.check.case import Case
from tl_topk.check.certificate import Selection, certify
from tl_topk.check.draw import KINDS, Draw, bits_of_scores
from tl_topk.check.generate import LANDMARK_KS, LANDMARK_WIDTHS, near
from tl_topk.check.reference import padding_bits
from tl_topk.placement import BITS
from tl_topk.problem import ORDERS

__all__ = ["Batch", "Wrong", "make_batch"]

# Elements of one batch: on a GPU so many that drawing and judging them is no matter of launches.
_ELEMENTS = {"cpu": 2**19, "cuda": 2**24}
_MOST_ROWS = {"cpu": 2**12, "cuda": 2**14}
_NARROW, _USUAL, _WIDE = 2**9, 2**14, 2**20
_KINDS_AT_ONCE = 8
_CANARY, _MARGIN = 0x5A5A, 3
#: Rows of the first launches: alone and in small numbers rows are shared by many blocks.
_FEW = (1, 1, 1, 1, 1, 1, 1, 1, 2, 3, 4, 8, 9, 16, 17, 33, 66, 67, 132, 133)


@dataclass(frozen=True)
class Wrong:
    """A row of a batch that was answered wrongly, or the first of a launch that raised."""

    row: int
    problem: str


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows of one width, k and dtype, each of another kind, with lengths and starts of their own.

    Attributes:
        bits: int32 or int16 (rows, width), with any stride between the rows.
        lengths, row_starts: int32 or int64 (rows,), or None.
        launches: how many rows each launch has; together all of them.
    """

    seed: int
    kinds: tuple[str, ...]  # row r is of kind r % len
    dtype: str
    bits: Tensor
    k: int
    order: str
    largest: bool
    with_values: bool
    lengths: Tensor | None
    row_starts: Tensor | None
    skew: int
    gap: int
    launches: tuple[int, ...]

    @property
    def rows(self) -> int:
        return int(self.bits.shape[0])

    @property
    def width(self) -> int:
        return int(self.bits.shape[1])

    def failure(self, backend: str) -> Wrong | None:
        """Selects from all rows and judges them; None where all is as the contract says."""
        shape = self.rows, self.k + 2 * _MARGIN
        like = {"device": self.bits.device}
        index_memory = torch.full(shape, _CANARY, dtype=torch.int32, **like)  # type: ignore[call-overload]
        value_memory = torch.full(shape, _CANARY, dtype=self.bits.dtype, **like)  # type: ignore[call-overload]
        inner = slice(_MARGIN, _MARGIN + self.k)
        indices, value_bits = index_memory[:, inner], value_memory[:, inner]
        begin = 0
        for rows in self.launches:
            part = slice(begin, begin + rows)
            try:
                self._select(part, indices[part], value_bits[part], backend)
            except Exception as error:  # whatever it is, no launch may raise
                return Wrong(begin, f"raised {type(error).__name__}: {error}")
            begin += rows
        asked = Selection(self.bits, self.dtype, *self.spans(), self.k, self.order, self.largest)
        verdicts = certify(asked, indices, value_bits if self.with_values else None)
        spilled = torch.zeros(self.rows, dtype=torch.bool, device=self.bits.device)
        for memory in (index_memory, value_memory):
            for margin in (memory[:, :_MARGIN], memory[:, _MARGIN + self.k :]):
                spilled |= (margin != _CANARY).any(1)
        if not self.with_values:
            spilled |= (value_memory != _CANARY).any(1)
        if bool(spilled.any()):
            return Wrong(int(spilled.nonzero()[0]), "something was written outside the outputs")
        found = verdicts.first()
        return None if found is None else Wrong(*found)

    def spans(self) -> tuple[Tensor, Tensor]:
        """int64 (rows,) twice: the half-open range of columns that each row covers."""
        none = torch.zeros(self.rows, dtype=torch.int64, device=self.bits.device)
        begins = none if self.row_starts is None else self.row_starts.long().clamp(0, self.width)
        room = self.width - begins
        if self.lengths is None:
            return begins, begins + room
        return begins, begins + torch.minimum(self.lengths.long().clamp(min=0), room)

    def cases(self, row: int) -> Iterator[Case]:
        """What may fail on its own as ``row`` did: that row, then all rows of its launch."""
        begin = 0
        for rows in self.launches:
            if row < begin + rows:
                break
            begin += rows
        for part in (slice(row, row + 1), slice(begin, begin + rows))[: 1 + (rows > 1)]:
            yield Case(
                seed=self.seed,
                family=self._kinds_of(part),
                dtype=self.dtype,
                scores=_on_host(self.bits[part]).view(BITS[self.dtype]),
                k=self.k,
                order=self.order,
                largest=self.largest,
                with_values=self.with_values,
                lengths=None if self.lengths is None else _on_host(self.lengths[part]),
                row_starts=None if self.row_starts is None else _on_host(self.row_starts[part]),
                skew=self.skew,
                gap=self.gap,
            )

    def _kinds_of(self, part: slice) -> str:
        rows = range(part.start, min(part.stop, part.start + len(self.kinds)))
        return ", ".join(self.kinds[row % len(self.kinds)] for row in rows)

    def _select(self, part: slice, indices: Tensor, value_bits: Tensor, backend: str) -> None:
        scores = self.bits[part].view(getattr(torch, self.dtype))
        options: dict[str, Any] = {
            "lengths": None if self.lengths is None else self.lengths[part],
            "row_starts": None if self.row_starts is None else self.row_starts[part],
            "largest": self.largest,
            "order": self.order,
            "backend": backend,
        }
        if self.with_values:
            values = value_bits.view(getattr(torch, self.dtype))
            topk(scores, self.k, out=TopK(values, indices), **options)
        else:
            topk_indices(scores, self.k, out=indices, **options)


def _on_host(array: Tensor) -> Any:
    return np.ascontiguousarray(array.cpu().numpy())


def make_batch(seed: int, device: str) -> Batch:
    """The batch of ``seed`` on ``device``: the same one wherever torch draws the same."""
    rng = np.random.default_rng(seed)
    generator = torch.Generator(device).manual_seed(seed)
    width = _width(rng)
    most = _ELEMENTS[device]
    rows = min(most // width, int(_MOST_ROWS[device] * rng.uniform(0.5, 1)))
    rows = max(rows, 1)
    k = min(_k(rng, width), max(2**13, most // rows))
    dtype = str(rng.choice(tuple(BITS)))
    skew, gap = (int(rng.integers(0, 9)) if rng.random() < 0.5 else 0 for _ in range(2))
    memory = torch.empty(skew + rows * (width + gap), dtype=_bits_type(dtype), device=device)
    bits = memory.as_strided((rows, width), (width + gap, 1), skew)
    kinds = tuple(map(str, rng.choice(tuple(KINDS), _KINDS_AT_ONCE, replace=False)))
    for first, kind in enumerate(kinds[:rows]):
        part = bits[first :: len(kinds)]
        drawn = KINDS[kind](Draw(part.shape[0], width, k, dtype, generator))
        part.copy_(bits_of_scores(drawn, dtype))
    batch = Batch(
        seed=seed,
        kinds=kinds,
        dtype=dtype,
        bits=bits,
        k=k,
        order=str(rng.choice(ORDERS)),
        largest=bool(rng.random() < 0.7),
        with_values=bool(rng.random() < 0.6),
        lengths=_extents(rng, generator, rows, width, k) if rng.random() < 0.6 else None,
        row_starts=_starts(rng, generator, rows, width) if rng.random() < 0.3 else None,
        skew=skew,
        gap=gap,
        launches=_launches(rng, rows),
    )
    _poison(batch, memory, rng)
    return batch


def _poison(batch: Batch, memory: Tensor, rng: Generator) -> None:
    """All that lies outside of a row's span is the best there is, or NaN: selected, it shows."""
    poison = padding_bits(batch.dtype, not batch.largest) | int(rng.integers(0, 2))
    top = 1 << (31 if batch.dtype == "float32" else 15)
    signed = poison - 2 * top if poison >= top else poison
    if batch.gap:
        between = memory[batch.skew :].view(batch.rows, batch.width + batch.gap)
        between[:, batch.width :] = signed
    memory[: batch.skew] = signed
    if batch.lengths is None and batch.row_starts is None:
        return
    begins, ends = batch.spans()
    place = torch.arange(batch.width, device=memory.device)[None]
    outside = (place < begins[:, None]) | (place >= ends[:, None])
    batch.bits.masked_fill_(outside, signed)


def _bits_type(dtype: str) -> torch.dtype:
    return torch.int32 if dtype == "float32" else torch.int16


def _width(rng: Generator) -> int:
    kind = rng.random()
    if kind < 0.3:
        return int(rng.integers(1, _NARROW))
    if kind < 0.5:
        return max(1, near(rng, int(rng.choice(LANDMARK_WIDTHS))))
    most = _USUAL if kind < 0.9 else _WIDE
    return int(math.exp(rng.uniform(math.log(_NARROW), math.log(most))))


def _k(rng: Generator, width: int) -> int:
    kind = rng.random()
    if kind < 0.6:
        return near(rng, int(rng.choice(LANDMARK_KS)))
    if kind < 0.65:
        return near(rng, width)
    return int(rng.integers(0, min(width, 5000) + 2))


def _launches(rng: Generator, rows: int) -> tuple[int, ...]:
    """Some rows alone, some in small numbers, the rest in one or two."""
    launches = []
    left = rows
    for few in _FEW:
        if few <= left // 2:
            launches.append(few)
            left -= few
    if left > 1 and rng.random() < 0.5:
        part = int(rng.integers(1, left))
        launches.append(part)
        left -= part
    return (*launches, left)


def _extents(rng: Generator, generator: torch.Generator, rows: int, width: int, k: int) -> Tensor:
    """Lengths: inside, about k, at the landmarks, at the width, and beyond both ends."""

    def drawn(low: int, high: int) -> Tensor:
        return torch.randint(low, high, (rows,), generator=generator, device=generator.device)

    landmarks = torch.tensor(LANDMARK_WIDTHS, device=generator.device)
    kinds = torch.stack(
        [
            drawn(0, width + 1),
            k + drawn(-2, 3),
            landmarks[drawn(0, len(LANDMARK_WIDTHS))] + drawn(-2, 3),
            width + drawn(-2, 3),
            drawn(-4, 5),
            torch.full_like(landmarks[:1], width).expand(rows),
        ]
    )
    extents = kinds[drawn(0, len(kinds)), torch.arange(rows, device=generator.device)]
    return _with_extremes(rng, extents, drawn)


def _starts(rng: Generator, generator: torch.Generator, rows: int, width: int) -> Tensor:
    """Starts: the first few columns, anywhere, and beyond both ends."""

    def drawn(low: int, high: int) -> Tensor:
        return torch.randint(low, high, (rows,), generator=generator, device=generator.device)

    kinds = torch.stack([drawn(0, 18), drawn(0, width + 1), width + drawn(-2, 3), drawn(-4, 5)])
    starts = kinds[drawn(0, len(kinds)) % 3 if rng.random() < 0.5 else drawn(0, 1),
                   torch.arange(rows, device=generator.device)]  # fmt: skip
    return _with_extremes(rng, starts, drawn)


def _with_extremes(rng: Generator, extents: Tensor, drawn: Any) -> Tensor:
    """As int32, or as int64 with some that no int32 holds."""
    if rng.random() < 0.5:
        return extents.int()
    far = torch.tensor([-(2**63), -(2**40), 2**40, 2**63 - 1], device=extents.device)
    return torch.where(drawn(0, 50) == 0, far[drawn(0, len(far))], extents)
