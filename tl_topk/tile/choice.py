"""How a problem is shared out among thread blocks: pure functions, tested without a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tl_topk.problem import Problem
from tl_topk.tile.pipelined import CAPACITIES, HELD, TILE_BYTES, Specialisation, specialise

__all__ = ["CLUSTER", "Choice", "all_kernels", "choose"]

_ELEMENT_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
#: Blocks in a cluster, where clusters are used: the most there can be. In rows of up to so many
#: bytes it is worth more that they meet sooner than that all of the GPU reads.
CLUSTER = 16
_CLUSTER_BYTES = 256 << 10
_FIRST_WITH_CLUSTERS = 90  # compute capability
#: A row's list in global memory holds some of a block's lists, for a floor that admits too many
#: (of sorted rows a sample tells less), unless so many rows would take much memory.
_ROW_LISTS = 4
_MOST_ENTRIES = 1 << 17


@dataclass(frozen=True)
class Choice:
    """Which kernel, how many of its blocks share a row, and how they meet.

    Attributes:
        which: the kernel.
        blocks_per_row: blocks that share a row.
        room: entries of a row's list in the workspace; 0 where blocks do not meet there.
    """

    which: Specialisation
    blocks_per_row: int
    room: int

    @property
    def reason(self) -> str:
        if self.which.cluster > 1:
            return f"a cluster of {self.which.cluster} blocks a row"
        if self.blocks_per_row > 1:
            return f"{self.blocks_per_row} blocks a row, which meet in global memory"
        return "a block a row"


def choose(
    problem: Problem, sms: int, coresident_clusters: Sequence[int], cluster: int | None = None
) -> Choice:
    """What serves ``problem`` best.

    Args:
        problem: with k up to the largest capacity.
        sms: the GPU's streaming multiprocessors.
        coresident_clusters: how many clusters of 1, 2, 4, 8 and 16 blocks it holds at once.
        cluster: blocks in a cluster, 1 for none; by default the choice is made here.

    Raises:
        ValueError: k is too large.
    """
    which = specialise(problem.dtype, problem.k)
    bytes_ = problem.width * _ELEMENT_BYTES[problem.dtype]
    alone = problem.width <= HELD[which.capacity] or problem.rows == 0
    if cluster is None:
        fitting = coresident_clusters[CLUSTER.bit_length() - 1]
        cluster = 1
        if not alone and bytes_ <= _CLUSTER_BYTES and problem.rows <= fitting:
            cluster = CLUSTER
    if cluster > 1:
        return Choice(replace(which, cluster=cluster), cluster, 0)
    tiles = -(-bytes_ // TILE_BYTES)
    blocks = 1 if alone else max(1, min(tiles, sms // problem.rows))
    capacity = CAPACITIES[which.capacity]
    room = max(capacity, min(_ROW_LISTS * capacity, _MOST_ENTRIES // max(problem.rows, 1)))
    return Choice(which, blocks, room if blocks > 1 else 0)


def all_kernels(dtype: str, k: int, compute_capability: int) -> list[Specialisation]:
    """Every kernel that :func:`choose` may pick for the dtype and k.

    Raises:
        ValueError: k is too large.
    """
    which = specialise(dtype, k)
    if compute_capability < _FIRST_WITH_CLUSTERS:
        return [which]
    return [which, replace(which, cluster=CLUSTER)]
