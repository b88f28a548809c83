"""The GPU's part: TileLang programs, compiled on first use, launched on the current stream."""

from __future__ import annotations

import itertools
import secrets
from functools import cache
from typing import Any

import torch
from torch import Tensor

from tl_topk import _ffi
from tl_topk.indexer.arguments import Arguments
from tl_topk.indexer.host_scores import visible_range
from tl_topk.indexer.score_host import ARCH, RESULT_KINDS, score_kernel
from tl_topk.indexer.shapes import ScoreShape
from tl_topk.tile.compiler import Program
from tl_topk.tile.library import load

__all__ = ["blocks_of", "compute_scores", "fused_kernel", "ready", "select_pages"]

_ALIGNMENT = 16  # of what tensor maps point to
_SEGMENT = 1024  # survivors that a block can pass on for one row

#: Tells the launches of a fused program apart. Random at first: what another launch left in memory
#: must not look like this one's.
_nonces = itertools.count(secrets.randbits(31))


def compute_scores(
    a: Arguments, scores: Tensor, timed: bool = False
) -> tuple[Tensor | None, Tensor]:
    """Fills ``scores`` ``(rows, width)`` where the rows see keys; returns what each row sees, as
    (starts, lengths).

    ``timed``: from pages, by the program that keeps clocks, for benchmarks.
    """
    if a.block_table is not None:
        shape, lengths = _paged(a, fused=False)
        _launch(a, shape, scores, None, lengths, timed=timed)
        return None, lengths
    starts, lengths = _range_of_each(a)
    _launch(a, ScoreShape.of_row(a.heads, a.has_scales), scores, starts, lengths)
    return starts, lengths


def select_pages(a: Arguments, scores: Tensor, indices: Tensor, timed: bool = False) -> None:
    """Scores pages and fills ``indices`` ``(rows, k)`` with the whole result by one launch.

    ``timed``: by the program that keeps clocks, for benchmarks.
    """
    shape, lengths = _paged(a, fused=True)
    blocks = blocks_of(shape, a.device.index)
    exchange_bytes = shape.exchange_bytes(blocks, a.rows // a.next_n, _SEGMENT)
    exchange = torch.empty(exchange_bytes, dtype=torch.uint8, device=a.device)
    _launch(
        a,
        shape,
        scores,
        None,
        lengths,
        exchange.data_ptr(),
        indices.data_ptr(),
        _address(a.offsets),
        _SEGMENT,
        next(_nonces) % 0x7FFFFFFF + 1,
        a.k,
        RESULT_KINDS[a.result],
        timed=timed,
    )


def fused_kernel(a: Arguments) -> tuple[Program, str]:
    """What :func:`select_pages` would launch, and for which architecture."""
    shape, _ = _paged(a, fused=True)
    return score_kernel(shape), ARCH


def _paged(a: Arguments, fused: bool) -> tuple[ScoreShape, Tensor]:
    """The program, and where the lengths of the rows are or will be written."""
    assert a.context_lens is not None  # a paged call has them
    per_query = a.context_lens.dim() == 2
    shape = ScoreShape(True, a.heads, a.next_n, a.has_scales, a.compress_ratio, per_query, fused)
    if shape.lens_are_lengths:
        return shape, a.context_lens.view(-1)
    return shape, torch.empty(a.rows, dtype=torch.int32, device=a.device)


def _range_of_each(a: Arguments) -> tuple[Tensor, Tensor]:
    starts, lengths = visible_range(a)
    if starts is None:
        starts = torch.zeros(a.rows, dtype=torch.int32, device=a.device)
    if lengths is None:
        lengths = a.width - starts
    return starts, lengths


def _launch(
    a: Arguments,
    shape: ScoreShape,
    scores: Tensor,
    starts: Tensor | None,
    lengths: Tensor,
    *more: int,
    timed: bool = False,
) -> None:
    for name, tensor in (("q", a.q), ("keys", a.keys)):
        if tensor.data_ptr() % _ALIGNMENT:
            raise ValueError(
                f"{name}: expected memory aligned to {_ALIGNMENT} bytes on a GPU,"
                f" got {tensor.data_ptr() % _ALIGNMENT} beyond"
            )
    device = a.device.index
    launch = ready(shape, device, timed)["launch"]
    with torch.cuda.device(device):
        launch(
            a.q.data_ptr(),
            a.keys.data_ptr(),
            _address(a.keys if shape.paged else a.key_scales),
            a.weights.data_ptr(),
            _address(a.block_table),
            _address(a.context_lens),
            _address(starts),
            lengths.data_ptr(),
            scores.data_ptr(),
            -(-a.rows // shape.queries),
            a.rows,
            a.pages,
            0 if a.block_table is None else a.block_table.shape[1],
            a.width,
            *more,
            blocks_of(shape, device),
            torch.cuda.current_stream(device).cuda_stream,
        )


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


@cache
def ready(shape: ScoreShape, device: int, timed: bool = False) -> Any:
    """The program's library, loaded on ``device``."""
    module = load(score_kernel(shape, timed), ARCH)
    with torch.cuda.device(device):
        module["prepare"]()
    return module


@cache
def blocks_of(shape: ScoreShape, device: int) -> int:
    """Thread blocks of a launch."""
    return shape.blocks_per_multiprocessor * int(_ffi.device_info(device).sms)
