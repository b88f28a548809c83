"""What the ranks of tests/test_distributed.py do: their shards, their calls, their judgement."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch.distributed as dist
from numpy.typing import NDArray

import tl_topk.distributed
from harness import GPU, TORCH_CPU, Target
from ranks import Ranks, device, group_of
from reference import Oracle, Order, Raw, assert_topk

METHODS = ("gather", "threshold")


def target() -> Target:
    return GPU if device().type == "cuda" else TORCH_CPU


def widths_of(size: int, total: int, block: int, seed: int) -> list[int]:
    """How wide the shards of a row are: odd and, of many contiguous ones, some empty."""
    if block:
        return np.bincount(np.arange(total) // block % size, minlength=size).tolist()
    cuts = np.sort(np.random.default_rng(seed).integers(0, total + 1, size - 1))
    if size > 2:
        cuts[1] = cuts[0]  # rank 1 has nothing
    return np.diff(np.concatenate([[0], cuts, [total]])).tolist()


def own_columns(size: int, rank: int, total: int, block: int, seed: int) -> NDArray[np.intp]:
    """Which columns of the whole row are this rank's, in the order of its shard."""
    columns = np.arange(total)
    if block:
        return columns[columns // block % size == rank]
    begin = sum(widths_of(size, total, block, seed)[:rank])
    return columns[begin : begin + widths_of(size, total, block, seed)[rank]]


class Call(NamedTuple):
    """One call, but for its rows."""

    k: int
    block: int = 0
    order: Order = "any"
    method: str = "auto"
    largest: bool = True
    lengths: NDArray[np.integer] | None = None
    return_local: bool = True
    seed: int = 0

    def options(self, size: int) -> dict[str, Any]:
        return {
            "group": group_of(size),
            "layout": "interleaved" if self.block else "contiguous",
            "block_size": self.block or None,
            "lengths": None if self.lengths is None else target().put(self.lengths),
            "largest": self.largest,
            "order": self.order,
            "return_local": self.return_local,
            "method": self.method,
        }


def check(size: int, rows: Raw, calls: list[Call], planned: bool = False) -> list[bytes]:
    """On one rank: makes the calls, judges the results; returns them for comparison.

    ``planned``: by plans that were made for other scores.
    """
    rank, where = dist.get_rank(group_of(size)), target()
    seen = []
    for call in calls:
        columns = own_columns(size, rank, rows.shape[-1], call.block, call.seed)
        own = where.put(np.ascontiguousarray(rows[..., columns]))
        options = call.options(size)
        if planned:
            plan = tl_topk.distributed.Plan(own + 1, call.k, **options)
            result = plan.run(own, options["lengths"])
        else:
            result = tl_topk.distributed.topk(own, call.k, **options)
        indices, values = where.get(result.indices), where.get(result.values)
        oracle = Oracle(rows, call.lengths, largest=call.largest)
        assert_topk(oracle, call.k, call.order, indices, values)
        if call.return_local:
            check_local(where.get(result.local_indices), indices, columns)
        seen.append(indices.tobytes() + values.tobytes())
    return seen


def check_local(local: Any, indices: Any, columns: NDArray[np.intp]) -> None:
    """The local indices are those of this rank's elements, in the slots' order."""
    place = {int(column): i for i, column in enumerate(columns)}
    for slots, row in zip(np.atleast_2d(local), np.atleast_2d(indices), strict=True):
        own = [place[int(i)] for i in row if int(i) in place]
        assert slots.tolist() == own + [-1] * (len(slots) - len(own))


def judge(world: tuple[Ranks, int], rows: Raw, calls: list[Call], planned: bool = False) -> None:
    """Every rank is right, and all have the very same slots."""
    ranks, size = world
    seen = ranks.run(size, check, rows, calls, planned)
    for other in seen[1:]:
        for call, first, second in zip(calls, seen[0], other, strict=True):
            assert first == second, call
