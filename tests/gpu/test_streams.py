"""Streams and devices: the caller's current ones, kept apart and left as they were."""

from __future__ import annotations

import pytest
import torch

import tl_topk
from certificate import assert_certified
from harness import Target

K = 2048
WIDTHS = (4096, 65_536, 262_144, 1_048_576)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_current_stream_orders_the_work(gpu: Target, width: int) -> None:
    """Scores that arrive late, on the caller's stream, are waited for."""
    final = torch.randn(2, width, device="cuda")
    scores = torch.zeros_like(final)
    tl_topk.topk(scores, K, backend=gpu.backend)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        scores.copy_(final)
        result = tl_topk.topk(scores, K, order="value", backend=gpu.backend)
        values, indices = result.values.clone(), result.indices.clone()
    stream.synchronize()
    assert_certified(final, indices, values, order="value")


def test_the_host_does_not_wait(gpu: Target) -> None:
    """Neither lengths nor anything else is read back: the call returns while the GPU sleeps."""
    scores = torch.randn(2, 70_000, device="cuda")
    lengths = torch.tensor([5, 70_000], device="cuda")
    out = tl_topk.topk(scores, K, lengths=lengths, backend=gpu.backend)
    tl_topk.topk_indices(scores, K, lengths=lengths, backend=gpu.backend)
    torch.cuda.synchronize()
    torch.cuda._sleep(200_000_000)
    done = torch.cuda.Event()
    tl_topk.topk(scores, K, lengths=lengths, row_starts=lengths, out=out, backend=gpu.backend)
    tl_topk.topk_indices(scores, K, lengths=lengths, out=out.indices, backend=gpu.backend)
    done.record()
    assert not done.query()
    torch.cuda.synchronize()


def test_two_plans_on_two_streams() -> None:
    rows, width = 1, 262_144
    problems = [torch.randn(rows, width, device="cuda"), torch.zeros(rows, width, device="cuda")]
    plans = [
        tl_topk.TopKPlan(rows, width, K, "float32", "index", True, False, "cuda", 0, 0)
        for _ in problems
    ]
    outputs = [torch.empty(rows, K, device="cuda", dtype=torch.int32) for _ in problems]
    streams = [torch.cuda.Stream() for _ in problems]
    torch.cuda.synchronize()
    for _ in range(1000):
        for plan, scores, indices, stream in zip(plans, problems, outputs, streams, strict=True):
            with torch.cuda.stream(stream):
                plan.run(scores, indices)
    torch.cuda.synchronize()
    for scores, indices in zip(problems, outputs, strict=True):
        assert_certified(scores, indices, order="index")


def test_four_streams_through_the_functions(gpu: Target) -> None:
    streams = [torch.cuda.Stream() for _ in range(4)]
    problems = [torch.randn(1, width, device="cuda").round(decimals=1) for width in WIDTHS]
    problems *= 4
    wrong = torch.zeros((), device="cuda", dtype=torch.int64)
    expected = [tl_topk.topk(scores, K, order="index", backend=gpu.backend) for scores in problems]
    for scores, result in zip(problems[:4], expected, strict=False):
        assert_certified(scores, result.indices, result.values, order="index")
    torch.cuda.synchronize()
    counts = [torch.zeros_like(wrong) for _ in streams]
    torch.cuda.synchronize()
    for turn in range(800):
        stream, count = streams[turn % 4], counts[turn % 4]
        which = (turn * 7 // 4) % len(problems)
        with torch.cuda.stream(stream):
            found = tl_topk.topk_indices(problems[which], K, order="index", backend=gpu.backend)
            count += (found != expected[which].indices).any()
    torch.cuda.synchronize()
    assert sum(count.item() for count in counts) == 0


@pytest.mark.patience(60)
@pytest.mark.parametrize(
    ("rows", "width"), [(1, 1_048_576), (1, 65_536), (16, 65_536), (300, 4096)]
)
def test_while_another_stream_fills_the_gpu(gpu: Target, rows: int, width: int) -> None:
    """Blocks that wait for one another must all be running, however few places are left."""
    scores = torch.randn(rows, width, device="cuda")
    ties = scores.round()
    factor = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    hog, worker = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(hog):
        for _ in range(60):
            torch.mm(factor, factor)
    results = []
    with torch.cuda.stream(worker):
        for turn in range(100):
            given = ties if turn % 2 else scores
            results.append(tl_topk.topk(given, K, order="index", backend=gpu.backend))
    torch.cuda.synchronize()
    for turn, result in enumerate(results):
        assert (result.indices == results[turn % 2].indices).all()
    assert_certified(scores, results[0].indices, results[0].values, order="index")
    assert_certified(ties, results[1].indices, results[1].values, order="index")


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="torch sees fewer than two devices")
def test_the_scores_device_not_the_current_one(gpu: Target) -> None:
    scores = torch.randn(2, 70_000, device="cuda:1")
    torch.cuda.set_device(0)
    result = tl_topk.topk(scores, K, order="index", backend=gpu.backend)
    assert torch.cuda.current_device() == 0
    assert result.indices.device == scores.device
    assert_certified(scores, result.indices, result.values, order="index")
    with pytest.raises((ValueError, TypeError), match=r"\blengths\b"):
        tl_topk.topk(scores, K, lengths=torch.ones(2, device="cuda:0", dtype=torch.int32))
