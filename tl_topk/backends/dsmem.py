"""The CUDA backend: the blocks of a cluster exchange counts through distributed shared memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tl_topk.backends.native import native_plan, no_gpu

if TYPE_CHECKING:
    from tl_topk._ffi import TopKPlan
    from tl_topk.problem import Problem


class DsmemBackend:
    name = "dsmem"
    device_type = "cuda"

    def unavailable(self) -> str | None:
        return no_gpu()

    def lacks(self, problem: Problem) -> str | None:
        return None

    def plan(self, problem: Problem, blocks_per_row: int = 0) -> TopKPlan:
        return native_plan(problem, blocks_per_row)
