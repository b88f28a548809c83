"""The native C++ backend: threads and vectors, no GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tl_topk.backends.native import native_plan

if TYPE_CHECKING:
    from tl_topk._ffi import TopKPlan
    from tl_topk.problem import Problem


class CpuBackend:
    name = "cpu"
    device_type = "cpu"

    def unavailable(self) -> str | None:
        return None

    def lacks(self, problem: Problem) -> str | None:
        return None

    def plan(self, problem: Problem, blocks_per_row: int = 0) -> TopKPlan:
        return native_plan(problem, blocks_per_row)
