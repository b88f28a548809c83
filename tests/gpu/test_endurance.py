"""Very many launches in a row: each leaves the workspace as the next one needs it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import tl_topk
from certificate import assert_certified
from harness import Target

K = 2048
SHAPES = [(1, 4096), (1, 65_536), (1, 262_144), (1, 1_048_576), (4, 40_001), (64, 16_384)]


def pair_of_problems(rows: int, width: int) -> list[Tensor]:
    """One that takes the quick way, and one that is all ties."""
    generator = torch.Generator("cuda").manual_seed(width)
    normal = torch.randn(rows, width, device="cuda", generator=generator)
    return [normal, (normal - 2.5).relu().round()]


@pytest.mark.patience(120)
@pytest.mark.parametrize(("rows", "width"), SHAPES)
@pytest.mark.parametrize("k", [K, 512])
def test_back_to_back_in_a_graph(gpu: Target, rows: int, width: int, k: int) -> None:
    """100,000 launches over one workspace, the two problems in turn, each replay compared."""
    launches = 100_000 if width < 100_000 and rows == 1 else 10_000
    problems = pair_of_problems(rows, width)
    expected = [tl_topk.topk(scores, k, order="index", backend=gpu.backend) for scores in problems]
    for scores, result in zip(problems, expected, strict=True):
        assert_certified(scores, result.indices, result.values, order="index")
    plan = tl_topk.TopKPlan(rows, width, k, "float32", "index", True, True, "cuda", 0, 0)
    outputs = [
        (torch.empty_like(result.indices), torch.empty_like(result.values)) for result in expected
    ]
    wrong = torch.zeros((), device="cuda", dtype=torch.int64)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(50):
            for scores, (indices, values) in zip(problems, outputs, strict=True):
                plan.run(scores, indices, values)
        for (indices, values), result in zip(outputs, expected, strict=True):
            wrong += (indices != result.indices).any()
            wrong += (values != result.values).any()
            indices.fill_(-7)
    for _ in range(launches // 100):
        graph.replay()
    torch.cuda.synchronize()
    assert wrong.item() == 0


@pytest.mark.patience(120)
def test_back_to_back_from_the_host(gpu: Target) -> None:
    """20,000 calls of changing shape, dtype, k and order, without a pause."""
    wrong = torch.zeros((), device="cuda", dtype=torch.int64)
    cases = []
    for rows, width in SHAPES:
        for dtype in (torch.float32, torch.bfloat16):
            for scores in pair_of_problems(rows, width):
                for k, order in ((512, "index"), (2048, "value")):
                    given = scores.to(dtype)
                    result = tl_topk.topk(given, k, order=order, backend=gpu.backend)
                    assert_certified(given, result.indices, result.values, order=order)
                    cases.append((given, k, order, result.indices))
    for turn in range(20_000):
        scores, k, order, expected = cases[turn * 7 % len(cases)]
        found = tl_topk.topk_indices(scores, k, order=order, backend=gpu.backend)
        if turn % 10 == 0:
            wrong += (found != expected).any()
    assert wrong.item() == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_big_batches(gpu: Target, dtype: torch.dtype) -> None:
    """More rows than the GPU has places for, of every kind, with lengths of every size."""
    for rows, width in ((2000, 4096), (700, 16_385), (64, 262_144), (9, 1_048_576)):
        normal = torch.randn(rows, width, device="cuda")
        lengths = torch.randint(0, width + 100, (rows,), device="cuda")
        for scores in (normal, normal.relu(), normal.mul(3).round(), torch.ones_like(normal)):
            given = scores.to(dtype)
            result = tl_topk.topk(given, K, lengths=lengths, order="index", backend=gpu.backend)
            sample = slice(0, rows, max(1, rows // 60))
            assert_certified(
                given[sample],
                result.indices[sample],
                result.values[sample],
                lengths=lengths[sample],
                order="index",
            )
