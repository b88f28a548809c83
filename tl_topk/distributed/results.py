"""What a call returns."""

from __future__ import annotations

from typing import NamedTuple

import torch

from tl_topk.api import TopK
from tl_topk.distributed.request import Request

__all__ = ["LocalTopK", "Results"]


class LocalTopK(NamedTuple):
    """The result of :func:`tl_topk.distributed.topk` with ``return_local=True``.

    Attributes:
        values: ``(rows, k)`` or ``(k,)`` in the scores' dtype, the same on every rank.
        indices: int32 of the same shape, positions in the whole row, the same on every rank.
        local_indices: int32 of the same shape: which elements of this rank's shard are among them,
            in the same order, as positions in the shard; -1 in the slots past the last.
    """

    values: torch.Tensor
    indices: torch.Tensor
    local_indices: torch.Tensor


class Results(NamedTuple):
    """Memory for the results of all rows, (rows, k) each."""

    values: torch.Tensor
    indices: torch.Tensor
    local: torch.Tensor | None

    @staticmethod
    def empty(request: Request, like: torch.Tensor) -> Results:
        shape = (request.rows, request.k)
        indices = like.new_empty(shape, dtype=torch.int32)
        local = like.new_empty(shape, dtype=torch.int32) if request.return_local else None
        return Results(like.new_empty(shape), indices, local)

    def returned(self, dimensions: int) -> TopK | LocalTopK:
        """To the caller, whose scores have so many dimensions."""
        values, indices, local = self
        if dimensions == 1:
            values, indices = values[0], indices[0]
            local = None if local is None else local[0]
        return TopK(values, indices) if local is None else LocalTopK(values, indices, local)
