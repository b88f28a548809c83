"""Runs a case and says where the answer departs from the reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tl_topk.api import TopK, topk, topk_indices
from tl_topk.check.case import Case
from tl_topk.check.reference import best_of_row, padding_bits, row_bounds, widen
from tl_topk.placement import BITS, Placement, bits_of

__all__ = ["Answer", "difference", "failure", "run"]

Ndarray: TypeAlias = "np.ndarray[Any, Any]"

# Outputs lie in larger arrays filled with this; it must stay around them and vanish within.
_CANARY = 0x5A5A
_MARGIN = 3  # elements before and after each row of an output


@dataclass(frozen=True, eq=False)
class Answer:
    """What a backend wrote."""

    indices: Ndarray  # int32 (rows, k)
    values: Ndarray | None  # bits (rows, k)
    spilled: bool  # was anything written beside the outputs?


def run(case: Case, backend: str) -> Answer:
    """The answer of ``backend``. All that the case says not to read holds the best score there is,
    or NaN: selected or compared, it shows."""
    placement = Placement.of(backend, case.dtype)
    poison = _poison(case)
    stride = case.width + case.gap
    memory = np.full(case.skew + case.rows * stride + 1, poison, BITS[case.dtype])
    rows = memory[case.skew : case.skew + case.rows * stride].reshape(case.rows, stride)
    rows[:, : case.width] = case.scores
    # The view is taken on the device: a copy of a host view would lie there tidily again.
    placed = placement.put(memory, case.dtype)
    scores = placed[case.skew : case.skew + case.rows * stride]
    scores = scores.reshape(case.rows, stride)[:, : case.width]

    index_memory, indices = _output(case, np.dtype(np.int32), "int32", placement)
    value_memory, values = _output(case, np.dtype(BITS[case.dtype]), case.dtype, placement)
    options: dict[str, Any] = {
        "lengths": _integers(case.lengths, placement),
        "row_starts": _integers(case.row_starts, placement),
        "largest": case.largest,
        "order": case.order,
        "backend": backend,
    }
    if case.with_values:
        topk(scores, case.k, out=TopK(values, indices), **options)
    else:
        topk_indices(scores, case.k, out=indices, **options)

    index_bits, value_bits = bits_of(index_memory), bits_of(value_memory)
    inner = slice(_MARGIN, _MARGIN + case.k)
    spilled = _outside(index_bits, case) or _outside(value_bits, case)
    if not case.with_values:
        spilled = spilled or bool((value_bits != _CANARY).any())
    return Answer(
        indices=index_bits[:, inner].view(np.int32),
        values=value_bits[:, inner] if case.with_values else None,
        spilled=spilled,
    )


def difference(case: Case, answer: Answer) -> str | None:
    """Where ``answer`` departs from the contract, in one line; None where it does not."""
    if answer.spilled:
        return "something was written outside the outputs"
    padding = padding_bits(case.dtype, case.largest)
    for row in range(case.rows):
        start = 0 if case.row_starts is None else int(case.row_starts[row])
        length = case.width if case.lengths is None else int(case.lengths[row])
        first, last = row_bounds(case.width, start, length)
        bits = case.scores[row, first:last]
        wanted = best_of_row(widen(bits, case.dtype), case.k, case.largest)
        got = answer.indices[row]
        count = wanted.size
        problem = _set_problem(got[:count], wanted, last - first, case.order)
        if problem is None and (got[count:] != -1).any():
            problem = f"a slot past the {count} elements does not hold -1"
        if problem is None and answer.values is not None:
            expected = np.full(case.k, padding, bits.dtype)
            expected[:count] = bits[got[:count]]
            wrong = np.flatnonzero(answer.values[row] != expected)
            if wrong.size:
                slot = int(wrong[0])
                problem = (
                    f"value in slot {slot} has bits {int(answer.values[row][slot]):#x},"
                    f" not {int(expected[slot]):#x}"
                )
        if problem is not None:
            return f"row {row} (length {last - first}): {problem}"
    return None


def failure(case: Case, backend: str) -> str | None:
    """:func:`run`, then :func:`difference`; an exception is a difference too."""
    try:
        return difference(case, run(case, backend))
    except Exception as error:  # whatever it is, no case may raise
        return f"raised {type(error).__name__}: {error}"


def _set_problem(got: Ndarray, wanted: Ndarray, length: int, order: str) -> str | None:
    if ((got < 0) | (got >= length)).any():
        slot = int(np.flatnonzero((got < 0) | (got >= length))[0])
        return f"index {int(got[slot])} in slot {slot} is outside the row"
    if order == "any":
        got = np.sort(got)
    expected = wanted if order == "value" else np.sort(wanted)
    if (got == expected).all():
        return None
    missing, extra = np.setdiff1d(wanted, got), np.setdiff1d(got, wanted)
    if missing.size:
        return f"index {int(missing[0])} is missing ({missing.size} are), {extra[:1]} is not wanted"
    if np.unique(got).size != got.size:
        return "an index occurs twice"
    return f"the indices are right but not in order={order!r}"


def _poison(case: Case) -> int:
    best = padding_bits(case.dtype, not case.largest)
    return best if case.seed % 2 else best | 1  # | 1 makes a NaN of an infinity


def _output(case: Case, bits: np.dtype[Any], dtype: str, placement: Placement) -> tuple[Any, Any]:
    """(whole memory, the part to be written): rows of k with a margin on both sides."""
    memory = np.full((case.rows, case.k + 2 * _MARGIN), _CANARY, bits)
    placed = placement.put(memory, dtype)
    return placed, placed[:, _MARGIN : _MARGIN + case.k]


def _outside(memory: Ndarray, case: Case) -> bool:
    margins = (memory[:, :_MARGIN], memory[:, _MARGIN + case.k :])
    return any(bool((margin != _CANARY).any()) for margin in margins)


def _integers(array: Ndarray | None, placement: Placement) -> Any:
    return None if array is None else placement.put(array, array.dtype.name)
