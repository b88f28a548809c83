"""The slow, obvious answer: the contract of the design in NumPy, written from its table alone.

NumPy has no bfloat16, so here an array of ``uint16`` *is* a bfloat16 array, seen as bit patterns.
Arrays of scores in these three storage types (float32, float16, uint16) are called *raw*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Raw = NDArray[np.generic]
Order = Literal["any", "index", "value"]

DTYPES = ("float32", "float16", "bfloat16")
ORDERS: tuple[Order, ...] = ("any", "index", "value")
STORAGE = {"float32": np.float32, "float16": np.float16, "bfloat16": np.uint16}
PATTERN = {"float32": np.uint32, "float16": np.uint16, "bfloat16": np.uint16}


def dtype_of(raw: Raw) -> str:
    """The score type a raw array stands for."""
    return next(name for name, storage in STORAGE.items() if raw.dtype == storage)


def bits_of(raw: Raw) -> Raw:
    """The bit patterns of a raw array."""
    return raw.view(PATTERN[dtype_of(raw)])


def from_bits(patterns: Raw, dtype: str) -> Raw:
    """A raw array with the given bit patterns, so that NaN payloads and -0 survive."""
    return np.ascontiguousarray(patterns).astype(PATTERN[dtype]).view(STORAGE[dtype])


def widen(raw: Raw) -> NDArray[np.float32]:
    """The numbers of a raw array; float32 holds every float16 and every bfloat16 exactly."""
    if raw.dtype == np.uint16:
        return (raw.astype(np.uint32) << 16).view(np.float32)
    return raw.astype(np.float32)


def quantize(numbers: NDArray[np.floating], dtype: str) -> Raw:
    """Rounds numbers to the nearest score of the type, ties to even, too large ones to inf."""
    with np.errstate(over="ignore"):
        single = np.asarray(numbers, dtype=np.float32)
        if dtype == "float32":
            return single
        if dtype == "float16":
            return single.astype(np.float16)
    patterns = single.view(np.uint32)
    rounded = (patterns.astype(np.uint64) + 0x7FFF + ((patterns >> 16) & 1)) >> 16
    quiet_nan = (patterns >> 16) | 0x40
    return np.where(np.isnan(single), quiet_nan, rounded).astype(np.uint16)


def span(width: int, length: int | None = None, start: int | None = None) -> tuple[int, int]:
    """The first and one past the last element of a row. Python integers never overflow."""
    begin = max(start or 0, 0)
    end = width if length is None else begin + length
    begin = min(begin, width)
    return begin, max(begin, min(end, width))


def rank(numbers: NDArray[np.float32], largest: bool = True) -> NDArray[np.intp]:
    """Indices from best to worst: numbers before NaN, better first, and then the lower index.

    The sort is stable, which leaves equal scores (+0 equals -0), and NaNs, in order of index.
    """
    missing = np.isnan(numbers)
    cost = np.where(missing, np.float32(0), -numbers if largest else numbers)
    return np.lexsort((cost, missing))


@dataclass(frozen=True)
class Answer:
    """What each slot must hold: the best first, then padding."""

    indices: NDArray[np.int32]  # (rows, k)
    counts: list[int]  # how many slots of each row are not padding


@dataclass(frozen=True)
class Oracle:
    """One problem, its rows ranked once and answered for any k."""

    scores: Raw  # (width,) or (rows, width)
    lengths: NDArray[np.integer] | None = None  # (rows,)
    row_starts: NDArray[np.integer] | None = None  # (rows,)
    largest: bool = True
    labels: Sequence[str] | None = None  # names of the rows, for messages

    @property
    def matrix(self) -> Raw:
        return self.scores if self.scores.ndim == 2 else self.scores[np.newaxis]

    @cached_property
    def spans(self) -> list[tuple[int, int]]:
        rows, width = self.matrix.shape
        return [
            span(
                width,
                None if self.lengths is None else int(self.lengths[row]),
                None if self.row_starts is None else int(self.row_starts[row]),
            )
            for row in range(rows)
        ]

    @cached_property
    def ranked(self) -> list[NDArray[np.intp]]:
        """For each row all of its indices, relative to the row's start, best first."""
        return [
            rank(widen(row[begin:end]), self.largest)
            for row, (begin, end) in zip(self.matrix, self.spans, strict=True)
        ]

    @property
    def padding_bits(self) -> int:
        """The bit pattern of -inf, or of +inf where the smallest are wanted."""
        infinity = np.array([-np.inf if self.largest else np.inf])
        return int(bits_of(quantize(infinity, dtype_of(self.scores)))[0])

    def answer(self, k: int) -> Answer:
        indices = np.full((len(self.ranked), k), -1, dtype=np.int32)
        counts = [min(len(best), k) for best in self.ranked]
        for row, (best, count) in enumerate(zip(self.ranked, counts, strict=True)):
            indices[row, :count] = best[:count]
        return Answer(indices, counts)

    def values(self, indices: NDArray[np.int32]) -> Raw:
        """The scores at indices, bit for bit, and the padding value at -1."""
        patterns = bits_of(self.matrix)
        chosen = np.full(indices.shape, self.padding_bits, dtype=patterns.dtype)
        for row, (begin, _) in enumerate(self.spans):
            real = indices[row] >= 0
            chosen[row, real] = patterns[row, begin + indices[row, real]]
        return from_bits(chosen, dtype_of(self.scores))


