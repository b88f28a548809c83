"""What the backends of the native library share: the plan object knows its backend by device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tl_topk import _ffi
from tl_topk._ffi import TopKPlan

if TYPE_CHECKING:
    from tl_topk.problem import Problem

_ALL_THREADS = 0


def native_plan(problem: Problem, blocks_per_row: int = 0) -> TopKPlan:
    return TopKPlan(
        problem.rows,
        problem.width,
        problem.k,
        problem.dtype,
        problem.order,
        problem.largest,
        problem.values,
        problem.device_type,
        problem.device_id,
        _ALL_THREADS,
        blocks_per_row,
    )


def no_gpu() -> str | None:
    """Why nothing can run on a GPU here, in one clause; None when it can."""
    if not _ffi.build_info()["cuda"]:
        return "this build of tl_topk contains no CUDA kernels"
    if _ffi.device_count() == 0:
        return "no CUDA device or driver was found"
    return None
