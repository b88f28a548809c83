"""The TileLang backend: thread blocks that stream their part of a row through shared memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tl_topk.backends.native import native_plan, no_gpu

if TYPE_CHECKING:
    from tl_topk._ffi import TopKPlan
    from tl_topk.problem import Problem


class PipelinedBackend:
    name = "pipelined"
    device_type = "cuda"

    def unavailable(self) -> str | None:
        # Imported late: most processes never come here.
        from tl_topk.tile import library, toolchain

        return no_gpu() or (None if library.any_ready() else toolchain.missing_tool())

    def plan(self, problem: Problem, blocks_per_row: int = 0) -> TopKPlan:
        # As many blocks as its own rule says: the dispatcher lets nobody ask for others.
        from tl_topk.tile.pipelined import CAPACITIES
        from tl_topk.tile.plan import pipelined_plan

        if problem.k > max(CAPACITIES):
            return native_plan(problem)  # the exact path for very large k is native in all backends
        return pipelined_plan(problem)
