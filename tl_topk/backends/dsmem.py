"""The CUDA backend: the blocks of a cluster exchange counts through distributed shared memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tl_topk import _ffi
from tl_topk.backends.native import native_plan

if TYPE_CHECKING:
    from tl_topk._ffi import TopKPlan
    from tl_topk.problem import Problem


class DsmemBackend:
    name = "dsmem"
    device_type = "cuda"

    def unavailable(self) -> str | None:
        if not _ffi.build_info()["cuda"]:
            return "this build of tl_topk contains no CUDA kernels"
        if _ffi.device_count() == 0:
            return "no CUDA device or driver was found"
        return None

    def plan(self, problem: Problem) -> TopKPlan:
        return native_plan(problem)
