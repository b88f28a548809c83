"""How scores are distributed: what indexers make, and what breaks kernels that assume so.

Each draws float32 of a shape (steps, rows, width) on its generator's device. Steps are the inputs
that a measurement rotates through; they are independent unless the distribution says otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from torch import Generator, Tensor

import tl_topk
from bench.indexer import indexer_rows

__all__ = ["DISTRIBUTIONS", "Shape", "find_distribution", "real_width", "reduce_entropy"]

Shape: TypeAlias = tuple[int, int, int]
Draw: TypeAlias = Callable[[Generator, Shape], Tensor]

_ROOT = Path(__file__).parents[1]
_REAL_ROWS = (
    _ROOT.parent / "shared" / "data" / "scores_128k.npy",
    Path(tl_topk.__file__).parent / "data" / "scores_64k.npy",
)
_HEADS = 16  # enough for their weighted sum to look like that of 64


def _normal(generator: Generator, shape: Shape) -> Tensor:
    return torch.randn(shape, generator=generator, device=generator.device)


def _uniform(generator: Generator, shape: Shape) -> Tensor:
    return torch.rand(shape, generator=generator, device=generator.device)


def _offset(generator: Generator, shape: Shape) -> Tensor:
    """Far from zero a float has few mantissa bits left to tell scores apart."""
    return _normal(generator, shape).add_(100)


def _relu_sum(generator: Generator, shape: Shape, both_signs: bool) -> Tensor:
    """Weighted sums of ReLU, as an indexer's. Kernels with fixed buffers for candidates lose some
    where all weights are positive."""
    total = torch.zeros(shape, device=generator.device)
    for _ in range(_HEADS):
        weights = _normal(generator, (*shape[:2], 1))
        if not both_signs:
            weights.abs_()
        total.addcmul_(weights, _normal(generator, shape).relu_())
    return total


def _relu_plateau(generator: Generator, shape: Shape) -> Tensor:
    """So few positives that the k-th lies on a plateau of exact zeros."""
    return _normal(generator, shape).sub_(2.5).relu_()


def _lognormal(generator: Generator, shape: Shape) -> Tensor:
    return _normal(generator, shape).sub_(4.12).exp_()


def _student(generator: Generator, shape: Shape) -> Tensor:
    """Two degrees of freedom: the variance is infinite."""
    chi_squared = _uniform(generator, shape).clamp_min_(1e-9).log_().mul_(-2)
    return _normal(generator, shape).div_(chi_squared.div_(2).sqrt_())


def _outlier(generator: Generator, shape: Shape) -> Tensor:
    """A map from minimum to maximum would put all the rest into one bin."""
    scores = _normal(generator, shape)
    scores[..., shape[-1] // 3] = 1e4
    return scores


def _spikes(generator: Generator, shape: Shape) -> Tensor:
    """500 winners far above; the other places are decided within 1 +- 1e-3."""
    scores = _normal(generator, shape).mul_(1e-3).add_(1)
    where = torch.randint(
        shape[-1], (*shape[:2], 500), generator=generator, device=generator.device
    )
    return scores.scatter_(-1, where, _normal(generator, (*shape[:2], 500)).add_(5))


def _two_values(generator: Generator, shape: Shape) -> Tensor:
    return _uniform(generator, shape).round_()


def _all_equal(generator: Generator, shape: Shape) -> Tensor:
    return torch.full(shape, 1.5, device=generator.device)


def _sorted(generator: Generator, shape: Shape, descending: bool) -> Tensor:
    scores = _normal(generator, shape)
    for step in scores:  # one at a time: sorting needs several times the memory
        step.copy_(step.sort(descending=descending).values)
    return scores


def _one_binade(generator: Generator, shape: Shape) -> Tensor:
    """One exponent: a map by leading bits sees a single bin."""
    return _uniform(generator, shape).add_(1)


def _bf16_rounded(generator: Generator, shape: Shape) -> Tensor:
    return _normal(generator, shape).bfloat16().float()


def _periodic(generator: Generator, shape: Shape) -> Tensor:
    """A strided sample sees all of the high elements, or none."""
    high = torch.arange(shape[-1], device=generator.device) % 4096 < 128
    return _normal(generator, shape).add_(high.float() * 10)


def _real_file() -> Path:
    return next(path for path in _REAL_ROWS if path.is_file())


def real_width() -> int:
    """The longest real row there is."""
    return int(np.load(_real_file(), mmap_mode="r").shape[1])


def _real(generator: Generator, shape: Shape) -> Tensor:
    """Rows of a real model's indexer scores, each begun at another place and wrapped around."""
    steps, rows, width = shape
    real = torch.from_numpy(np.load(_real_file())).to(generator.device)
    if width > real.shape[1]:
        raise ValueError(f"real rows have {real.shape[1]} scores, not {width}")
    begins = torch.randint(
        real.shape[1], (steps * rows,), generator=generator, device=generator.device
    ).tolist()
    picked = [real[i % len(real)].roll(-begin)[:width] for i, begin in enumerate(begins)]
    return torch.stack(picked).reshape(shape)


