"""Every kernel, dtype, scope and fallback at sizes small enough for compute-sanitizer.

    python -m bench.sanitize

runs what is marked `sanitizer` under each of its tools; under racecheck, which takes seconds for a
launch, only what is marked `racecheck` too. Those launch every kernel, on rows that take each of
its ways, and it says of them which kernels they launched. The others are launches as the library
chooses them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest

import tl_topk
from harness import GPU, PIPELINED, GuardedOutput, Target
from indexer_cases import BF16, FP8, FUSED, UNFUSED, Way, contiguous_call, paged_call
from launches import LAUNCHES, Launch
from reference import DTYPES, Oracle, Order, Raw, quantize
from test_exchange import World
from test_mapped import Call, table
from tl_topk import Problem, TopKPlan
from tl_topk.tile.plan import pipelined_plan
from zoo import matrix

pytestmark = [pytest.mark.sanitizer, pytest.mark.patience(1800)]

# Rows, width, k: of every way in which the library deals out rows the smallest. Scopes change with
# the rows and the width, what a block holds with the width, and its list with k; beyond 4096 runs
# the kernel for large k. Of 3001 and 4096 elements a block counts all in free order, clusters share
# them in others.
PROBLEMS = [
    (1, 1, 1),
    (3, 37, 40),
    (1, 2001, 512),
    (1, 3001, 2048),
    (67, 4200, 32),
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


def checked(gpu: Target, plan: TopKPlan, scores: Raw, lengths: list[int] | None = None) -> None:
    """One launch, whose outputs are full of something else and guarded."""
    order: Order = plan.order  # type: ignore[assignment]
    given = None if lengths is None else np.array(lengths, np.int32)
    oracle = Oracle(scores, given, largest=plan.largest)
    out = GuardedOutput(gpu, (plan.rows, plan.k), plan.dtype)
    values, indices = out.pair
    plan.run(gpu.put(scores), indices, values, None if given is None else gpu.put(given))
    out.assert_guards()
    gpu.judge(oracle, plan.k, order, tl_topk.TopK(values, indices))


def shorter(rows: int, width: int, k: int) -> list[int]:
    """Lengths, some of them of rows that are selected as a whole."""
    return [(width - 3, k // 2, width * 2 // 5, 0, width, k)[row % 6] for row in range(rows)]


on_dsmem = pytest.mark.parametrize("gpu", [GPU], indirect=True, ids=str)
every_launch = pytest.mark.parametrize(
    ("launch", "dtype"),
    [pytest.param(each, dtype, id=f"{each}-{dtype}") for each in LAUNCHES for dtype in each.dtypes],
)
#: In turn: whether keys of 4 or 8 bytes are sorted matters to no kernel but by what it holds.
SORTED: dict[str, Order] = {"float32": "value", "float16": "index", "bfloat16": "value"}


@pytest.mark.racecheck
@on_dsmem
@every_launch
def test_kernel(gpu: Target, launch: Launch, dtype: str, rng: np.random.Generator) -> None:
    scores = kinds(launch.width, dtype, rng)[:: 6 // launch.rows]
    rows, width, k = launch.rows, launch.width, launch.k
    for order, largest, lengths in (
        ("any", True, None),
        (SORTED[dtype], False, shorter(rows, width, k)),
    ):
        plan = TopKPlan(
            rows, width, k, dtype, order, largest, device_type="cuda", blocks_per_row=launch.blocks
        )
        checked(gpu, plan, scores, lengths)


@pytest.mark.racecheck
@on_dsmem
@every_launch
def test_mapped_kernel(gpu: Target, launch: Launch, dtype: str, rng: np.random.Generator) -> None:
    scores = kinds(launch.width, dtype, rng)[:: 6 // launch.rows]
    rows, width, k = launch.rows, launch.width, launch.k
    pages = table(rng, rows, -(-width // 16))
    Call(gpu, scores, pages, k, 16, blocks=launch.blocks).check()
    lengths = np.array(shorter(rows, width, k))
    sorted_call = Call(
        gpu, scores, pages, k, 16, SORTED[dtype], row_lengths=lengths, blocks=launch.blocks
    )
    sorted_call.check(lengths=lengths)


@pytest.mark.racecheck
@pytest.mark.parametrize("gpu", [PIPELINED], indirect=True, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("width", "cluster"), [(2001, None), (5001, None), (5001, 1)], ids=["block", "cluster", "grid"]
)
def test_tilelang_kernel(
    gpu: Target, width: int, cluster: int | None, dtype: str, rng: np.random.Generator
) -> None:
    """A block a row, blocks that meet in a cluster, and blocks that meet in global memory."""
    scores = kinds(width, dtype, rng)[::2]
    problem = Problem(3, width, 500, dtype, SORTED[dtype], values=True, device_type="cuda")
    checked(gpu, pipelined_plan(problem, cluster), scores, shorter(3, width, 500))


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


class Exchange(NamedTuple):
    """By ``ranks`` shards, ``width`` elements each.

    What a merge keeps in registers, and what a contribution does, changes with the candidates of
    all ranks: csrc/cuda/exchange_cuda.cu. A ``stride`` of 1 makes samples of all candidates.
    """

    method: str
    ranks: int
    width: int
    k: int
    stride: int = 0


EXCHANGES = {
    "few-parts": Exchange("gather", 3, 100, 32),
    "some-parts": Exchange("gather", 3, 1400, 1400),
    "many-parts": Exchange("gather", 5, 1644, 1644),
    "few-words": Exchange("threshold", 3, 100, 32),
    "many-words": Exchange("threshold", 3, 1400, 4100),
    "many-samples": Exchange("threshold", 3, 1400, 1400, stride=1),
}
#: More parts than are staged in shared memory: another way of the same kernel, by long launches.
UNSTAGED = Exchange("gather", 10, 6000, 6000)


def exchanges() -> Iterator[object]:
    for (name, exchange), dtype in product(EXCHANGES.items(), DTYPES):
        yield pytest.param(exchange, dtype, id=f"{name}-{dtype}", marks=pytest.mark.racecheck)
    yield pytest.param(UNSTAGED, "float16", id="unstaged-parts-float16")


@on_dsmem
@pytest.mark.parametrize(("exchange", "dtype"), list(exchanges()))
def test_exchange(gpu: Target, exchange: Exchange, dtype: str, rng: np.random.Generator) -> None:
    method, ranks, width, k, stride = exchange
    rows = kinds(ranks * width, dtype, rng)[:3]
    world = World(gpu, rows, [width] * ranks, 0, stride)
    for order, largest in (("any", True), (SORTED[dtype], False)):
        world.check(method, k, order, largest, rank=1)


@pytest.mark.racecheck
@pytest.mark.usefixtures("skip_uncompiled")
@pytest.mark.parametrize("dtype", [FP8, BF16], ids=["float8", "bfloat16"])
@pytest.mark.parametrize("way", [FUSED, UNFUSED], ids=str)
def test_scoring_kernel(way: Way, dtype: object, rng: np.random.Generator) -> None:
    paged_call(rng, [130], dtype=dtype).check_selection(way, "any")  # type: ignore[arg-type]


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
