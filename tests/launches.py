"""For every kernel of the select family the smallest problem that an H200 launches it for.

By asking for blocks: as the library chooses them, some kernels serve dozens of rows and more alone,
and racecheck takes as long for every one of their accesses. tests/test_launches.py shows that no
problem is served by another kernel than those here. Rows that one block holds in registers have one
for free order and one for all others: each launch is to be made in free order and sorted.
"""

from __future__ import annotations

from dataclasses import dataclass

from reference import DTYPES

__all__ = ["LAUNCHES", "Launch"]


@dataclass(frozen=True)
class Launch:
    """A problem, and the blocks that are asked for.

    Attributes:
        name: what tells its kernel apart: the list of survivors a block has room for, and how many
            blocks share a row.
        width, k: of the problem.
        blocks: of a row.
        rows: of the problem; where blocks are many a few will do.
        dtypes: in which it has a kernel that none of the others has.
    """

    name: str
    width: int
    k: int
    blocks: int
    rows: int = 6
    dtypes: tuple[str, ...] = DTYPES

    def __str__(self) -> str:
        return self.name


_WIDER = ("float32",)  # a step of which has two kernels, where others have one

LAUNCHES = (
    Launch("resident-block", 2001, 500, 1),
    Launch("resident2-block", 2201, 500, 1, dtypes=_WIDER),
    Launch("few-block", 4201, 32, 1),
    Launch("few-queued-block", 8301, 32, 1),
    Launch("some-block", 4201, 1100, 1),
    Launch("many-block", 6001, 2048, 1),
    Launch("large-block", 5001, 4500, 1),
    Launch("resident-cluster", 3001, 500, 2),
    Launch("resident2-cluster", 4301, 500, 2, dtypes=_WIDER),
    Launch("few-cluster", 8301, 32, 2),
    Launch("few-queued-cluster", 16_501, 32, 2),
    Launch("some-cluster", 8301, 2048, 2),
    Launch("some-queued-cluster", 16_501, 2048, 2),
    Launch("many-cluster", 12_001, 4096, 2),
    Launch("large-cluster", 5001, 4500, 2),
    Launch("grid", 33_001, 200, 32, rows=2),
)