def _decoding_steps(generator: Generator, shape: Shape, overlap: float) -> Tensor:
    """Each step shares that part of its best 2048 with the step before."""
    kept = _correlation(generator, shape[-1], overlap)
    fresh = (1 - kept**2) ** 0.5
    scores = _normal(generator, shape)
    for before, step in pairwise(scores):
        step.mul_(fresh).add_(before, alpha=kept)
    return scores


def _correlation(generator: Generator, width: int, overlap: float) -> float:
    """How much of a normal row to keep so that its best and the next row's overlap so far."""
    k = min(2048, width // 4)
    before, noise = _normal(generator, (1, 2, width))[0]
    best = torch.zeros(width, dtype=torch.bool, device=generator.device)
    best[before.topk(k).indices] = True
    low, high = -1.0, 1.0  # below zero: less than rows with nothing in common
    for _ in range(20):
        middle = (low + high) / 2
        after = middle * before + (1 - middle**2) ** 0.5 * noise
        shared = best[after.topk(k).indices].sum().item() / k
        low, high = (middle, high) if shared < overlap else (low, middle)
    return middle


DISTRIBUTIONS: dict[str, Draw] = {
    "normal": _normal,
    "uniform": _uniform,
    "offset": _offset,
    "relu sum": partial(_relu_sum, both_signs=True),
    "relu sum of w > 0": partial(_relu_sum, both_signs=False),
    "relu plateau": _relu_plateau,
    "lognormal": _lognormal,
    "student t": _student,
    "outlier": _outlier,
    "spikes": _spikes,
    "two values": _two_values,
    "all equal": _all_equal,
    "sorted up": partial(_sorted, descending=False),
    "sorted down": partial(_sorted, descending=True),
    "one binade": _one_binade,
    "bf16 rounded": _bf16_rounded,
    "periodic": _periodic,
    "real": _real,
    "indexer": indexer_rows,
    **{
        f"steps {percent} %": partial(_decoding_steps, overlap=percent / 100) for percent in (2, 44)
    },
}
_STEPS = re.compile(r"steps (\d+(?:\.\d+)?) %")


def find_distribution(name: str) -> Draw:
    """One of :data:`DISTRIBUTIONS`, or "steps N %" with any N from 0 to 100.

    Raises ValueError where there is none of that name.
    """
    if name in DISTRIBUTIONS:
        return DISTRIBUTIONS[name]
    steps = _STEPS.fullmatch(name)
    if steps is None or float(steps[1]) > 100:
        known = ", ".join(DISTRIBUTIONS)
        raise ValueError(f"expected one of {known} or steps N % (N up to 100), got {name!r}")
    return partial(_decoding_steps, overlap=float(steps[1]) / 100)


def reduce_entropy(scores: Tensor, bits: int) -> Tensor:
    """Keeps the leading bits of each float32 and clears the others."""
    mask = -(1 << (32 - bits))
    return (scores.view(torch.int32) & mask).view(torch.float32)
