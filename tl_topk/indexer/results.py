"""From positions to what the caller asked for."""

from __future__ import annotations

import torch
from torch import Tensor

from tl_topk.indexer.arguments import Arguments
from tl_topk.indexer.sizes import PAGE

__all__ = ["convert_positions"]


def convert_positions(a: Arguments, positions: Tensor) -> None:
    """Replaces positions ``(rows, k)`` by slots or ragged indices, in place; -1 stays -1."""
    if a.result == "positions" or positions.numel() == 0:
        return
    there = positions >= 0
    if a.offsets is not None:
        converted = positions + a.offsets.unsqueeze(1)
    else:
        assert a.block_table is not None  # slots are of pages
        if a.block_table.shape[1] == 0:
            return  # nothing was there to be selected
        block = (positions // PAGE).clamp(min=0).long()
        if a.next_n > 1:
            block = block.view(-1, a.next_n * a.k)
        page = a.block_table.gather(1, block).view(positions.shape)
        there = there & (page >= 0) & (page < a.pages)
        converted = page * PAGE + positions % PAGE
    positions.copy_(torch.where(there, converted, -1))
