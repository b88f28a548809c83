"""Every kernel, dtype, scope and fallback at sizes small enough for compute-sanitizer.

    python -m bench.sanitize

runs what is marked `sanitizer` under each of its tools, and says which kernels that launched.
"""

from __future__ import annotations

import numpy as np
import pytest

from harness import PIPELINED, Target
from indexer_cases import BF16, FP8, FUSED, UNFUSED, Way, contiguous_call, paged_call
from reference import DTYPES, Oracle, Order, Raw, quantize
from test_exchange import METHODS, World, split
from test_mapped import Call, table
from zoo import matrix

pytestmark = [pytest.mark.sanitizer, pytest.mark.patience(1800)]

# Rows, width, k: of every kind of launch the smallest. Scopes change with the rows and the width,
# what a block holds with the width, and its list with k; beyond 4096 runs the kernel for large k.
PROBLEMS = [
    (1, 1, 1),
    (3, 37, 40),
    (1, 2001, 512),
    (1, 3001, 2048),
    (67, 4200, 32),
    (67, 4200, 2048),
    (67, 8200, 2048),
    (67, 5000, 4500),
    (1, 4099, 1),
    (1, 4096, 2048),
    (1, 5001, 2048),
    (1, 66_001, 32),
    (1, 66_001, 4500),
    (16, 16_500, 4096),
    (33, 16_500, 4096),
    (1, 1_050_001, 2048),
]
LONG = 500_000  # rows so long are few here


def kinds(width: int, dtype: str, rng: np.random.Generator) -> Raw:
    """A row of each kind that takes a path of its own."""
    normal = rng.standard_normal(width)
    some, _ = matrix(
        {
            "normal": quantize(normal, dtype),
            "ties": quantize(normal.round(), dtype),
            "all equal": quantize(np.ones(width), dtype),
            "one bin": quantize(np.where(np.arange(width) % 3, -1e3, 1 + 1e-4 * normal), dtype),
            "NaN": quantize(np.where(normal < 2, np.nan, normal), dtype),
            "a sample that lies": quantize(normal + 50 * (np.arange(width) % 16 == 0), dtype),
        }
    )
    return some


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: f"{p[0]}x{p[1]}-{p[2]}")
def test_selection(
    gpu: Target, problem: tuple[int, int, int], dtype: str, rng: np.random.Generator
) -> None:
    rows, width, k = problem
    some = kinds(width, dtype, rng)[:: 1 if width < LONG else 3]
    if rows == 1:  # one by one: a single row runs in another scope than six
        for row in some:
            gpu.check(Oracle(row), (k,), ("any",))
        orders: tuple[Order, ...] = ("index", "value") if width < LONG else ("value",)
        gpu.check(Oracle(some[1], largest=False), (k,), orders)
        short = np.array([width * 3 // 4])
        gpu.check(Oracle(some[0], short, np.array([1])), (k,), ("any",))
    else:
        scores = some[np.arange(rows) % len(some)]
        gpu.check(Oracle(scores), (k,), ("any",))
        lengths = np.arange(rows) * 977 % (width + 2)
        gpu.check(Oracle(scores, lengths, lengths % 5), (k,), ("value",))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: f"{p[0]}x{p[1]}-{p[2]}")
def test_mapped(
    gpu: Target, problem: tuple[int, int, int], dtype: str, rng: np.random.Generator
) -> None:
    if gpu == PIPELINED:
        pytest.skip("maps with the kernels of dsmem")
    rows, width, k = problem
    some = kinds(width, dtype, rng)
    pages = table(rng, rows, -(-width // 16))
    for first in range(2 if rows == 1 and width < LONG else 1):
        scores = some[(first + np.arange(rows)) % len(some)]
        Call(gpu, scores, pages, k, 16).check()
        lengths = np.arange(1, rows + 1) * 977 % (width + 2)
        call = Call(gpu, scores, pages, k, 16, "value", row_lengths=lengths)
        call.check(lengths=lengths)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("k", [500, 6000])
def test_exchange(gpu: Target, method: str, dtype: str, k: int, rng: np.random.Generator) -> None:
    rows = kinds(7000, dtype, rng)[:3]
    for order, largest in (("any", True), ("value", False)):
        World(gpu, rows, split(7000, 3, rng), 0).check(method, k, order, largest, rank=1)  # type: ignore[arg-type]


@pytest.mark.usefixtures("skip_uncompiled")
@pytest.mark.parametrize("dtype", [FP8, BF16], ids=["float8", "bfloat16"])
@pytest.mark.parametrize("way", [FUSED, UNFUSED], ids=str)
def test_indexer(way: Way, dtype: object, rng: np.random.Generator) -> None:
    paged_call(rng, [700, 1, 0, 64, 130], dtype=dtype).check(way)  # type: ignore[arg-type]
    alone = way is FUSED  # it serves pages, in any order
    paged_call(rng, [3000], dtype=dtype, k=512).check(way, "any" if alone else "value")  # type: ignore[arg-type]
    if not alone:
        ranges = {"starts": [0, 7, 400], "ends": [1, 500, 450]}
        contiguous_call(rng, 3, 500, dtype=dtype, **ranges).check(way)  # type: ignore[arg-type]
