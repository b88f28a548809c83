"""A hint never changes the answer, whatever it holds; one of the wrong form is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tl_topk
from harness import NUMPY_CPU, PIPELINED, Target

ROWS, WIDTH, K = 3, 5000, 128


def hints(best: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """The right one, half of it, and the traps that hinted kernels are known for."""
    half = best.copy()
    half[:, ::2] = (half[:, ::2] + 1) % WIDTH
    full = np.full((ROWS, K), 0, np.int32)
    return {
        "the answer": best,
        "half": half,
        "none": np.zeros((ROWS, 0), np.int32),
        "longer": np.tile(best, (1, 30)),
        "one index again and again": full,
        "only -1": full - 1,
        "out of range": full + WIDTH,
        "extremes": np.array([[2**31 - 1, -(2**31)]] * ROWS, np.int32),
        "the worst": full + 7,
    }


@pytest.mark.parametrize("order", ["index", "value"])
def test_the_answer_is_the_same(target: Target, order: str, rng: np.random.Generator) -> None:
    normal = rng.standard_normal((ROWS, WIDTH)).astype(np.float32)
    infinite = np.where(normal > 2, np.float32(np.inf), normal)
    for numbers in (normal, infinite, np.zeros_like(normal), np.full_like(normal, np.nan)):
        scores = target.put(numbers)
        options: dict[str, Any] = {"order": order, "backend": target.backend}
        plain = tl_topk.topk(scores, K, **options)
        best = target.get(plain.indices)
        zeros, pages = target.put(np.zeros(ROWS, np.int32)), np.zeros((ROWS, 1), np.int32)
        for name, numbers_ in hints(best).items():
            hint = target.put(numbers_)
            values, indices = tl_topk.topk(scores, K, hint=hint, **options)
            assert (target.get(indices) == best).all(), name
            assert target.get(values).tobytes() == target.get(plain.values).tobytes(), name
            found = [tl_topk.topk_indices(scores, K, hint=hint, **options)]
            if target != PIPELINED:  # which maps nothing
                found += [
                    tl_topk.topk_ragged(scores, K, zeros, hint=hint, **options),
                    tl_topk.topk_paged(
                        scores, K, target.put(pages), page_size=8192, hint=hint, **options
                    ),
                ]
            for each in found:
                assert (target.get(each) == best).all(), name


def test_one_row_and_outputs() -> None:
    scores, hint = torch.randn(200), torch.arange(9, dtype=torch.int32)
    out = torch.empty(5, dtype=torch.int32)
    assert tl_topk.topk_indices(scores, 5, order="value", hint=hint, out=out) is out
    assert torch.equal(out, tl_topk.topk_indices(scores, 5, order="value"))


@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros((ROWS, 4), np.int64),
        np.zeros((ROWS, 4), np.float32),
        np.zeros((ROWS + 1, 4), np.int32),
        np.zeros(4, np.int32),
        np.zeros((1, ROWS, 4), np.int32),
        [[0]] * ROWS,
        7,
    ],
)
def test_errors(target: Target, wrong: Any) -> None:
    scores = target.put(np.zeros((ROWS, WIDTH), np.float32))
    hint = target.put(wrong) if isinstance(wrong, np.ndarray) else wrong
    offsets = target.put(np.zeros(ROWS, np.int32))
    for call in (tl_topk.topk, tl_topk.topk_indices):
        with pytest.raises((ValueError, TypeError), match=r"^hint: expected .* got "):
            call(scores, K, hint=hint)
    with pytest.raises((ValueError, TypeError), match=r"^hint: expected .* got "):
        tl_topk.topk_ragged(scores, K, offsets, hint=hint)


def test_another_library_or_device() -> None:
    numpy_hint = np.zeros((ROWS, 4), np.int32)
    with pytest.raises(TypeError, match=r"^hint: expected a torch tensor, as scores are"):
        tl_topk.topk_indices(torch.zeros(ROWS, WIDTH), K, hint=numpy_hint)
    with pytest.raises(TypeError, match=r"^hint: expected a NumPy array"):
        tl_topk.topk_indices(
            NUMPY_CPU.put(np.zeros((ROWS, WIDTH), np.float32)), K, hint=torch.from_numpy(numpy_hint)
        )
    elsewhere = torch.zeros((ROWS, 4), dtype=torch.int32, device="meta")
    with pytest.raises(ValueError, match=r"^hint: expected on cpu, got on meta"):
        tl_topk.topk_indices(torch.zeros(ROWS, WIDTH), K, hint=elsewhere)
