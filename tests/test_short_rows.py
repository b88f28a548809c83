"""Rows of up to 4096 elements, in free order: one block of a GPU counts all of a row.

That kernel (csrc/cuda/short_row.cuh) spreads the elements over 1024 bins between the extremes of a
sample, which two lanes of each warp see, and ranks what shares a bin with the k-th. Where that is
more than 256 elements, rounds follow (short_rounds.cuh): each spreads those in question by their
keys, and equal ones by their indices. Rows here are made against it, and are right questions to any
other backend too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import tl_topk
from harness import Target
from kernel_emulator import EmulatedKernels
from reference import DTYPES, PATTERN, Oracle, Raw, assert_topk, from_bits, quantize, widen
from test_mapped import Call, expected_slots, mapping, table
from test_native import SOURCES
from zoo import Rows, crowds, matrix, ordinary, outliers, special, ties, ulps_above

WIDTHS = (1, 2, 31, 513, 2047, 2048, 2049, 3000, 4095, 4096)
SHAPES = ((4096, 1000), (2048, 700), (3000, 1024))  # that rows are made for: width, k
BINS, RANKED = 1024, 256  # elements of a bin that are ranked by pairs, at the most
LARGEST = {"float32": 3.4028234e38, "float16": 65504.0, "bfloat16": 3.3895e38}
#: Steps from a crowd to what lies beside it, in one bin with it until a round has the next of them.
NESTED = {"float32": (1 << 20, 1 << 10), "float16": (1 << 7,), "bfloat16": (1 << 4,)}


class Launch(NamedTuple):
    """Rows selected from at once, which begin so many elements behind a boundary of 16 bytes."""

    oracle: Oracle
    k: int
    skew: int = 0


Build = Callable[..., EmulatedKernels]
Problems = Callable[[str, np.random.Generator], Iterator[Launch]]


def sampled(width: int, dtype: str) -> NDArray[np.bool_]:
    """Of each element of an aligned row: is it seen by lane 0 or 16 of a warp?"""
    vector = np.arange(width) // (4 if dtype == "float32" else 8)
    return np.asarray(vector % 16 == 0)


def lying(width: int, dtype: str, rng: np.random.Generator) -> Rows:
    """The sample is of another kind than the rest: all of it, all but it, or one element."""
    normal, seen = rng.standard_normal(width), sampled(width, dtype)
    ends = LARGEST[dtype] * rng.choice([-1, 1], width)
    kinds: dict[str, float | NDArray[np.float64]] = {
        **{"+inf": np.inf, "-inf": -np.inf, "NaN": np.nan, "zero": 0.0, "-0": -0.0},
        **{"high": normal + 1000, "low": normal - 1000, "in one bin": 0.5 + 1e-5 * normal},
        **{"the ends of the range": ends, "one end": LARGEST[dtype], "infinite": np.inf * ends},
    }
    rows = {}
    one, other = np.zeros((2, width), bool)
    one[np.flatnonzero(seen)[-1]] = other[np.flatnonzero(~seen)[-1]] = True
    for name, values in kinds.items():
        rows[f"what is sampled is {name}"] = np.where(seen, values, normal)
        rows[f"what is not is {name}"] = np.where(seen, normal, values)
        rows[f"one that is sampled is {name}"] = np.where(one, values, normal)
        rows[f"one that is not is {name}"] = np.where(other, values, normal)
    return {name: quantize(row, dtype) for name, row in rows.items()}


def binned(width: int, k: int, dtype: str, rng: np.random.Generator) -> Rows:
    """So many are in the cut's bin, at first or in the second round.

    The sample goes from 0 to 1023, so that bins are about the integers, or to the largest number.
    """
    seen = sampled(width, dtype)
    first, places = np.flatnonzero(seen)[0], rng.permutation(np.flatnonzero(~seen))
    rows: Rows = {}
    for count in (RANKED - 1, RANKED, RANKED + 1):
        for wanted in (1, count // 2, count):
            inside, above = places[:count], places[count : count + k - wanted - 1]
            row = np.where(seen, 0.0, rng.uniform(-3, 1.2, width))
            row[inside] = 3 + rng.uniform(-0.3, 0.3, count)
            row[above] = rng.uniform(5, 1200, len(above))
            row[first] = BINS - 1
            rows[f"{wanted} of {count} in a bin"] = quantize(row, dtype)
            steps = np.zeros(width, np.int64)
            steps[inside], steps[above] = 1, 2
            row = np.where(seen, 0.0, widen(ulps_above(1.25, steps, dtype)))
            row[first] = LARGEST[dtype]
            rows[f"{wanted} of {count} ties"] = quantize(row, dtype)
    return rows


def nested(width: int, dtype: str, rng: np.random.Generator) -> Rows:
    """A crowd of four scores, few beside it, fewer far away: every round leaves most in one bin."""
    steps, places, few = rng.integers(0, 4, width), rng.permutation(width), width // 64
    for turn, away in enumerate(NESTED[dtype]):
        some = places[turn * few : (turn + 1) * few]
        steps[some] = (away + rng.integers(0, 4, few)) * rng.choice([-1, 1], few)
    row = ulps_above(1.25, steps, dtype)
    row[places[-2:]] = quantize(LARGEST[dtype] * np.array([-1, 1]), dtype)
    halves = np.where(places < 9, LARGEST[dtype] / 4, np.where(rng.random(width) < 0.5, 1, 1.25))
    return {"nested crowds": row, "two crowds and outliers": quantize(halves, dtype)}


def masked(width: int, k: int, dtype: str, rng: np.random.Generator) -> Rows:
    """So many are what they are; the others are the least number there is, -inf or NaN."""
    normal, order = rng.standard_normal(width), rng.permutation(width)
    kinds = {"the least": -LARGEST[dtype], "-inf": -np.inf, "NaN": np.nan, "+inf": np.inf}
    return {
        f"{left} are left, the others {name}": quantize(np.where(order < left, normal, mask), dtype)
        for left in sorted({0, k - 1, k, k + 1, width // 2})
        for name, mask in kinds.items()
    }


def of_every_size(dtype: str, rng: np.random.Generator) -> Iterator[Launch]:
    for width in WIDTHS:
        rows = ordinary(width, dtype, rng) | special(width, dtype, rng)
        scores, labels = matrix(rows | outliers(width, dtype, rng))
        ks = {1, 2, 31, 512, max(width - 1, 1), width, min(width + 5, 4096)}
        for turn, k in enumerate(sorted(ks)):
            some = slice(turn % 3, None, 3)
            largest = (turn + width) % 2 == 0
            yield Launch(Oracle(scores[some], None, None, largest, labels[some]), k, turn)


def made_against_it(dtype: str, rng: np.random.Generator) -> Iterator[Launch]:
    """By the sample, the fullest bin that is ranked by pairs, rounds, and what is no number."""
    for width, k in SHAPES:
        rows = lying(width, dtype, rng) | binned(width, k, dtype, rng) | nested(width, dtype, rng)
        rows |= masked(width, k, dtype, rng) | crowds(width, dtype, rng)
        scores, labels = matrix(rows)
        yield Launch(Oracle(scores, labels=labels), k)
        yield Launch(Oracle(scores[::3], largest=False, labels=labels[::3]), k)
    for k in (1, 31, 2048):
        scores, labels = matrix(nested(4096, dtype, rng) | ties(4096, k, dtype, rng))
        yield Launch(Oracle(scores[::2], largest=k != 31, labels=labels[::2]), k)


def of_any_place(dtype: str, rng: np.random.Generator) -> Iterator[Launch]:
    """Rows that begin and end anywhere in a vector, or take one more than there are threads."""
    per_vector = 4 if dtype == "float32" else 8
    for width in (2048, 4096):
        normal = rng.standard_normal((2, width))
        for skew in range(1, per_vector):
            rows = np.stack([normal[0], normal[1].round(), np.full(width, skew)])
            yield Launch(Oracle(quantize(rows, dtype)), 512, skew)
    for k in (1, 512):
        near = [0, 1, k - 1, k, k + 1, 1000, 2047, 2048, 2049, 4000, 4095, 4096, 5000, -1]
        starts = np.repeat([0, 1, 3, 90], len(near))
        rows = rng.standard_normal((len(starts), 4096))
        rows[::3] = rows[::3].round()
        rows[1::7] = -LARGEST[dtype]  # no less than what lies outside, but for the order of NaN
        rows[2::7] = np.where(rows[2::7] < 1, np.nan, rows[2::7])
        oracle = Oracle(quantize(rows, dtype), np.tile(near, 4), starts, largest=k > 1)
        yield Launch(oracle, k, skew=k % 2)


def of_any_bits(dtype: str, rng: np.random.Generator) -> Iterator[Launch]:
    """Some patterns, or neighbours of some, as many of each as it happens to be."""
    most = np.iinfo(PATTERN[dtype]).max
    for _ in range(60):
        width, palette = rng.integers(1, 4097), rng.integers(0, most, rng.integers(1, 40))
        rows = rng.choice(palette, (3, width), p=rng.dirichlet(np.full(len(palette), 0.3)))
        rows += rng.integers(0, rng.choice([1, 3, 1000]), rows.shape)
        k = rng.choice([1, 600, rng.integers(1, width + 1)])
        lengths = rng.integers(width // 2, width + 2, 3)
        starts = rng.choice([0, 1, 5], 3)
        scores = from_bits(rows % (most + 1), dtype)
        largest, skew = bool(rng.integers(2)), int(rng.integers(8))
        yield Launch(Oracle(scores, lengths, starts, largest), int(k), skew)


def mapped_rows(width: int, k: int, dtype: str, rng: np.random.Generator) -> Oracle:
    """Some that are ranked by pairs, and some that go through rounds."""
    made = binned(width, k, dtype, rng) | nested(width, dtype, rng) | masked(width, k, dtype, rng)
    scores, labels = matrix(made)
    return Oracle(scores[::2], labels=labels[::2])


every_problem = pytest.mark.parametrize(
    "problems",
    [of_every_size, made_against_it, of_any_place, of_any_bits],
    ids=lambda f: f.__name__,
)
every_dtype = pytest.mark.parametrize("dtype", DTYPES)


@every_problem
@every_dtype
def test_backends(engine: Target, problems: Problems, dtype: str, rng: np.random.Generator) -> None:
    for oracle, k, skew in problems(dtype, rng):
        scores = engine.place(oracle.scores, offset=skew, around=np.iinfo(PATTERN[dtype]).max)
        engine.check(oracle, (k,), ("any",), scores)


@every_dtype
@pytest.mark.parametrize("page_size", [1, 16])
def test_mapped_backends(
    engine: Target, page_size: int, dtype: str, rng: np.random.Generator
) -> None:
    target = mapping(engine)
    for width, k in SHAPES:
        oracle = mapped_rows(width, k, dtype, rng)
        rows = len(oracle.scores)
        Call(target, oracle.scores, table(rng, rows, -(-width // page_size)), k, page_size).check()
        offsets = 1000 * np.arange(rows)
        given = target.put(oracle.scores), k, target.put(offsets)
        ragged = target.get(tl_topk.topk_ragged(*given, backend=target.backend))
        indices = np.where(ragged == -1, -1, ragged - offsets[:, np.newaxis])
        assert_topk(oracle, k, "any", indices.astype(np.int32))


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    folder: Path = tmp_path_factory.mktemp("kernels")
    return cache(lambda dtype, mapped=False: EmulatedKernels.build(dtype, folder, mapped=mapped))


@pytest.mark.slow
@pytest.mark.skipif(not SOURCES, reason="not a checkout: the CUDA sources are not here")
class TestEmulated:
    """The kernels themselves, without a GPU."""

    @every_dtype
    @every_problem
    def test_plain(
        self, build: Build, problems: Problems, dtype: str, rng: np.random.Generator
    ) -> None:
        for turn, (oracle, k, skew) in enumerate(problems(dtype, rng)):
            build(dtype).check(oracle, k, skew=skew, values=turn % 3 < 2)

    @pytest.mark.parametrize("page_size", [1, 64])
    def test_mapped(self, build: Build, page_size: int, rng: np.random.Generator) -> None:
        """With one output alone, and with pages that are missing."""
        kernels = build("float32", mapped=True)
        for width, k in SHAPES:
            oracle = mapped_rows(width, k, "float32", rng)
            rows, pages = len(oracle.scores), -(-width // page_size)
            pages += -pages % 4  # whole vectors of 16 bytes, or they would not be copied
            given = table(rng, rows, pages)
            given[:, rng.integers(0, pages, pages // 7 + 1)] = -1
            offsets = np.arange(rows, dtype=np.int32) * 1000 - 7
            best = np.sort(oracle.answer(k).indices)
            wanted = {
                "slots": expected_slots(best, given, page_size, list(range(rows))),
                "ragged": best + offsets[:, np.newaxis],
            }
            for name, words in wanted.items():
                found = kernels.mapped(oracle.scores, k, "any", given, page_size, offsets, name)
                np.testing.assert_array_equal(np.sort(found[name]), np.sort(words))


def key_of(row: Raw) -> NDArray[np.int64]:
    """Of numbers, as csrc/key.h has it."""
    bits = (widen(row) + np.float32(0)).view(np.uint32)
    return np.where(bits >> 31, ~bits, bits | 1 << 31).astype(np.int64)


def rounds_of(row: Raw, k: int, dtype: str) -> tuple[int, int]:
    """How many of a row are in the cut's bin, and how many rounds it takes where they are many."""
    x = widen(row).astype(np.float64)
    some = x[sampled(len(x), dtype)]
    scale = (BINS - 1) / (some.max() - some.min())
    bins = np.rint((some.max() - x) * scale).clip(0, BINS - 1)
    first = int((bins == np.sort(bins)[k - 1]).sum())
    rounds, key, index = 0, key_of(row), np.arange(len(x))
    while len(key) == len(x) or len(key) > RANKED:
        reach = int(key.max() - key.min()) or len(x) - 1
        from_best = key.max() - key if key.max() > key.min() else index
        bins = from_best >> max(reach.bit_length() - 10, 0)
        cut = np.sort(bins)[k - 1]
        k -= int((bins < cut).sum())
        key, index = key[bins == cut], index[bins == cut]
        rounds += 1
    return first, rounds


@every_dtype
def test_rows_are_aimed(dtype: str, rng: np.random.Generator) -> None:
    width, k = 4096, 1000
    for label, row in binned(width, k, dtype, rng).items():
        first, rounds = rounds_of(row, k, dtype)
        count = int(label.split()[2])
        if "ties" not in label:
            assert first == count, label
        else:
            assert first > RANKED, label
            assert rounds == (2 if count <= RANKED else 3), label
    first, rounds = rounds_of(nested(width, dtype, rng)["nested crowds"], k, dtype)
    assert first > RANKED
    assert rounds == {"float32": 5, "float16": 3, "bfloat16": 3}[dtype]  # the last one by index
