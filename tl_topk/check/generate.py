"""From a seed to a case: the same one on every machine."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.random import Generator

from tl_topk.check.case import Case
from tl_topk.check.families import FAMILIES
from tl_topk.problem import ORDERS

__all__ = ["LANDMARK_KS", "LANDMARK_WIDTHS", "make_case", "near"]

Ndarray: TypeAlias = "np.ndarray[Any, Any]"

# Elements of one case: more would spend the time on few cases, as the reference sorts them all.
_MAX_ELEMENTS = 2**19
_NARROW, _WIDE = 2**9, 2**18
_MANY = 2**8  # rows

# Where kernels change their ways: widths of blocks, clusters and buffers, and sizes of k.
LANDMARK_WIDTHS = (32, 128, 1024, 4096, 8192, 16384, 32768, 65536, 131072, 262144)
LANDMARK_KS = (1, 2, 32, 64, 256, 512, 1000, 1024, 2048, 4096)


def make_case(seed: int, dtypes: tuple[str, ...]) -> Case:
    """The case of ``seed``, its dtype one of ``dtypes``."""
    rng = np.random.default_rng(seed)
    width = _width(rng)
    rows = min(_rows(rng), _MAX_ELEMENTS // (width + 1))
    family = str(rng.choice(list(FAMILIES)))
    dtype = str(rng.choice(dtypes))
    scores = np.zeros((rows, width), np.float32)
    for row in range(rows if width else 0):
        scores[row] = FAMILIES[family](rng, width)
    return Case(
        seed=seed,
        family=family,
        dtype=dtype,
        scores=_narrowed(scores, dtype),
        k=_k(rng, width),
        order=str(rng.choice(ORDERS)),
        largest=bool(rng.random() < 0.7),
        with_values=bool(rng.random() < 0.7),
        lengths=_extents(rng, rows, width) if rng.random() < 0.6 else None,
        row_starts=_extents(rng, rows, width) if rng.random() < 0.3 else None,
        skew=int(rng.integers(0, 9)) if rng.random() < 0.5 else 0,
        gap=int(rng.integers(0, 9)) if rng.random() < 0.5 else 0,
    )


def near(rng: Generator, landmark: int) -> int:
    """A number close to ``landmark``, not below 0."""
    return max(0, landmark + int(rng.integers(-2, 3)))


def _rows(rng: Generator) -> int:
    return 0 if rng.random() < 0.02 else int(2 ** rng.uniform(0, np.log2(_MANY)))


def _width(rng: Generator) -> int:
    kind = rng.random()
    if kind < 0.4:
        return 0 if kind < 0.01 else int(rng.integers(1, _NARROW))
    if kind < 0.6:
        return near(rng, int(rng.choice(LANDMARK_WIDTHS)))
    return int(2 ** rng.uniform(np.log2(_NARROW), np.log2(_WIDE)))


def _k(rng: Generator, width: int) -> int:
    kind = rng.random()
    if kind < 0.5:
        return near(rng, int(rng.choice(LANDMARK_KS)))
    if kind < 0.6:
        return near(rng, width)
    return int(rng.integers(0, min(width, 2 * max(LANDMARK_KS)) + 2))


def _extents(rng: Generator, rows: int, width: int) -> Ndarray:
    """Lengths or starts: inside, at the landmarks, and beyond both ends."""
    kinds = np.array([
        rng.integers(0, width + 1, rows),
        rng.choice(LANDMARK_WIDTHS, rows) + rng.integers(-1, 2, rows),
        width + rng.integers(-2, 3, rows),
        rng.integers(-4, 5, rows),
    ])  # fmt: skip
    extents = kinds[rng.integers(0, len(kinds), rows), np.arange(rows)]
    if rng.random() < 0.5:
        return extents.astype(np.int32)
    extremes = rng.choice([np.iinfo(np.int64).min, -(2**40), 2**40, np.iinfo(np.int64).max], rows)
    return np.where(rng.random(rows) < 0.1, extremes, extents).astype(np.int64)


def _narrowed(scores: Ndarray, dtype: str) -> Ndarray:
    if dtype == "float16":
        with np.errstate(over="ignore"):
            return scores.astype(np.float16).view(np.uint16)
    if dtype == "bfloat16":
        return (scores.view(np.uint32) >> 16).astype(np.uint16)
    return scores.view(np.uint32)
