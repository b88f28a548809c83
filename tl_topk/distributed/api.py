"""The public function."""

from __future__ import annotations

from typing import Any, Literal, overload

import torch

from tl_topk.api import TopK
from tl_topk.distributed import methods
from tl_topk.distributed.agreement import agreed
from tl_topk.distributed.results import LocalTopK, Results

__all__ = ["topk"]


@overload
def topk(
    local_scores: torch.Tensor,
    k: int,
    *,
    group: Any = ...,
    layout: str = ...,
    block_size: int | None = ...,
    lengths: torch.Tensor | None = ...,
    largest: bool = ...,
    order: str = ...,
    return_local: Literal[False] = ...,
    method: str = ...,
) -> TopK: ...
@overload
def topk(
    local_scores: torch.Tensor,
    k: int,
    *,
    group: Any = ...,
    layout: str = ...,
    block_size: int | None = ...,
    lengths: torch.Tensor | None = ...,
    largest: bool = ...,
    order: str = ...,
    return_local: Literal[True],
    method: str = ...,
) -> LocalTopK: ...
def topk(
    local_scores: torch.Tensor,
    k: int,
    *,
    group: Any = None,
    layout: str = "contiguous",
    block_size: int | None = None,
    lengths: torch.Tensor | None = None,
    largest: bool = True,
    order: str = "any",
    return_local: bool = False,
    method: str = "auto",
) -> TopK | LocalTopK:
    """The ``k`` largest scores of rows whose elements are divided over the ranks of a group.

    A collective call: every rank of the group makes it, with its own part of the scores and
    otherwise the same arguments. All of them get the result that :func:`tl_topk.topk` has for the
    whole rows, slot by slot the same on every rank, in any order too.

    The hosts compare their arguments before anything is launched. On GPUs the call reads nothing
    back, waits for no device and runs on the current stream. It can be captured in a CUDA graph
    (NCCL) once the very same call was made before. :class:`Plan` compares once, not at every call.

    Args:
        local_scores: this rank's shard, ``(width,)`` or ``(rows, width)``; float32, float16 or
            bfloat16; on the CPU or a CUDA device; unit stride in the last dimension, any row
            stride. Widths may differ between ranks, and be 0. Up to 256 ranks; all shards together
            are at most 2**31 - 1 wide.
        k: how many of each whole row, at least 0; it may exceed the row's length.
        group: a ``torch.distributed`` group, None for the default one.
        layout: how the whole row is made of the shards: ``"contiguous"``, one behind the other in
            the order of ranks, or ``"interleaved"``, ``block_size`` elements of each rank in turn.
        block_size: of ``"interleaved"``, where it must be given.
        lengths: optional int32 or int64 ``(rows,)`` (``(1,)`` for 1-D scores) on the scores'
            device, the same on every rank: elements of each whole row that count. Clamped to the
            row, never read by the host.
        largest: False selects the ``k`` smallest, NaN still last.
        order: of the slots: ``"any"``, ``"index"`` or ``"value"``, as in :func:`tl_topk.topk`.
        return_local: also say which elements of this rank's shard were selected.
        method: ``"gather"``, ``"threshold"`` or ``"auto"``, which
            :func:`tl_topk.distributed.choose_method` decides.

    Returns:
        :class:`tl_topk.TopK`, or :class:`LocalTopK` with ``return_local``. Not differentiable.

    Raises:
        TypeError, ValueError: on every rank, where an argument of one is not as described, or where
            they disagree.
        RuntimeError: there is no group, the exchange failed (a rank ended, or was late beyond the
            group's timeout), or a graph captures a call that was not made before.

    Example:
        >>> import torch, torch.distributed as dist
        >>> import tl_topk.distributed
        >>> dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
        >>> shard = torch.tensor([0.5, 2.0, 1.0, 2.0])
        >>> tl_topk.distributed.topk(shard, 2, order="value").indices.tolist()
        [1, 3]
        >>> dist.destroy_process_group()
    """
    options = (layout, block_size, largest, order, return_local, method)
    group, agreement = agreed(group, local_scores, k, lengths, options)
    request = agreement.request
    results = Results.empty(request, local_scores)
    scores = local_scores.detach().resolve_neg().view(request.rows, request.width)
    methods.run(agreement, group, scores, lengths, results)
    return results.returned(request.dimensions)
