"""Memory of the GPU: 64-bit offsets, no allocation on the hot path, nothing left behind."""

from __future__ import annotations

import gc
import itertools

import pytest
import torch
from test_graphs import captured

import tl_topk
from certificate import assert_certified
from harness import Target

K = 2048


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("stride", [2**31 - 9, 2**31 + 5])
def test_rows_more_than_2_32_elements_apart(gpu: Target, dtype: torch.dtype, stride: int) -> None:
    rows, width = 3, 40_001
    try:
        flat = torch.empty((rows - 1) * stride + width, device="cuda", dtype=dtype)
    except torch.OutOfMemoryError:
        pytest.skip("not enough memory on this GPU")
    scores = flat.as_strided((rows, width), (stride, 1))
    scores.copy_(torch.randn(rows, width, device="cuda"))
    for k in (K, 5000):
        result = tl_topk.topk(scores, k, order="index", backend=gpu.backend)
        assert_certified(scores, result.indices, result.values, order="index")
    del flat, scores
    torch.cuda.empty_cache()


def test_a_batch_of_more_than_2_31_elements(gpu: Target) -> None:
    """Dense rows, of which the last ones are the interesting ones."""
    rows, width = 4200, 524_288
    try:
        scores = torch.empty(rows, width, device="cuda", dtype=torch.bfloat16)
    except torch.OutOfMemoryError:
        pytest.skip("not enough memory on this GPU")
    scores.normal_()
    result = tl_topk.topk(scores, 512, order="index", backend=gpu.backend)
    for part in (slice(0, 3), slice(4090, 4100), slice(4190, 4200)):
        assert_certified(scores[part], result.indices[part], result.values[part], order="index")


@pytest.mark.parametrize("width", [4096, 65_536, 1_048_576])
@pytest.mark.parametrize("k", [K, 5000])
def test_the_hot_path_allocates_nothing(gpu: Target, width: int, k: int) -> None:
    scores = torch.randn(2, width, device="cuda")
    lengths = torch.tensor([5, width], device="cuda")
    out = tl_topk.topk(scores, k, lengths=lengths, backend=gpu.backend)
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()["allocation.all.allocated"], torch.cuda.mem_get_info()[0]
    for _ in range(50):
        tl_topk.topk(scores, k, lengths=lengths, out=out, backend=gpu.backend)
    torch.cuda.synchronize()
    after = torch.cuda.memory_stats()["allocation.all.allocated"], torch.cuda.mem_get_info()[0]
    assert after == before


def test_many_problems_leave_nothing_behind(gpu: Target) -> None:
    """Plans come and go with the shapes; the memory in use stays bounded."""
    free = []
    for width in range(3000, 33_000, 15):
        tl_topk.topk(torch.ones(1, width, device="cuda"), K, backend=gpu.backend)
        free.append(torch.cuda.mem_get_info()[0])
    assert free[-1] >= free[len(free) // 2] - (16 << 20)
    for _ in range(300):
        plan = tl_topk.TopKPlan(1, 300_000, K, "float32", "any", True, True, "cuda", 0, 0)
        del plan
    gc.collect()
    assert torch.cuda.mem_get_info()[0] >= free[-1] - (64 << 20)


def test_graphs_made_and_dropped(gpu: Target) -> None:
    """Dozens of them: none leaves memory behind, none disturbs another."""
    scores = torch.randn(2, 70_000, device="cuda")

    def call() -> tl_topk.TopK:
        return tl_topk.topk(scores, K, order="index", backend=gpu.backend)

    kept, kept_result = captured(call)

    def free_after(graphs: int) -> int:
        for _ in range(graphs):
            graph, result = captured(call)
            graph.replay()
            kept.replay()
            torch.cuda.synchronize()
            assert (result.indices == kept_result.indices).all()
            del graph, result
            torch.cuda.empty_cache()
        return torch.cuda.mem_get_info()[0]

    # Other processes may use the GPU too: what they take in one round they do not take in all.
    free = [free_after(10) for _ in range(4)]
    assert_certified(scores, kept_result.indices, kept_result.values, order="index")
    lost = [before - after for before, after in itertools.pairwise(free)]
    assert min(lost) < 2 << 20, f"each graph leaves memory behind: {lost} bytes by ten of them"
