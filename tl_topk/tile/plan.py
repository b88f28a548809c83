"""Plans that launch a TileLang kernel; they check, run and pickle as every plan does."""

from __future__ import annotations

from dataclasses import replace

from tl_topk import _ffi
from tl_topk._ffi import TopKPlan, exports
from tl_topk._ffi.plan import MAKERS
from tl_topk.problem import Problem
from tl_topk.tile.library import load
from tl_topk.tile.pipelined import (
    best_cluster,
    blocks_per_row,
    list_room,
    program,
    specialise,
)
from tl_topk.tile.toolchain import architecture

__all__ = ["pipelined_plan"]


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
    device = _ffi.device_info(problem.device_id)
    arch = architecture(device.compute_capability)
    which = specialise(problem.dtype, problem.k)
    if cluster is None:
        cluster = best_cluster(which, problem.rows, problem.width, device.coresident_clusters)
    which = replace(which, cluster=cluster)
    kernel = load(program(which), arch)
    kernel["prepare"]()
    if cluster > 1:
        blocks, room, meet = cluster, 0, f"a cluster of {cluster} blocks a row"
    else:
        blocks = blocks_per_row(which, problem.rows, problem.width, device.sms)
        room = list_room(which, problem.rows) if blocks > 1 else 0
        meet = f"{blocks} blocks share a row" if blocks > 1 else "a block a row"
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
        blocks,
        room,
        f"TileLang kernel {which.name} for {arch}, {meet}",
    )


def _again(*arguments: int | str | bool) -> TopKPlan:
    """From the arguments of TopKPlan's constructor, of which the threads mean nothing here."""
    return pipelined_plan(Problem(*arguments[:-1]))  # type: ignore[arg-type]


MAKERS["pipelined"] = _again
