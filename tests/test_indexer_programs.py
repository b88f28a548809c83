"""The indexer's TileLang programs as far as they can be looked at without a GPU."""

from __future__ import annotations

import itertools
import re

import pytest

from tl_topk.indexer.arguments import HEADS, MAX_NEXT_N
from tl_topk.indexer.score_host import score_kernel
from tl_topk.indexer.shapes import DIM, STATE_WORDS, ScoreShape
from tl_topk.tile.compiler import lower
from tl_topk.tile.toolchain import missing_tool

SHARED_MEMORY = 227 * 1024  # bytes that a block of a Hopper GPU can have
MULTIPROCESSOR_MEMORY = 228 * 1024

PAGED = [
    ScoreShape(True, heads, queries, float8, ratio, each, fused)
    for heads, queries, float8, ratio, each, fused in itertools.product(
        HEADS, range(1, MAX_NEXT_N + 1), (True, False), (1, 4), (True, False), (True, False)
    )
]
ROWS = [ScoreShape.of_row(heads, float8) for heads in HEADS for float8 in (True, False)]


def test_names_tell_programs_apart() -> None:
    assert len({shape.name for shape in [*PAGED, *ROWS]}) == len({*PAGED, *ROWS})


@pytest.mark.parametrize("shape", [*PAGED, *ROWS], ids=lambda shape: shape.name)
def test_blocks_fit(shape: ScoreShape) -> None:
    key_bytes = DIM + 4 if shape.float8 else 2 * DIM  # with their scales
    ring = shape.stages * shape.tile * key_bytes
    kept = shape.kept_tiles * shape.dealt * shape.consumers * 4
    kept += 4 * (STATE_WORDS + shape.tail_words)
    queries = shape.columns * (DIM * (1 if shape.float8 else 2) + 4)
    assert shape.stages >= 3
    assert ring + queries + (kept if shape.fused else 0) < SHARED_MEMORY - 3 * 1024
    assert shape.columns <= 256  # what one copy brings
    assert shape.threads <= 1024
    together = shape.blocks_per_multiprocessor * (ring + queries + 3 * 1024)
    assert shape.blocks_per_multiprocessor == 1 or together <= MULTIPROCESSOR_MEMORY


def by_one_lane(source: str) -> str:
    """What stands inside the branches that one lane of a warp takes."""
    inside = []
    for branch in re.finditer(r"tl_shuffle_elect<32>\(\)\) \{", source):
        depth, at = 1, branch.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(source[at], 0)
            at += 1
        inside.append(source[branch.end() : at])
    assert inside
    return "".join(inside)


@pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool()))
@pytest.mark.parametrize(
    "shape",
    [
        ScoreShape(True, 64, 1, True),
        ScoreShape(True, 64, 1, False),
        ScoreShape(True, 64, 1, True, fused=True),
        ScoreShape(True, 16, 3, False, 4, True, fused=True),
        ScoreShape.of_row(64, True),
    ],
    ids=lambda shape: shape.name,
)
def test_programs_lower(shape: ScoreShape) -> None:
    """The kernel's parameters are all among what the launch passes, it has the threads, and no lane
    waits for others where it is alone: TileLang widens the branches around copies at times.
    """
    program = score_kernel(shape)
    kernel = lower(program, "sm_90a")
    assert kernel.threads == shape.threads
    assert kernel.shared_bytes < SHARED_MEMORY - 1024
    # A fence between a thread's own writes and its copies waits for nobody.
    assert "sync" not in by_one_lane(kernel.source).replace("fence_proxy_async", "")
    assert program.host is not None
    source = program.host(kernel)
    assert "@" not in source
    for _, name in kernel.parameters:
        assert f" {name} = " in source or f"CUtensorMap {name};" in source