def assert_topk(
    oracle: Oracle,
    k: int,
    order: Order,
    indices: NDArray[np.int32],
    values: Raw | None = None,
) -> None:
    """Fails, showing the first row that differs, unless a result is the contract's own."""
    shape = (k,) if oracle.scores.ndim == 1 else (len(oracle.scores), k)
    assert indices.dtype == np.int32, f"indices are {indices.dtype}, not int32"
    assert indices.shape == shape, f"indices have shape {indices.shape}, not {shape}"
    if values is not None:
        expected_type = oracle.scores.dtype
        assert values.dtype == expected_type, f"values are {values.dtype}, not {expected_type}"
        assert values.shape == shape, f"values have shape {values.shape}, not {shape}"
        values = np.atleast_2d(values)
    indices = np.atleast_2d(indices)

    answer = oracle.answer(k)
    expected = answer.indices
    if order != "value":
        expected = _ascending(expected)
    actual = _ascending(indices) if order == "any" else indices
    wrong = np.flatnonzero((actual != expected).any(axis=1))
    padded = np.flatnonzero(_padding_misplaced(indices, answer.counts))
    if len(wrong) or len(padded):
        row = int(min([*wrong, *padded]))
        raise AssertionError(_explain_indices(oracle, k, order, row, indices[row], expected[row]))
    if values is not None:
        _assert_values(oracle, k, order, indices, values)


def _ascending(indices: NDArray[np.int32]) -> NDArray[np.int32]:
    """Each row sorted, with the padding (-1, the largest unsigned number) at the end."""
    return np.sort(indices.view(np.uint32), axis=1).view(np.int32)


def _padding_misplaced(indices: NDArray[np.int32], counts: list[int]) -> NDArray[np.bool_]:
    slots = np.arange(indices.shape[1])
    padding = slots[np.newaxis] >= np.array(counts, dtype=np.int64)[:, np.newaxis]
    return np.asarray(((indices == -1) != padding).any(axis=1))


def _assert_values(
    oracle: Oracle, k: int, order: Order, indices: NDArray[np.int32], values: Raw
) -> None:
    expected = bits_of(oracle.values(indices))
    actual = bits_of(values)
    rows, slots = np.nonzero(actual != expected)
    if len(rows):
        row, slot = int(rows[0]), int(slots[0])
        raise AssertionError(
            f"{_place(oracle, k, order, row)}: the value of slot {slot} (index "
            f"{indices[row, slot]}) has bits {actual[row, slot]:#x}, not {expected[row, slot]:#x}; "
            f"{len(rows)} values differ in {len(set(rows.tolist()))} rows"
        )


def _place(oracle: Oracle, k: int, order: Order, row: int) -> str:
    begin, end = oracle.spans[row]
    label = f" ({oracle.labels[row]})" if oracle.labels is not None else ""
    return (
        f"row {row}{label} of {tuple(oracle.scores.shape)} {dtype_of(oracle.scores)}, "
        f"span [{begin}, {end}), k = {k}, order = {order!r}, largest = {oracle.largest}"
    )


def _explain_indices(
    oracle: Oracle,
    k: int,
    order: Order,
    row: int,
    actual: NDArray[np.int32],
    expected: NDArray[np.int32],
) -> str:
    begin, end = oracle.spans[row]
    numbers = widen(oracle.matrix[row, begin:end])

    def show(some: Sequence[int]) -> str:
        shown = [f"{i}: {numbers[i]!s}" if 0 <= i < end - begin else str(i) for i in some[:6]]
        return "{" + ", ".join(shown) + (", ..." if len(some) > 6 else "") + "}"

    real = actual[actual != -1].tolist()
    wanted = set(expected[expected != -1].tolist())
    lines = [_place(oracle, k, order, row)]
    outside = sorted({i for i in real if not 0 <= i < end - begin})
    repeated = sorted({i for i in real if real.count(i) > 1}) if len(real) != len(set(real)) else []
    missing = sorted(wanted - set(real))
    extra = sorted(set(real) - wanted)
    for what, some in (
        ("out of range", outside),
        ("repeated", repeated),
        ("missing", missing),
        ("not wanted", extra),
    ):
        if some:
            lines.append(f"  {what}, {len(some)}: {show(some)}")
    if len(lines) == 1 and order == "any":
        lines.append("  the set is right, but the padding is not at the end")
    elif len(lines) == 1:
        slot = int(np.flatnonzero(actual != expected)[0])
        lines.append(
            f"  the set is right, the order is not: slot {slot} holds {show([actual[slot]])}, "
            f"not {show([expected[slot]])}"
        )
    return "\n".join(lines)
