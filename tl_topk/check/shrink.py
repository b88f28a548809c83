"""From a case that fails to a small one that still does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from tl_topk.check.case import Case

__all__ = ["shrink"]


# The plain value of everything that can be left out.
_PLAIN = {
    "lengths": None,
    "row_starts": None,
    "skew": 0,
    "gap": 0,
    "with_values": False,
    "order": "any",
    "largest": True,
}


def shrink(case: Case, fails: Callable[[Case], bool], seconds: float = 30.0) -> Case:
    """The smallest case met within ``seconds`` that still ``fails``; ``case`` itself at worst.

    Greedy: the first smaller case that fails is taken, until none does.
    """
    deadline = time.monotonic() + seconds
    while True:
        for candidate in _smaller(case):
            if time.monotonic() > deadline:
                return case
            if fails(candidate):
                case = candidate
                break
        else:
            return case


def _smaller(case: Case) -> Iterator[Case]:
    """Simpler cases, boldest first."""
    for rows in _chunks(case.rows):
        yield _keep_rows(case, rows)
    for columns in _chunks(case.width):
        yield case.replace(scores=np.ascontiguousarray(case.scores[:, columns]))
    for k in dict.fromkeys((0, 1, case.k // 2, case.k - case.k // 8, case.k - 1)):
        if 0 <= k < case.k:
            yield case.replace(k=k)
    for name, plain in _PLAIN.items():
        value = getattr(case, name)
        if value is not None and (plain is None or value != plain):
            yield case.replace(**{name: plain})
    zeros = np.zeros_like(case.scores)
    for columns in _chunks(case.width):
        scores = zeros.copy()
        scores[:, columns] = case.scores[:, columns]
        if (scores != case.scores).any():
            yield case.replace(scores=scores)


def _chunks(count: int) -> Iterator[np.ndarray[tuple[int], np.dtype[np.intp]]]:
    """What is left of ``range(count)`` without a half, without a quarter ... without one."""
    everything = np.arange(count)
    size = count // 2 if count > 1 else count
    while size >= 1 and count // size <= 64:
        for first in range(0, count, size):
            rest = np.delete(everything, np.s_[first : first + size])
            if rest.size:
                yield rest
        size //= 2


def _keep_rows(case: Case, rows: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Case:
    return case.replace(
        scores=case.scores[rows],
        lengths=None if case.lengths is None else case.lengths[rows],
        row_starts=None if case.row_starts is None else case.row_starts[rows],
    )
