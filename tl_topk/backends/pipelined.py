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

    def lacks(self, problem: Problem) -> str | None:
        """Its kernel, where it was not compiled ahead of time and cannot be now."""
        from tl_topk import _ffi
        from tl_topk.tile import library, toolchain
        from tl_topk.tile.pipelined import CAPACITIES, program
        from tl_topk.tile.plan import pipelined_choice

        if problem.scoring is not None or problem.k > max(CAPACITIES):
            return None
        missing = toolchain.missing_tool()
        if missing is None:
            return None
        try:
            capability = _ffi.device_info(problem.device_id).compute_capability
            arch = toolchain.architecture(capability)
        except ValueError as error:
            return str(error)
        kernel = program(pipelined_choice(problem).which)
        if library.find(kernel, arch) is not None:
            return None
        return f"kernel {kernel.name} for {arch} has not been compiled, and cannot be: {missing}"

    def plan(self, problem: Problem, blocks_per_row: int = 0) -> TopKPlan:
        # As many blocks as its own rule says: the dispatcher lets nobody ask for others.
        from tl_topk.tile.pipelined import CAPACITIES
        from tl_topk.tile.plan import pipelined_plan

        if problem.k > max(CAPACITIES):
            return native_plan(problem)  # the exact path for very large k is native in all backends
        return pipelined_plan(problem)
