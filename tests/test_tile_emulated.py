"""The TileLang selector's answers without a GPU: its generated source, run thread by thread."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tile_emulator
from reference import DTYPES, ORDERS, Oracle, assert_topk, from_bits, quantize
from tile_emulator import EmulatedSelector, RaceError, missing_sanitizer, overrun_arrays
from tl_topk.tile.compiler import Kernel
from tl_topk.tile.pipelined import CAPACITIES, HELD, Specialisation
from tl_topk.tile.toolchain import missing_language
from zoo import lying_samples, matrix, ordinary, outliers, plateaus, special, ties

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(missing_language() is not None, reason=str(missing_language())),
]
K = 512
CAPACITY = CAPACITIES[K]


@pytest.fixture(scope="module", params=DTYPES)
def selector(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> EmulatedSelector:
    return EmulatedSelector.build(Specialisation(request.param, K), tmp_path_factory.mktemp("tile"))


def check(
    selector: EmulatedSelector, oracle: Oracle, k: int, blocks: int, order: str, **options: int
) -> None:
    for with_values in (True, False):  # alone, indices go another way
        values, indices = selector(
            oracle.scores,
            k,
            blocks,
            lengths=oracle.lengths,
            starts=oracle.row_starts,
            order=ORDERS.index(order),
            largest=oracle.largest,
            with_values=with_values,
            **options,
        )
        found = from_bits(values, selector.which.dtype) if with_values else None
        assert_topk(oracle, k, order, indices, found)
        if order != "any":
            break


@pytest.mark.parametrize("largest", [True, False], ids=["largest", "smallest"])
@pytest.mark.parametrize("width", [37, HELD[K], HELD[K] + 1, 9001])
def test_distributions(
    selector: EmulatedSelector, width: int, largest: bool, rng: np.random.Generator
) -> None:
    dtype = selector.which.dtype
    scores, labels = matrix(ordinary(width, dtype, rng) | special(width, dtype, rng))
    oracle = Oracle(scores, largest=largest, labels=labels)
    for turn, k in enumerate((33, K)):
        check(selector, oracle, k, 1 + 2 * turn, ORDERS[(turn + width) % 3])


def test_hostile_rows(selector: EmulatedSelector, rng: np.random.Generator) -> None:
    """Floors that are wrong, lists that are too small, ties in every place."""
    dtype, width = selector.which.dtype, 12_000
    for rows in (
        outliers(width, dtype, rng),
        plateaus(width, K, dtype, rng),
        ties(width, K, dtype, rng),
        lying_samples(width, dtype, rng),
    ):
        some = dict(list(rows.items())[:: max(1, len(rows) // 6)])
        scores, labels = matrix(some)
        oracle = Oracle(scores, labels=labels)
        check(selector, oracle, K, 2, "index")
        check(selector, oracle, K, 3, "any", room=700)


def test_numbers_among_nan(selector: EmulatedSelector, rng: np.random.Generator) -> None:
    """The row's range spans all keys, and the k-th score lies below a floor that is too high."""
    numbers = np.where(np.arange(12_000) % 16 == 0, rng.standard_normal((3, 12_000)), np.nan)
    oracle = Oracle(quantize(numbers, selector.which.dtype))
    for blocks, room in ((2, CAPACITY), (3, 700)):
        check(selector, oracle, K, blocks, "index", room=room)


def test_sorted_rows_fill_the_row_list(
    selector: EmulatedSelector, rng: np.random.Generator
) -> None:
    width = 100_000
    numbers = np.sort(rng.standard_normal(width))
    scores = np.stack([quantize(row, selector.which.dtype) for row in (numbers, numbers[::-1])])
    for room in (CAPACITY, 4 * CAPACITY):
        check(selector, Oracle(scores), K, 5, "value", room=room)


