"""What can be settled before the scores are there."""

from __future__ import annotations

import torch

from tl_topk.api import TopK
from tl_topk.distributed import methods
from tl_topk.distributed.agreement import agreed
from tl_topk.distributed.request import Request
from tl_topk.distributed.results import LocalTopK, Results

__all__ = ["Plan"]


class Plan:
    """:func:`tl_topk.distributed.topk` for many calls of one kind.

    Making one is a collective call: the ranks compare their arguments, once and for good. What is
    left for :meth:`run` asks nothing of the other hosts. A plan holds no memory of a device.

    Args:
        local_scores: scores of the kind that will come: this rank's shape, dtype and device.
        k: as all that follows, see :func:`tl_topk.distributed.topk`; the same on every rank.
        group: likewise.
        layout: likewise.
        block_size: likewise.
        lengths: None, or lengths of the kind that will come.
        largest: likewise.
        order: likewise.
        return_local: likewise.
        method: likewise.

    Raises:
        TypeError, ValueError: on every rank, where an argument of one is not as described, or where
            they disagree.
        RuntimeError: there is no group, the exchange failed, or a graph captures a plan that was
            not made before.

    Example:
        >>> import torch, torch.distributed as dist
        >>> import tl_topk.distributed
        >>> dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
        >>> shard = torch.tensor([0.5, 2.0, 1.0, 2.0])
        >>> plan = tl_topk.distributed.Plan(shard, 2, order="value")
        >>> plan.run(shard).indices.tolist(), plan.run(-shard).indices.tolist()
        ([1, 3], [0, 2])
        >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        local_scores: torch.Tensor,
        k: int,
        *,
        group: object = None,
        layout: str = "contiguous",
        block_size: int | None = None,
        lengths: torch.Tensor | None = None,
        largest: bool = True,
        order: str = "any",
        return_local: bool = False,
        method: str = "auto",
    ) -> None:
        self._options = (layout, block_size, largest, order, return_local, method)
        self._group, self._agreement = agreed(group, local_scores, k, lengths, self._options)

    @property
    def method(self) -> str:
        """``"gather"`` or ``"threshold"``: how the ranks proceed."""
        return self._agreement.method

    def run(
        self, local_scores: torch.Tensor, lengths: torch.Tensor | None = None
    ) -> TopK | LocalTopK:
        """One call: every rank makes it, with its part of the scores.

        Args:
            local_scores: of the shape, dtype and device that the plan was made for; any row stride.
            lengths: if and only if the plan was made with them.

        Returns:
            :class:`tl_topk.TopK`, or :class:`LocalTopK` of a plan with ``return_local``.

        Raises:
            TypeError, ValueError: on this rank, which has not taken part then; the others wait for
                it until the group's timeout.
            RuntimeError: the exchange failed.
        """
        expected = self._agreement.request
        request = Request.of(local_scores, expected.k, lengths, *self._options)
        if request != expected:
            raise ValueError(_deviation(request, expected))
        results = Results.empty(request, local_scores)
        scores = local_scores.detach().resolve_neg().view(request.rows, request.width)
        methods.run(self._agreement, self._group, scores, lengths, results)
        return results.returned(request.dimensions)


def _deviation(request: Request, expected: Request) -> str:
    """What of a call is not as in its plan."""
    if request.lengths != expected.lengths:
        wanted = "a tensor" if expected.lengths else "None"
        return f"lengths: expected {wanted}, as the plan was made with, got otherwise"
    shape = "({0.width},)" if expected.dimensions == 1 else "({0.rows}, {0.width})"
    return (
        "local_scores: expected as the plan was made for, "
        f"{expected.dtype} {shape.format(expected)} on {expected.device!r}, got"
        f" {request.dtype} ({request.rows}, {request.width}) with {request.dimensions}"
        f" dimensions on {request.device!r}"
    )
