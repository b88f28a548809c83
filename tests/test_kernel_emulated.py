"""The CUDA kernels' answers without a GPU, on the rows that were made against them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import dealt
from kernel_emulator import EmulatedKernels
from reference import DTYPES, ORDERS, Oracle, quantize
from test_native import SOURCES
from zoo import Rows, matrix, special

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not SOURCES, reason="not a checkout: the CUDA sources are not here"),
]

# Rows (which only decide how many blocks share one), width, k, dtype.
PROBLEMS = {
    "2 blocks": (1, 4096, 512, "float32"),
    "2 blocks, 2 loads": (1, 8184, 2048, "float32"),
    "one block, few": (140, 9000, 64, "bfloat16"),
    "one block, many": (140, 9000, 2048, "float32"),
    "one block, some": (140, 9000, 300, "float16"),
}
Build = Callable[[str], EmulatedKernels]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    folder: Path = tmp_path_factory.mktemp("kernels")
    return cache(lambda dtype: EmulatedKernels.build(dtype, folder))


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
@pytest.mark.parametrize("make", dealt.MAKERS, ids=lambda make: make.__name__)
def test_rows_made_for_the_kernel(
    build: Build,
    problem: tuple[int, int, int, str],
    make: Callable[[dealt.Deal, np.random.Generator], Rows],
    rng: np.random.Generator,
) -> None:
    rows, _, k, dtype = problem
    kernels = build(dtype)
    for turn, (label, row) in enumerate(make(dealt.deal(*problem), rng).items()):
        oracle = Oracle(row, labels=[label])
        kernels.check(oracle, k, ORDERS[turn % 3], clusters=rows == 1, values=turn % 2 == 0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_scope(build: Build, dtype: str, rng: np.random.Generator) -> None:
    """Clusters of every size, shares of every kind, and k that is large."""
    kernels = build(dtype)
    for width, k in ((700, 512), (16_384, 2048), (33_001, 512), (70_003, 2048), (9000, 4500)):
        row = quantize(rng.standard_normal(width), dtype)
        tied = quantize(rng.standard_normal(width).round(), dtype)
        kernels.check(Oracle(row), k, "any")
        kernels.check(Oracle(tied, largest=False), k, "value", skew=3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_several_clusters_share_a_row(build: Build, dtype: str, rng: np.random.Generator) -> None:
    """Which meet in global memory; where the sample misleads, and where the row is short."""
    kernels, width = build(dtype), 1_100_001
    normal = rng.standard_normal(width)
    given = dealt.deal(1, width, 2048, dtype)
    lying = np.where(given.first & (given.block % 3 == 0), normal + 100, normal)
    for row in (normal, normal.round(), lying):
        kernels.check(Oracle(quantize(row, dtype)), 2048, "index")
    short = Oracle(quantize(normal, dtype), np.array([60_001]), np.array([5]))
    kernels.check(short, 2048, "value", skew=1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_lengths_starts_and_special_scores(
    build: Build, dtype: str, rng: np.random.Generator
) -> None:
    kernels = build(dtype)
    scores, labels = matrix(special(5000, dtype, rng))
    lengths = rng.integers(-1, 5100, len(scores))
    starts = rng.integers(-3, 40, len(scores))
    for largest in (True, False):
        for clusters in (True, False):
            oracle = Oracle(scores, lengths, starts, largest, labels)
            kernels.check(oracle, 600, ORDERS[1 + clusters], clusters=clusters, skew=1)
            kernels.check(Oracle(scores, None, None, largest, labels), 64, clusters=clusters)


def test_lengths_at_staging_boundaries(build: Build, rng: np.random.Generator) -> None:
    """Shares that fill a block's loads exactly, aligned and not."""
    kernels = build("float32")
    for boundary in (2048, 4096, 8192):
        row = rng.standard_normal(boundary + 9).astype(np.float32)
        for length in (boundary - 1, boundary, boundary + 1):
            for start in (0, 1, 3):
                oracle = Oracle(row, np.array([length]), np.array([start]))
                kernels.check(oracle, 512, clusters=start != 1, skew=start)
                kernels.check(Oracle(row[:length]), 512, "index", skew=start)
