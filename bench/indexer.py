"""Scores by the indexer's formula: ``sum_h w[h] * relu(q[h] . k[s])`` over drawn q, w and keys.

Made to resemble decoding: rotary positions make neighbours similar, a few keys answer the query,
and from one step to the next the query turns a little while the keys stay.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

__all__ = ["indexer_rows"]

_HEADS, _DIM, _ROTATED = 64, 128, 64
_ALIGNED = 256  # one key in so many resembles the query
_TURN = 0.05  # how far the query turns in a step, in radians


def indexer_rows(generator: Generator, shape: tuple[int, int, int]) -> Tensor:
    """float32 (steps, rows, width); the rows of a step are independent queries."""
    steps, rows, width = shape
    device = generator.device

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=generator, device=device)

    common = normal(_DIM)  # what keys share, so that positions show
    keys = normal(width, _DIM).add_(common)
    query = normal(rows, _HEADS, _DIM)
    keys[::_ALIGNED] += query[0].mean(0) * _HEADS**0.5
    keys = _rotate(keys, torch.arange(width, device=device))
    weights = normal(rows, _HEADS) / _HEADS**0.5
    scores = torch.empty(shape, device=device)
    for step in range(steps):
        turned = _rotate(query, torch.full((_HEADS,), width + step, device=device))
        for row in range(rows):
            products = (turned[row] @ keys.T).relu_()
            torch.mv(products.T, weights[row], out=scores[step, row])
        noise = normal(rows, _HEADS, _DIM)
        query = query * (1 - _TURN**2) ** 0.5 + noise * _TURN
    return scores.div_(_DIM**0.5)


def _rotate(vectors: Tensor, positions: Tensor) -> Tensor:
    """Rotary embedding (base 1e4) of the first dimensions of vectors (..., positions, dim)."""
    half = _ROTATED // 2
    rates = 1e4 ** -(torch.arange(half, device=vectors.device) / half)
    angles = positions.unsqueeze(-1) * rates
    left, right, rest = vectors.tensor_split([half, _ROTATED], dim=-1)
    cosine, sine = angles.cos(), angles.sin()
    return torch.cat([left * cosine - right * sine, right * cosine + left * sine, rest], dim=-1)