@pytest.mark.parametrize(("skew", "kind"), [(0, np.int32), (3, np.int64)])
def test_spans(
    selector: EmulatedSelector, skew: int, kind: type[np.integer], rng: np.random.Generator
) -> None:
    """Rows of every length and start, at every alignment, with better scores outside."""
    width = 10_001
    lengths = np.array([0, 1, -5, 500, 512, 513, 4096, 4097, 9000, 10_001, 20_000, 7000], kind)
    starts = np.array([0, 3, 9, -4, 9600, 77, 5, 6000, 1000, 0, 1, 20_000], kind)
    outside = quantize(np.array([np.inf]), selector.which.dtype)[0]
    scores = np.full((len(lengths), width), outside)
    for row, (begin, end) in enumerate(Oracle(scores, lengths, starts).spans):
        scores[row, begin:end] = quantize(rng.standard_normal(end - begin), selector.which.dtype)
    check(selector, Oracle(scores, lengths, starts), 300, 3, "index", skew=skew)
    check(selector, Oracle(scores, lengths), K, 2, "any", skew=skew)
    check(selector, Oracle(scores, None, starts), 7, 1, "value", skew=skew)


@pytest.mark.parametrize("turns", [1, 2, 3], ids=["downwards", "random", "another random"])
def test_threads_in_any_order(
    selector: EmulatedSelector, turns: int, rng: np.random.Generator
) -> None:
    """A barrier that is missing shows where threads do not run in the order of their numbers."""
    dtype = selector.which.dtype
    for width, blocks in ((3000, 1), (9001, 1), (20_000, 3)):
        rows = ordinary(width, dtype, rng) | ties(width, K, dtype, rng)
        scores, labels = matrix(dict(list(rows.items())[::7]))
        for order in ORDERS:
            check(selector, Oracle(scores, labels=labels), K, blocks, order, turns=turns)
        check(selector, Oracle(scores, labels=labels), K, blocks, "any", turns=turns, room=700)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> EmulatedSelector:
    folder = tmp_path_factory.mktemp("watched")
    if reason := missing_sanitizer(folder):
        pytest.skip(reason)
    return EmulatedSelector.build_watched(Specialisation("float32", K), folder)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("width", "blocks", "room"),
    [(3000, 1, CAPACITY), (9001, 1, CAPACITY), (20_000, 2, CAPACITY), (20_000, 2, 700)],
    ids=["held", "alone", "shared", "crowded"],
)
def test_no_races(
    watched: EmulatedSelector,
    width: int, blocks: int, room: int, order: str,
    rng: np.random.Generator,
) -> None:  # fmt: skip
    """Whatever order threads run in: a barrier lies before all that needs one."""
    for rows in (
        [rng.standard_normal(width), np.sort(rng.standard_normal(width))],
        [np.zeros(width), rng.integers(0, 4, width)],
        [np.where(np.arange(width) % 16 == 0, rng.standard_normal(width), np.nan)],
    ):
        scores = np.stack(rows).astype(np.float32)
        watched(
            scores, K, blocks, order=ORDERS.index(order), room=room,
            largest=order != "any", with_values=order == "value",
        )  # fmt: skip


def test_races_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    if reason := missing_sanitizer(tmp_path):
        pytest.skip(reason)
    whole = tile_emulator._host_source

    def without_barriers(kernel: Kernel) -> str:
        return whole(kernel).replace(
            '#include "device.h"',
            '#include "device.h"\n#undef volatile\n#define volatile(...) (void)0',
        )

    monkeypatch.setattr(tile_emulator, "_host_source", without_barriers)
    racing = EmulatedSelector.build_watched(Specialisation("float32", K), tmp_path)
    with pytest.raises(RaceError, match="data race"):
        racing(rng.standard_normal((1, 20_000)).astype(np.float32), K, 1)


@pytest.mark.parametrize("capacity", CAPACITIES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_are_large_enough(dtype: str, capacity: int, tmp_path: Path) -> None:
    assert overrun_arrays(Specialisation(dtype, capacity), tmp_path) == ""


def test_rows_that_are_nowhere(selector: EmulatedSelector) -> None:
    """An empty matrix has no address: nothing of it may be read."""
    check(selector, Oracle(quantize(np.empty((5, 0)), selector.which.dtype)), 7, 1, "index")
