"""How the scores of a row may be distributed: the ordinary, and what has broken selections.

A family draws one row of float32. What it means to break is said beside it; the bits are cut to
the case's dtype afterwards, which adds ties of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.random import Generator

__all__ = ["FAMILIES"]

Row: TypeAlias = Any  # float32 (n,); NumPy's ufuncs return Any
Family: TypeAlias = Callable[[Generator, int], Row]

_INF = np.float32(np.inf)
_NAN = np.float32(np.nan)
_MAX = np.finfo(np.float32).max
# A kernel that samples a row reads it at a stride near length / this.
_SAMPLES = 4096


def _normal(rng: Generator, n: int) -> Row:
    scale = np.float32(10.0 ** rng.integers(-6, 7))
    return rng.standard_normal(n, np.float32) * scale + np.float32(rng.normal()) * scale


def _indexer(rng: Generator, n: int) -> Row:
    """Weighted sums of ReLU, as the indexers of sparse attention make them."""
    heads = int(rng.integers(1, 9))
    products = np.maximum(rng.standard_normal((heads, n), np.float32), 0)
    return (rng.standard_normal(heads, np.float32) @ products).astype(np.float32)


def _bit_patterns(rng: Generator, n: int) -> Row:
    """Every kind of float, most of them huge, tiny or NaN."""
    return rng.integers(0, 2**32, n, np.uint32).view(np.float32)


def _all_equal(rng: Generator, n: int) -> Row:
    """One bin holds the row: only the index decides."""
    return np.full(n, rng.choice([0.0, -0.0, 1.0, -2.5, np.inf, -np.inf]), np.float32)


def _few_values(rng: Generator, n: int) -> Row:
    return rng.integers(0, int(rng.integers(2, 70)), n).astype(np.float32) / np.float32(64)


def _signed_zeros(rng: Generator, n: int) -> Row:
    """+0 equals -0, though their bits differ."""
    return rng.choice(np.array([0.0, -0.0, 1e-45, -1e-45], np.float32), n)


def _sawtooth(rng: Generator, n: int) -> Row:
    period = int(rng.integers(1, 200))
    return (np.arange(n) % period).astype(np.float32) / np.float32(period)


def _in_step(rng: Generator, n: int) -> Row:
    """Periodic in step with a strided sample, which then sees one value only."""
    stride = max(1, n // _SAMPLES + int(rng.integers(-1, 2)))
    return (np.arange(n) % stride).astype(np.float32) + rng.random(n, np.float32) * np.float32(0.5)


def _sample_lies(rng: Generator, n: int) -> Row:
    """What a strided sample sees lies far above or far below everything else."""
    row = rng.standard_normal(n, np.float32)
    stride = max(1, n // _SAMPLES)
    row[:: max(1, stride)] += np.float32(rng.choice([-100.0, 100.0]))
    return row


def _sorted(rng: Generator, n: int) -> Row:
    row = np.sort(_normal(rng, n))
    return row if rng.random() < 0.5 else row[::-1].copy()


def _monotonic_steps(rng: Generator, n: int) -> Row:
    row = (np.arange(n) // int(rng.integers(1, 300))).astype(np.float32)
    return row if rng.random() < 0.5 else -row


def _outliers(rng: Generator, n: int) -> Row:
    """A map from minimum to maximum would put all the rest into one bin."""
    row = rng.standard_normal(n, np.float32)
    at = rng.integers(0, n, int(rng.integers(1, 4)))
    row[at] = rng.choice(np.array([1e30, -1e30, _MAX, -_MAX, _INF, -_INF], np.float32), at.size)
    return row


def _one_binade(rng: Generator, n: int) -> Row:
    """Thousands of distinct values within one bin of a map by exponent."""
    return np.float32(1) + rng.random(n, np.float32) * np.float32(0.245)


def _neighbours(rng: Generator, n: int) -> Row:
    """Values a few ulps apart: every bin edge is met from both sides."""
    centre = np.float32(rng.normal()).view(np.uint32)
    return (centre + rng.integers(0, 64, n, np.uint32)).astype(np.uint32).view(np.float32)


def _spikes(rng: Generator, n: int) -> Row:
    """A few winners over a plateau of exact zeros."""
    row = np.zeros(n, np.float32)
    row[rng.random(n) < rng.choice([0.001, 0.01, 0.1])] = 1
    return row * rng.random(n, np.float32)


def _relu(rng: Generator, n: int) -> Row:
    return np.maximum(_normal(rng, n), np.float32(0))


def _nans(rng: Generator, n: int) -> Row:
    row = _normal(rng, n)
    row[rng.random(n) < rng.choice([0.01, 0.5, 0.99, 1.0])] = _NAN
    return row


def _infinities(rng: Generator, n: int) -> Row:
    row = _normal(rng, n)
    row[rng.random(n) < rng.choice([0.01, 0.5, 1.0])] = _INF
    row[rng.random(n) < rng.choice([0.01, 0.5])] = -_INF
    return row


def _extremes(rng: Generator, n: int) -> Row:
    """Denormals and values that float16 cannot hold."""
    exponent = rng.choice([-44.0, -40.0, -38.0, 4.5, 5.0, 30.0, 38.0], n)
    sign = rng.choice([-1.0, 1.0], n)
    return (sign * rng.random(n) * 10.0**exponent).astype(np.float32)


def _ties_at_the_threshold(rng: Generator, n: int) -> Row:
    """Many scores equal the k-th best, whatever k: a third of the row is one value."""
    row = rng.standard_normal(n, np.float32)
    row[rng.random(n) < 1 / 3] = np.float32(rng.normal())
    return row


FAMILIES: dict[str, Family] = {
    "normal": _normal,
    "indexer": _indexer,
    "bit patterns": _bit_patterns,
    "all equal": _all_equal,
    "few values": _few_values,
    "signed zeros": _signed_zeros,
    "sawtooth": _sawtooth,
    "in step": _in_step,
    "sample lies": _sample_lies,
    "sorted": _sorted,
    "monotonic steps": _monotonic_steps,
    "outliers": _outliers,
    "one binade": _one_binade,
    "neighbours": _neighbours,
    "spikes": _spikes,
    "relu": _relu,
    "nans": _nans,
    "infinities": _infinities,
    "extremes": _extremes,
    "ties at the threshold": _ties_at_the_threshold,
}
