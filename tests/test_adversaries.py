"""Rows made against selectors that sample, bin by a linear map, stage survivors and count ties."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from harness import Target
from reference import DTYPES, Oracle, quantize
from zoo import (
    Rows,
    clusters,
    crowds,
    lying_samples,
    matrix,
    ordinary,
    outliers,
    periodic,
    plateaus,
    special,
    ties,
    ulps_above,
)

REAL_SCORES = Path(__file__).parent / "data" / "scores_64k.npy"
WIDTHS = (3000, 4097, 16_384, 40_001)


def check(
    engine: Target, rows: Rows, ks: tuple[int, ...], largest: tuple[bool, ...] = (True, False)
) -> None:
    scores, labels = matrix(rows)
    placed = engine.put(scores)
    for way in largest:
        engine.check(Oracle(scores, largest=way, labels=labels), ks, ("index",), placed)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("make", [ordinary, special, outliers, crowds, periodic])
def test_distributions(
    engine: Target,
    dtype: str,
    make: Callable[[int, str, np.random.Generator], Rows],
    rng: np.random.Generator,
) -> None:
    for width in WIDTHS:
        check(engine, make(width, dtype, rng), (1, 512, 2048))


@pytest.mark.parametrize("dtype", DTYPES)
def test_real_scores(engine: Target, dtype: str) -> None:
    """Rows of a real model's indexer, as they are and with the plateau that a ReLU leaves."""
    real = np.load(REAL_SCORES).astype(np.float64)
    shifted = np.maximum(real - np.median(real), 0)
    scores = quantize(np.concatenate([real, shifted, real[:, ::-1]]), dtype)
    placed = engine.put(scores)
    for largest in (True, False):
        engine.check(Oracle(scores, largest=largest), (512, 1024, 2048), ("index",), placed)


@pytest.mark.parametrize("width", WIDTHS)
def test_samples_that_lie(engine: Target, width: int, rng: np.random.Generator) -> None:
    for dtype in DTYPES if width < 20_000 else ("float32",):
        check(engine, lying_samples(width, dtype, rng), (512, 2048))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [1, 33, 512, 2048, 4096])
def test_ties_across_the_boundary(
    engine: Target, dtype: str, k: int, rng: np.random.Generator
) -> None:
    for width in (2049, 16_385):
        check(engine, ties(width, k, dtype, rng), (k, k + 1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [33, 512, 2048])
def test_plateaus_of_exact_zeros(
    engine: Target, dtype: str, k: int, rng: np.random.Generator
) -> None:
    for width in (5000, 16_384, 66_000):
        check(engine, plateaus(width, k, dtype, rng), (k,))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [33, 512, 2048])
def test_survivors_in_one_place(
    engine: Target, dtype: str, k: int, rng: np.random.Generator
) -> None:
    for width in (5000, 16_384, 66_000):
        check(engine, clusters(width, k, dtype, rng), (k,))


@pytest.mark.parametrize("survivors", [511, 512, 513, 2047, 2049, 4095, 4096, 4097, 8192, 16_385])
def test_survivors_that_fill_a_buffer(
    engine: Target, survivors: int, rng: np.random.Generator
) -> None:
    """Exactly so many elements stand out, spread evenly, in a chunk, or equal to one another."""
    width = 60_000
    low = rng.standard_normal(width).astype(np.float32)
    rows: Rows = {}
    for name, where in (
        ("scattered", rng.choice(width, survivors, replace=False)),
        ("in a chunk", 12_345 + np.arange(survivors)),
        ("evenly spread", np.arange(survivors) * (width // survivors)),
    ):
        for kind, height in (
            ("spread", 50 + rng.standard_normal(survivors)),
            ("equal", np.full(survivors, 50.0)),
            ("two steps apart", ulps_above(50, rng.integers(0, 2, survivors), "float32")),
        ):
            rows[f"{survivors} {name}, {kind}"] = low.copy()
            rows[f"{survivors} {name}, {kind}"][where] = height
    check(engine, rows, (512, 2048, survivors), (True,))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_step_around_the_threshold(
    engine: Target, dtype: str, rng: np.random.Generator
) -> None:
    """The k-th value and its neighbours, one step away, at every power of two and zero."""
    rows: Rows = {}
    for exponent in range(-12, 13, 3):
        for offset in (-1, 0, 1):
            steps = rng.choice([-1, 0, 1], 10_000, p=[0.8, 0.1, 0.1]) + offset
            rows[f"2^{exponent}, {offset:+d} steps"] = ulps_above(2.0**exponent, steps, dtype)
    steps = rng.choice([0, 1], 10_000, p=[0.9, 0.1])
    rows["zero and the smallest denormal"] = ulps_above(0.0, steps, dtype)
    check(engine, rows, (512, 1000, 2048))


def test_bin_edges(engine: Target, rng: np.random.Generator) -> None:
    """An affine map's edges lie at multiples of range / bins: land on them, and one step aside."""
    rows: Rows = {}
    for bins in (128, 255, 256, 512, 1024, 2048, 4096):
        edges = (1 + np.arange(bins) / bins).astype(np.float32)
        near = np.concatenate([edges, np.nextafter(edges, np.float32(0)), np.nextafter(edges, 9)])
        rows[f"edges of {bins} bins"] = rng.choice(near, 20_000)
        rows[f"edges of {bins} bins, wide"] = rng.choice(near, 20_000) * np.float32(3e30)
        rows[f"edges of {bins} bins, tiny"] = rng.choice(near, 20_000) * np.float32(2e-38)
    check(engine, rows, (512, 2048))


@pytest.mark.parametrize("size", [512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536])
def test_lengths_near_powers_of_two(engine: Target, size: int, rng: np.random.Generator) -> None:
    for width in range(size - 2, size + 3):
        rows = ordinary(width, "float32", rng) if size < 5000 else {}
        rows["normal"] = rng.standard_normal(width).astype(np.float32)
        rows["the best is the last"] = np.arange(width, dtype=np.float32)
        rows["few values"] = rng.integers(0, 5, width).astype(np.float32)
        check(engine, rows, (512, size - 1, size) if size <= 4096 else (512, 2048), (True,))
