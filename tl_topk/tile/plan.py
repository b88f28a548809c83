"""Plans that launch a TileLang kernel; they check, run and pickle as every plan does."""

from __future__ import annotations

from tl_topk import _ffi
from tl_topk._ffi import TopKPlan, exports
from tl_topk._ffi.plan import MAKERS
from tl_topk.problem import Problem
from tl_topk.tile.choice import Choice, choose
from tl_topk.tile.library import load
from tl_topk.tile.pipelined import program
from tl_topk.tile.toolchain import architecture

__all__ = ["pipelined_choice", "pipelined_plan"]


def pipelined_plan(problem: Problem, cluster: int | None = None) -> TopKPlan:
    """The plan of ``problem``, whose kernel is compiled now if it has not been before.

    Args:
        problem: with scores on a CUDA device.
        cluster: blocks in the cluster that shares a row, 1 for blocks that meet in global memory;
            by default what is faster.

    Raises:
        RuntimeError: the kernel cannot be compiled here, or a CUDA graph is being captured.
        ValueError: there are no TileLang kernels for the device, or for so large a k.
    """
    arch = architecture(_ffi.device_info(problem.device_id).compute_capability)
    choice = pipelined_choice(problem, cluster)
    kernel = load(program(choice.which), arch)
    kernel["prepare"]()
    return exports.tile_plan(
        problem.rows,
        problem.width,
        problem.k,
        problem.dtype,
        problem.order,
        problem.largest,
        problem.values,
        problem.device_id,
        kernel["launch"],
        choice.blocks_per_row,
        choice.room,
        f"TileLang kernel {choice.which.name} for {arch}, {choice.reason}",
    )


def pipelined_choice(problem: Problem, cluster: int | None = None) -> Choice:
    """What :func:`pipelined_plan` would launch on the problem's device."""
    device = _ffi.device_info(problem.device_id)
    return choose(problem, device.sms, device.coresident_clusters, cluster)


def _again(*arguments: int | str | bool) -> TopKPlan:
    """From the arguments of TopKPlan's constructor, of which the last two mean nothing here."""
    return pipelined_plan(Problem(*arguments[:-2]))  # type: ignore[arg-type]


MAKERS["pipelined"] = _again
