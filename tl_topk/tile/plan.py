"""Plans that launch a TileLang kernel; they check, run and pickle as every plan does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvm_ffi import register_object

from tl_topk import _ffi
from tl_topk._ffi import TopKPlan
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

__all__ = ["TilePlan", "pipelined_plan"]


@register_object("tl_topk.TilePlan")
class TilePlan(TopKPlan):
    """A :class:`TopKPlan` of the backend ``"pipelined"``; made by :func:`pipelined_plan`.

    Attributes:
        blocks_per_row: thread blocks that share a row.
        room: entries of a row's list in the workspace; 0 where there is none.
    """

    blocks_per_row: int
    room: int

    def __init__(self, problem: Problem, launch: Any, blocks: int, room: int, reason: str) -> None:
        initialise: Any = self.__ffi_init__  # other arguments than a TopKPlan's
        initialise(
            problem.rows,
            problem.width,
            problem.k,
            problem.dtype,
            problem.order,
            problem.largest,
            problem.values,
            problem.device_id,
            launch,
            blocks,
            room,
            reason,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        fields = (self.rows, self.width, self.k, self.dtype, self.order, self.largest, self.values)
        return _rebuild, (*fields, self.device_type, self.device_id)


def _rebuild(*fields: Any) -> TopKPlan:
    return pipelined_plan(Problem(*fields))


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
    reason = f"TileLang kernel {which.name} for {arch}, {meet}"
    return TilePlan(problem, kernel["launch"], blocks, room, reason)
