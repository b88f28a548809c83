"""The CUDA kernels' answers without a GPU, on the rows that were made against them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import dealt
import test_dealt
from kernel_emulator import EmulatedKernels
from reference import DTYPES, ORDERS, Oracle, Order, assert_topk, quantize, widen
from test_mapped import expected_slots
from test_native import SOURCES
from zoo import Rows, matrix, special

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not SOURCES, reason="not a checkout: the CUDA sources are not here"),
]

# Rows (which only decide how many blocks share one), width, k, dtype.
PROBLEMS = {
    "8 blocks, twice the sample": (1, 4096, 512, "float32"),
    "8 blocks, below four times the sample": (1, 8184, 2048, "float32"),
    "one block, one step": (140, 8184, 512, "float32"),
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
    _, _, k, dtype = problem
    kernels, given = build(dtype), dealt.deal(*problem)
    for turn, (label, row) in enumerate(make(given, rng).items()):
        oracle = Oracle(row, labels=[label])
        kernels.check(oracle, k, ORDERS[turn % 3], blocks=given.blocks, values=turn % 2 == 0)


@pytest.mark.parametrize("problem", test_dealt.PROBLEMS.values(), ids=test_dealt.PROBLEMS)
def test_rows_are_aimed_at_what_is_sampled(
    build: Build, problem: tuple[int, int, int, str], rng: np.random.Generator
) -> None:
    """By all blocks alike, and by the plan that the launch brings along."""
    rows, width, k, dtype = problem
    kernels, given = build(dtype), dealt.deal(*problem)
    index = np.zeros(1)
    for shift in (0, 8, 16):  # each digit is exact in every dtype
        digit = (np.arange(width) >> shift) % 256
        seen = kernels.watch(quantize(digit.astype(np.float64), dtype), rows, k, given.order)
        index = index + seen.sample * 2.0**shift
    assert len(index) == given.blocks
    np.testing.assert_array_equal(index, np.broadcast_to(index[0], index.shape))
    thread, slot = np.nonzero(~np.isnan(index[0]))
    loaded = index[0, thread, slot].astype(np.int64)
    np.testing.assert_array_equal(np.sort(loaded), np.flatnonzero(given.loaded))
    np.testing.assert_array_equal(given.group[loaded], dealt.group_of(thread, given.groups))
    assert seen.plan == given.plan

    row = quantize(rng.standard_normal(width), dtype)
    best = np.full(given.groups, -np.inf, np.float32)
    sampled = np.flatnonzero(given.sampled)
    np.maximum.at(best, given.group[sampled], widen(row)[sampled])
    for maxima in kernels.watch(row, rows, k, given.order).maxima:
        np.testing.assert_array_equal(maxima[: given.groups], rounded_down(best))

    row, of_bin = dealt.anchored(given)
    floor = 0 if given.plan.has_floor else -np.inf
    for anchors in kernels.watch(quantize(row, dtype), rows, k, given.order).anchors:
        np.testing.assert_allclose(anchors, (floor, 0, of_bin * (dealt.BINS - 1)), rtol=1e-6)


@pytest.mark.parametrize("problem", test_dealt.PROBLEMS.values(), ids=test_dealt.PROBLEMS)
def test_one_block_has_all_of_its_share_in_the_last_bin(
    build: Build, problem: tuple[int, int, int, str]
) -> None:
    """Where counts of all blocks need not fit in half a word, the share is listed all the same."""
    _, _, k, dtype = problem
    given = dealt.deal(*problem)
    blocks = given.blocks if given.blocks <= 16 else 0  # clusters that meet cannot take every k
    row = quantize((given.block == given.blocks // 3).astype(np.float64), dtype)
    for wanted, order in ((1000, "index"), (4096, "index"), (k, "any")):
        build(dtype).check(Oracle(row), min(wanted, given.width), order, blocks=blocks)


@pytest.fixture(scope="module")
def mapping_kernels(tmp_path_factory: pytest.TempPathFactory) -> EmulatedKernels:
    return EmulatedKernels.build("float32", tmp_path_factory.mktemp("mapping"), mapped=True)


@pytest.mark.parametrize("page_size", [1, 64])
@pytest.mark.parametrize("outputs", ["slots", "ragged", "slots ragged indices"])
@pytest.mark.parametrize(("width", "k"), [(3000, 2048), (16_384, 512), (66_000, 2048)])
def test_what_is_written_instead_of_indices(
    mapping_kernels: EmulatedKernels,
    width: int,
    k: int,
    outputs: str,
    page_size: int,
    rng: np.random.Generator,
) -> None:
    """Also where one block has all winners, many more than it is likely to have, where many are
    equal, and where pages are missing or lie beyond the table."""
    row = rng.standard_normal(width).astype(np.float32)
    given = dealt.deal(1, width, k, "float32")
    shared = given.blocks  # several, also where one is chosen
    skewed = np.where(given.block == given.block[0], row + 100, row).astype(np.float32)
    pages = -(-width // page_size)
    table = rng.permutation(pages).astype(np.int32)[np.newaxis]
    table[0, rng.integers(0, pages, pages // 7 + 1)] = -1
    offsets = np.array([-5], np.int32)
    coarse, equal = np.round(row, 1), np.ones_like(row)
    tied = row.copy()  # more than are ranked with one another, in the midst of what is listed
    tied[rng.permutation(width)[: k // 2]] = np.partition(row, -k)[-k]
    columns = pages - pages // 9
    for scores, order, blocks, whole_vectors in (
        (row, "any", shared, True),
        (row, "any", shared, False),
        (skewed, "any", shared, True),
        (skewed, "any", 1, False),
        (coarse, "any", shared, False),
        (coarse, "any", 1, True),
        (equal, "any", shared, True),
        (tied, "any", shared, True),
        (tied, "any", shared, False),
        (row, "value", 0, False),
        (row, "index", 0, True),
        (skewed, "index", 0, False),
    ):
        oracle = Oracle(scores[np.newaxis])
        # Vectors of 16 bytes, in which pages are copied where they all are.
        shown = columns - columns % 4 if whole_vectors else columns - 1 + columns % 2
        part = np.ascontiguousarray(table[:, :shown])
        mapping = (part, page_size, offsets)
        found = mapping_kernels.mapped(oracle.scores, k, order, *mapping, outputs, blocks=blocks)
        best = np.sort(np.argsort(-scores, kind="stable")[:k])[np.newaxis].astype(np.int32)
        wanted = {"slots": expected_slots(best, part, page_size, [0]), "ragged": best - 5}
        if "indices" in found:
            assert_topk(oracle, k, order, found["indices"])
            wanted["slots"] = expected_slots(found["indices"], part, page_size, [0])
            np.testing.assert_array_equal(found["slots"], wanted["slots"])
            np.testing.assert_array_equal(found["ragged"], found["indices"] - 5)
        for name in set(found) - {"indices"}:
            np.testing.assert_array_equal(np.sort(found[name]), np.sort(wanted[name]))


@pytest.mark.parametrize("outputs", ["slots", "ragged", "slots ragged"])
@pytest.mark.parametrize("offset_type", [np.int32, np.int64])
@pytest.mark.parametrize("width", [5000, 5120])  # 5120: the table's rows are whole vectors
@pytest.mark.parametrize("rows", [4, 5])
def test_rows_of_requests(
    mapping_kernels: EmulatedKernels,
    rows: int,
    width: int,
    outputs: str,
    offset_type: type[np.int32] | type[np.int64],
    rng: np.random.Generator,
) -> None:
    """Two rows a request; the fifth row has none. Offsets of which only the low word counts."""
    k, page_size = 700, 16
    scores = rng.standard_normal((rows, width)).astype(np.float32)
    table = rng.permutation(2 * -(-width // page_size)).astype(np.int32).reshape(2, -1)
    offsets = np.array([0, -1, 2**31 - 100, -(2**31), 17]).astype(offset_type)[:rows]
    if offset_type is np.int64:
        offsets += np.array([0, 2**32, -(2**33), 2**40, 0])[:rows]
    found = mapping_kernels.mapped(scores, k, "any", table, page_size, offsets, outputs, next_n=2)
    best = np.sort(np.argsort(-scores, axis=1, kind="stable")[:, :k]).astype(np.int32)
    wanted = {
        "slots": expected_slots(best, table, page_size, [0, 0, 1, 1, 2][:rows]),
        "ragged": (best.astype(np.int64) + offsets[:, np.newaxis]).astype(np.int32),
    }
    for name, words in found.items():
        np.testing.assert_array_equal(np.sort(words), np.sort(wanted[name]))


def rounded_down(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Without the eight bits of their keys that make room for a group's number and a sign."""
    bits = x.view(np.uint32)
    rounded = np.where(x < 0, bits | 255, bits & ~np.uint32(255)).view(np.float32)
    return np.where(np.isinf(x), x, rounded)


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
@pytest.mark.parametrize("blocks", [1, 2, 4, 8, 16])
def test_order_of_index(build: Build, blocks: int, dtype: str, rng: np.random.Generator) -> None:
    """Winners all over the row or all of one block's part of it, and likewise the elements of the
    cut's bin, of which any number wins."""
    kernels, k, part = build(dtype), 600, 1024
    width = blocks * part - 13

    def some(spread: bool) -> NDArray[np.intp]:
        first = 0 if spread else rng.integers(blocks) * part
        return rng.permutation(np.arange(first, width if spread else min(first + part, width)))

    for turn, inside in enumerate((1, 2, 37, 64, 65, 128, 129, 256, 257)):
        wanted = rng.integers(1, inside + 1)
        row = rng.uniform(-4, -1, width)
        best = some(turn % 2 == 0)[: k - wanted]
        others = np.setdiff1d(some(turn % 4 < 2), best)
        row[rng.permutation(others)[:inside]] = 5
        row[best] = rng.uniform(10, 20, len(best))
        oracle = Oracle(quantize(row, dtype))
        kernels.check(oracle, k, "index", blocks=blocks, skew=turn % 3, values=turn % 2 == 1)

    # Nearly all of the row wins, and a part of a longer one.
    many = 250 * blocks
    row = quantize(rng.standard_normal(many + 3 + 70), dtype)
    kernels.check(Oracle(row[: many + 3]), many, "index", blocks=blocks)
    shorter = Oracle(row, np.array([many + 5]), np.array([41]), largest=False)
    kernels.check(shorter, many // 2, "index", blocks=blocks)


def test_several_clusters_share_a_row(build: Build, rng: np.random.Generator) -> None:
    """Which meet in global memory; where the sample misleads, and where the row is short."""
    kernels, width = build("float32"), 1_100_001
    normal = rng.standard_normal(width).astype(np.float32)
    given = dealt.deal(1, width, 2048, "float32")
    assert given.blocks > 16
    lying = np.where(given.loaded & (given.group % 3 == 0), normal + 100, normal)
    for row in (normal, normal.round(), lying):
        kernels.check(Oracle(row.astype(np.float32)), 2048, "index")
    short = Oracle(normal, np.array([60_001]), np.array([5]))
    kernels.check(short, 2048, "value", skew=1)


@pytest.mark.parametrize(
    ("dtype", "order", "blocks"),
    [
        ("float32", "any", 64),
        ("float32", "index", 32),
        ("float32", "value", 32),
        ("float16", "index", 32),
        ("bfloat16", "any", 32),
    ],
)
def test_a_cluster_takes_over_the_lists_of_others(
    build: Build, dtype: str, order: Order, blocks: int, rng: np.random.Generator
) -> None:
    """Also lists of which it reads more than at first, those of few blocks, and such as overflow;
    where very many crowd into a bin; rows of other lengths; and with nothing above the floor."""
    kernels, width, k = build(dtype), 40_001, 1500
    normal = rng.standard_normal(width)
    chunk = np.arange(width) // 128 % blocks  # some blocks have much of a chunk
    crowded = np.where(rng.random(width) < 0.06, 3 + 1e-3 * normal, normal)
    for row in (normal, normal + 9 * (chunk == 5), normal + 9 * (chunk < 2), crowded, 0 * normal):
        kernels.check(Oracle(quantize(row, dtype)), k, order, blocks=blocks)
    two = quantize(np.stack([normal, crowded]), dtype)
    lengths, starts = np.array([width - 9, 19_000]), np.array([3, 5])
    kernels.check(Oracle(two, lengths, starts), k, order, blocks=blocks, skew=1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_lengths_starts_and_special_scores(
    build: Build, dtype: str, rng: np.random.Generator
) -> None:
    kernels = build(dtype)
    scores, labels = matrix(special(5000, dtype, rng))
    lengths = rng.integers(-1, 5100, len(scores))
    starts = rng.integers(-3, 40, len(scores))
    for largest in (True, False):
        for blocks, order in ((0, "value"), (1, "index"), (4, "index")):
            oracle = Oracle(scores, lengths, starts, largest, labels)
            kernels.check(oracle, 600, order, blocks=blocks, skew=1)
            kernels.check(Oracle(scores, None, None, largest, labels), 64, blocks=blocks)


def test_lengths_at_staging_boundaries(build: Build, rng: np.random.Generator) -> None:
    """Shares that fill a block's loads exactly, aligned and not."""
    kernels = build("float32")
    for boundary in (2048, 4096, 8192):
        row = rng.standard_normal(boundary + 9).astype(np.float32)
        shared = dealt.deal(1, boundary + 9, 512, "float32").blocks  # several, also of the shortest
        for length in (boundary - 1, boundary, boundary + 1):
            for start in (0, 1, 3):
                oracle = Oracle(row, np.array([length]), np.array([start]))
                kernels.check(oracle, 512, blocks=1 if start == 1 else shared, skew=start)
                kernels.check(Oracle(row[:length]), 512, "index", skew=start)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_lies_behind_a_row_is_masked(build: Build, dtype: str) -> None:
    """In the vector that holds its end, however far that is, and in no other."""
    kernels, per_vector = build(dtype), 4 if dtype == "float32" else 8
    for length in (1, 5, 100, 2**26 + 3, 2**27, 2**28 + 1, 2**31 - 1):
        for misaligned in (0, per_vector - 1):
            last = (length + misaligned - 1) // per_vector
            for vector in {0, 1, last // 2, max(last - 1, 0), last, last + 1, last + 70_000}:
                index = vector * per_vector - misaligned + np.arange(per_vector)
                masked = kernels.mask(length, misaligned, vector)
                np.testing.assert_array_equal(masked, (index >= length) & (vector == last))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ORDERS)
def test_short_rows_in_wide_launches(
    build: Build, order: Order, dtype: str, rng: np.random.Generator
) -> None:
    """Shares of the width go through a queue of steps, those of the rows also fit registers, or end
    anywhere within a step."""
    kernels, width, blocks = build(dtype), 2 * 8192 + 1003, 2
    normal = rng.standard_normal(width)
    tied = np.where(rng.random(width) < 0.1, normal, 0)
    in_registers = blocks * 4096
    lengths = [601, 602, *(in_registers + d for d in (-1, 0, 1, 5)), 12_000, width - 64, width - 1]
    for turn, length in enumerate(lengths):
        row = quantize(tied if turn % 3 == 1 else normal, dtype)
        start = (0, 1, 6)[turn % 3] if length + 6 < width else 0
        for first in {0, start}:
            oracle = Oracle(row, np.array([length]), np.array([first]), largest=turn % 2 == 0)
            kernels.check(oracle, 600, order, blocks=blocks, skew=turn % 4)
