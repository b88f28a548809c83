"""The contract as slow, obvious NumPy: every score of a row is sorted, then the best are taken."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

__all__ = ["best_of_row", "padding_bits", "row_bounds", "widen"]

Ndarray: TypeAlias = "np.ndarray[Any, Any]"


def widen(bits: Ndarray, dtype: str) -> Ndarray:
    """Scores as float64, which holds each of the three dtypes exactly."""
    if dtype == "bfloat16":
        bits, dtype = bits.astype(np.uint32) << 16, "float32"
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return bits.view(dtype).astype(np.float64)


def row_bounds(width: int, start: int, length: int) -> tuple[int, int]:
    """The half-open range of columns that a row covers; Python's integers cannot overflow."""
    first = min(max(start, 0), width)
    return first, min(first + max(length, 0), width)


def best_of_row(scores: Ndarray, k: int, largest: bool) -> Ndarray:
    """Positions of the best ``k``, best first: numbers before NaN, better values, lower index."""
    is_nan = np.isnan(scores)
    ascending = np.where(is_nan, 0.0, -scores if largest else scores)
    # lexsort's last key counts most, and it is stable: ties stay in order of index.
    return np.lexsort((ascending, is_nan))[:k].astype(np.int32)


def padding_bits(dtype: str, largest: bool) -> int:
    """The bits of -inf, or of +inf when the smallest are selected."""
    positive = {"float32": 0x7F800000, "float16": 0x7C00, "bfloat16": 0x7F80}[dtype]
    sign = 1 << (31 if dtype == "float32" else 15)
    return positive | sign if largest else positive
