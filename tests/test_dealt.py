"""Rows made against the select kernel as it is: its sample, lists, tables, bins and shares."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import dealt
from harness import Target
from reference import Oracle, Order, quantize, widen
from zoo import Rows, matrix

# One of every way to launch: clusters of 2 to 16 with shares in registers or in several steps, and
# rows of one block with each size of list. A cluster's sample has 4096 elements, or half where its
# float32 shares stay in registers: of rows just below twice that it lies as unevenly as it may; so
# short ones are sampled only where an order is asked for.
PROBLEMS = {
    "4 blocks, below twice the sample": (1, 4088, 1024, "float32"),
    "8 blocks, twice the sample": (1, 4096, 512, "float32"),
    "4 blocks": (16, 8184, 1024, "float32"),
    "8 blocks, below four times": (1, 8184, 2048, "float32"),
    "8 blocks": (1, 16_384, 2048, "float32"),
    "16 blocks, 2 loads": (1, 65_536, 2048, "float32"),
    "16 blocks, in steps": (1, 65_544, 2048, "float32"),
    "16 blocks, 4 loads": (1, 131_072, 2048, "float32"),
    "16 blocks, in many steps": (1, 300_000, 512, "float32"),
    "16 blocks, k 4096": (1, 200_000, 4096, "float32"),
    "half, resident": (1, 65_536, 1024, "float16"),
    "bfloat16, in steps": (1, 140_000, 2048, "bfloat16"),
    "one block, resident": (140, 4096, 1024, "float32"),
    "one block, one step": (140, 8184, 512, "float32"),
    "two blocks, below twice the sample": (60, 8200, 512, "bfloat16"),
    "one block, few": (140, 20_000, 64, "bfloat16"),
    "one block, many": (140, 20_000, 2048, "float32"),
    "two blocks, some": (60, 15_000, 2048, "float16"),
    "two blocks, some, in steps": (60, 30_000, 2048, "float16"),
    "128 blocks": (1, 1_100_000, 2048, "float32"),
    "64 blocks": (2, 1_200_000, 512, "bfloat16"),
}
_LONGEST_ON_A_CPU = 400_000  # beyond, only a GPU's kernels have another way
#: Where lengths change what a block loads, and widths how many share a row.
BOUNDARIES = (2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072)


def check(engine: Target, rows: int, k: int, made: Rows) -> None:
    """One by one where the problem is of one row, else all in as many launches as it takes."""
    scores, labels = matrix(made)
    if rows == 1:
        for row, label in zip(scores, labels, strict=True):
            engine.check(Oracle(row, labels=[label]), (k,), ("any", "index", "value"))
        return
    for begin in range(0, len(scores), rows):
        some = scores[begin : begin + rows]
        repeated = np.arange(rows) % len(some)
        oracle = Oracle(some, labels=labels[begin : begin + rows])
        whole = Oracle(some[repeated], labels=[oracle.labels[i] for i in repeated])  # type: ignore[index]
        whole.__dict__["ranked"] = [oracle.ranked[i] for i in repeated]  # each is sorted once
        engine.check(whole, (k,), ("any", "index", "value"))


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
@pytest.mark.parametrize("make", dealt.MAKERS, ids=lambda make: make.__name__)
def test_rows_made_for_the_kernel(
    engine: Target,
    problem: tuple[int, int, int, str],
    make: Callable[[dealt.Deal, np.random.Generator], Rows],
    rng: np.random.Generator,
) -> None:
    rows, width, k, _ = problem
    if engine.device == "cpu" and width > _LONGEST_ON_A_CPU:
        pytest.skip("no other than shorter rows on a CPU")
    check(engine, rows, k, make(dealt.deal(*problem), rng))


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_cuts_lie_where_they_are_said_to(
    problem: tuple[int, int, int, str], rng: np.random.Generator
) -> None:
    given = dealt.deal(*problem)
    _, of_bin = dealt.anchored(given)
    for label, row in dealt.binned(given, rng).items():
        words = label.split()
        if words[1] != "of":
            continue
        wanted, count, cut = (int(words[i]) for i in (0, 2, 5))
        scores = widen(row)
        bins = (scores[scores > 0] / of_bin).astype(np.int64).clip(0, dealt.BINS - 1)
        assert (bins == cut).sum() == count, label
        assert (bins > cut).sum() == given.k - wanted, label


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_lengths_at_staging_boundaries(
    engine: Target, boundary: int, dtype: str, rng: np.random.Generator
) -> None:
    """Rows that fill their loads exactly, by width or by length, aligned and not."""
    width = boundary + 24
    normal = rng.standard_normal(width)
    scores = quantize(np.stack([normal, normal.round(), np.maximum(normal, 0)]), dtype)
    # Of two short ones the first is counted whole by one block, the other shared by several.
    orders: tuple[Order, ...] = ("any", "index") if boundary <= 4096 else ("any",)
    for length in (boundary - 1, boundary, boundary + 1):
        for row in scores:
            engine.check(Oracle(row[:length]), (512, 2048), orders)
        for start in (0, 1, 3, 7, 9):
            starts, lengths = np.full(1, start), np.full(1, length)
            for row in scores[:2]:
                engine.check(Oracle(row, lengths, starts), (2048,), orders)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_short_rows_in_wide_launches(engine: Target, dtype: str, rng: np.random.Generator) -> None:
    """As short as would have stayed in registers, and ending anywhere within a step."""
    width = 16 * 8192 + 1003
    normal = rng.standard_normal(width)
    rows = quantize(np.stack([normal, normal.round(), np.where(normal > 2, normal, 0)]), dtype)
    limit = 16 * 4096
    for length in (2049, 4097, limit - 1, limit, limit + 1, limit + 6, 100_000, width - 64):
        for start in (0, 1, 6):
            given = np.full(3, length), np.full(3, start)
            engine.check(Oracle(rows[:1], *(each[:1] for each in given)), (2048,), ("any",))
            engine.check(Oracle(rows, *given), (512, 2048), ("any", "index", "value"))


@pytest.mark.parametrize("rows", [1, 140])
def test_lengths_near_k(engine: Target, rows: int, rng: np.random.Generator) -> None:
    """The last length at which everything is selected, and the first at which something is not."""
    for width in (4096, 20_000):
        scores = quantize(rng.standard_normal((rows, width)).round(1), "float32")
        for k in (1, 512, 2048):
            for length in (k - 1, k, k + 1, k + 2):
                oracle = Oracle(scores, np.full(rows, length))
                engine.check(oracle, (k,), ("index", "value"))
