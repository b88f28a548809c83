"""The native steps of tl_topk.distributed, with all ranks played by one process."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

import tl_topk
import zoo
from harness import TORCH, Target
from reference import DTYPES, ORDERS, Oracle, Order, Raw, assert_topk, dtype_of
from tl_topk._ffi import Shards
from tl_topk.distributed.rule import part_bytes, slots_of, stride_of, whole_quads

METHODS = ("gather", "threshold")


class World:
    """The rows of all ranks' shards, and what the ranks would do with them.

    A sample of "threshold" stands for ``stride`` elements, by default for as many as the rule says.
    """

    def __init__(
        self, target: Target, rows: Raw, widths: list[int], block: int, stride: int = 0
    ) -> None:
        self.target = target
        self.rows = rows
        self.stride = stride
        self.shards: list[Any] = [Shards(rank, widths, block) for rank in range(len(widths))]
        columns = np.arange(rows.shape[1])
        if block:
            self.columns = [
                columns[columns // block % len(widths) == r] for r in range(len(widths))
            ]
        else:
            self.columns = np.split(columns, np.cumsum(widths)[:-1])
        self.count = 0

    def selections(self, k: int, order: Order, largest: bool) -> list[Any]:
        """Of each rank: values and indices of its own best."""
        self.count = whole_quads(min(k, max(len(columns) for columns in self.columns)))
        return [
            tl_topk.topk(
                self.target.put(np.ascontiguousarray(self.rows[:, columns])),
                self.count,
                order=order,
                largest=largest,
            )
            for columns in self.columns
        ]

    def result(self, k: int) -> tuple[Any, Any, Any]:
        """Memory for values, indices and local indices."""
        shape = (len(self.rows), k)
        dtype = TORCH[dtype_of(self.rows)]
        device = self.target.device
        indices = torch.full(shape, 77, dtype=torch.int32, device=device)
        return torch.empty(shape, dtype=dtype, device=device), indices, indices.clone()

    def gather(self, rank: int, k: int, order: Order, largest: bool) -> tuple[Any, Any, Any]:
        """What ``rank`` makes of all parts."""
        own = [
            torch.cat(
                [each.indices.flatten().view(torch.uint8), each.values.flatten().view(torch.uint8)]
            )
            for each in self.selections(k, "any", largest)
        ]
        size = part_bytes(len(self.rows), self.count, 4 if self.rows.itemsize == 4 else 2)
        parts = torch.full((len(own), size), 0xA5, dtype=torch.uint8, device=self.target.device)
        for part, bytes_of_one in zip(parts, own, strict=True):
            part[: len(bytes_of_one)] = bytes_of_one
        values, indices, local = self.result(k)
        self.shards[rank].merge_parts(parts, self.count, indices, values, local, largest, order)
        return values, indices, local

    def threshold(self, rank: int, k: int, order: Order, largest: bool) -> tuple[Any, Any, Any]:
        """What ``rank`` makes of all words."""
        own = self.selections(k, "value", largest)
        ranks, rows, width = len(own), len(self.rows), self.rows.shape[1]
        wanted = min(k, width)
        stride = self.stride or stride_of(wanted)
        slots = whole_quads(stride * (-(-wanted // stride) + ranks))
        assert self.stride or slots == slots_of(ranks, wanted)
        like = {"dtype": torch.int64, "device": self.target.device}
        samples = torch.zeros(ranks, rows, self.count // stride, **like)
        for shards, each, mine in zip(self.shards, own, samples, strict=True):
            shards.sample(each.indices, each.values, largest, stride, mine)
        total = torch.zeros(rows, slots, **like)
        used = torch.zeros(total.shape, **like)
        for shards, each in zip(self.shards, own, strict=True):
            words = torch.full(total.shape, 0x5A5A5A5A, **like)
            shards.contribute(
                each.indices, each.values, samples.view(ranks, -1), largest, wanted, stride, words
            )
            total += words
            used += words != 0
        assert int(used.max()) <= 1, "two ranks use one slot"
        values, indices, local = self.result(k)
        self.shards[rank].merge_words(total, indices, values, local, largest, order)
        return values, indices, local

    def check(self, method: str, k: int, order: Order, largest: bool, rank: int) -> None:
        values, indices, local = getattr(self, method)(rank, k, order, largest)
        oracle = Oracle(self.rows, largest=largest)
        found = self.target.get(indices)
        assert_topk(oracle, k, order, found, self.target.get(values))
        place = np.full(self.rows.shape[1] + 1, -1)
        place[self.columns[rank]] = np.arange(len(self.columns[rank]))
        for slots, row in zip(self.target.get(local), place[found], strict=True):
            own = row[row >= 0].tolist()
            assert slots.tolist() == own + [-1] * (k - len(own))


def split(width: int, ranks: int, rng: np.random.Generator) -> list[int]:
    """Widths of contiguous shards, some of them empty."""
    cuts = np.sort(rng.integers(0, width + 1, ranks - 1))
    cuts[1::3] = cuts[: len(cuts[1::3]) * 3 : 3]
    cuts = np.sort(cuts)
    return np.diff(np.concatenate([[0], cuts, [width]])).tolist()


def dealt(width: int, ranks: int, block: int) -> list[int]:
    return np.bincount(np.arange(width) // block % ranks, minlength=ranks).tolist()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_hostile_rows(engine: Target, method: str, dtype: str, rng: np.random.Generator) -> None:
    width, ranks = 3001, 7
    rows = {**zoo.ordinary(width, dtype, rng), **zoo.special(width, dtype, rng)}
    rows = {**rows, **zoo.plateaus(width, 500, dtype, rng), **zoo.outliers(width, dtype, rng)}
    matrix = zoo.matrix(rows)[0]
    for (order, largest), k, block in zip(
        product(ORDERS, (True, False)),
        (500, 64, 513, 1, 500, 129),
        (0, 32, 0, 1, 48, 0),
        strict=True,
    ):
        widths = dealt(width, ranks, block) if block else split(width, ranks, rng)
        World(engine, matrix, widths, block).check(method, k, order, largest, rank=3)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("ranks", [1, 2, 64, 256])
def test_numbers_of_ranks(
    engine: Target, method: str, ranks: int, rng: np.random.Generator
) -> None:
    rows = rng.standard_normal((2, 20_000)).astype(np.float32)
    rows[1] = np.sort(rows[1])  # all winners on the last rank
    for order, k in zip(ORDERS, (2048, 512, 1000), strict=True):
        World(engine, rows, split(20_000, ranks, rng), 0).check(method, k, order, True, ranks - 1)


@pytest.mark.sanitizer
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("k", [2048, 4096, 4097, 6000])
def test_many_ties(
    engine: Target, method: str, order: Order, k: int, rng: np.random.Generator
) -> None:
    """More than share a bin, and more than are sorted in shared memory."""
    width, block = 9000, 64
    rows = np.stack([np.zeros(width), rng.integers(0, 3, width), rng.standard_normal(width)])
    world = World(engine, rows.astype(np.float16), dealt(width, 3, block), block)
    world.check(method, k, order, True, 1)


@pytest.mark.sanitizer
@pytest.mark.parametrize("block", [0, 1, 7, pytest.param(64, marks=pytest.mark.racecheck)])
def test_lengths_of_shards(engine: Target, block: int, rng: np.random.Generator) -> None:
    width, ranks = 1000, 5
    widths = dealt(width, ranks, block) if block else split(width, ranks, rng)
    world = World(engine, np.zeros((1, width), np.float32), widths, block)
    lengths = np.array([*range(-1, 202), 999, 1000, 1001, 2**31 - 1])
    for kind in (np.int32, np.int64):
        for shards, columns in zip(world.shards, world.columns, strict=True):
            local = torch.empty(len(lengths), dtype=torch.int32, device=engine.device)
            shards.local_lengths(engine.put(lengths.astype(kind)), local)
            assert engine.get(local).tolist() == [int((columns < n).sum()) for n in lengths]


class TestShards:
    def test_fields(self) -> None:
        shards = Shards(1, [3, 4], 0)
        assert (shards.rank, list(shards.widths), shards.block) == (1, [3, 4], 0)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ((0, []), "widths: expected 1 to 256 ranks, got 0"),
            ((0, [1] * 257), "widths: expected 1 to 256 ranks, got 257"),
            ((2, [1, 1]), "rank: expected 0 to 1, got 2"),
            ((0, [-1]), "local_scores: expected at most"),
            ((0, [2**30, 2**30]), "local_scores: expected at most 2147483647 elements in all"),
            ((0, [5, 5], -1), "block: expected 0 to 2147483647, got -1"),
            ((0, [4, 5], 2), "local_scores: expected 5 elements on rank 0, as a row of 9"),
        ],
    )
    def test_no_row_has_such(self, arguments: tuple[Any, ...], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            Shards(*arguments)

    def test_bad_tensors(self) -> None:
        shards: Any = Shards(0, [4, 4], 0)
        parts = torch.zeros(2, 64, dtype=torch.uint8)
        indices, values = torch.zeros(2, 2, dtype=torch.int32), torch.zeros(2, 2)
        shards.merge_parts(parts, 4, indices, values, None, True, "any")
        for changed, message in (
            ((parts[:1], 4, indices, values), r"parts: expected shape \(2, 64\)"),
            ((parts, 8, indices, values), r"parts: expected shape \(2, 128\)"),
            ((parts, 3, indices, values), "count: expected a multiple of 4, got 3"),
            ((parts, 4, indices.long(), values), "out indices: expected int32"),
            ((parts, 4, indices[0], values), r"out indices: expected shape \(rows, columns\)"),
            ((parts, 4, indices, values[:1]), r"out values: expected shape \(2, 2\)"),
            ((parts, 4, indices, torch.zeros(2, 4)[:, :2]), "out values: expected rows without"),
        ):
            with pytest.raises((TypeError, ValueError), match=message):
                shards.merge_parts(*changed, None, True, "any")
        with pytest.raises(ValueError, match="order: expected"):
            shards.merge_parts(parts, 4, indices, values, None, True, "best")
        with pytest.raises(ValueError, match="stride: expected 1 to"):
            shards.sample(indices, values, True, 0, torch.zeros(2, 2, dtype=torch.int64))
