"""CUDA graphs: captured once, replayed over changed scores and lengths, whatever was freed."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

import tl_topk
from certificate import assert_certified
from harness import Target

K = 2048
SHAPES = [(1, 3000), (1, 4096), (1, 65_536), (1, 262_144), (3, 40_001), (20, 16_384), (300, 2500)]


def contents(rows: int, width: int) -> Iterator[Tensor]:
    """Scores that send a kernel down each of its paths in turn, quick ones between slow ones."""
    generator = torch.Generator("cuda").manual_seed(rows * width)
    normal = torch.randn(rows, width, device="cuda", generator=generator)
    yield normal
    yield torch.zeros_like(normal)
    yield normal * 7 + 3
    yield normal.relu()
    yield torch.where(normal > 1, normal, float("nan"))
    yield (normal * 2).round()
    yield normal.sort().values
    yield normal.flip(1)


def some_lengths(rows: int, width: int) -> Iterator[Tensor]:
    row = torch.arange(rows, device="cuda", dtype=torch.int32)
    yield torch.full_like(row, width)
    yield row % 7 - 3
    yield width - row
    yield (row * 977) % (width + 9)
    yield torch.full_like(row, 2**31 - 1)


def captured(call: Callable[[], tl_topk.TopK]) -> tuple[torch.cuda.CUDAGraph, tl_topk.TopK]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()
    return graph, result


def compile_ahead(gpu: Target, scores: Tensor) -> None:
    """`pipelined` compiles nothing during a capture, and no test may rely on another's having run:
    by a problem that the same program serves, but another plan.
    """
    if gpu.backend == "pipelined":
        tl_topk.topk(scores, K - 1, order="index", backend=gpu.backend)


def replay_over_everything(
    graph: torch.cuda.CUDAGraph, scores: Tensor, lengths: Tensor, result: tl_topk.TopK
) -> None:
    rows, width = scores.shape
    for length in some_lengths(rows, width):
        lengths.copy_(length)
        for content in contents(rows, width):
            scores.copy_(content)
            result.indices.fill_(-7)
            graph.replay()
            assert_certified(scores, result.indices, result.values, lengths=lengths, order="index")


@pytest.mark.parametrize(("rows", "width"), SHAPES)
@pytest.mark.parametrize("warm", [True, False], ids=["warm", "first call captured"])
def test_replay_with_changed_scores_and_lengths(
    gpu: Target, rows: int, width: int, warm: bool
) -> None:
    scores = torch.zeros(rows, width, device="cuda")
    lengths = torch.zeros(rows, device="cuda", dtype=torch.int32)

    def call() -> tl_topk.TopK:
        return tl_topk.topk(scores, K + warm, lengths=lengths, order="index", backend=gpu.backend)

    if warm:
        call()
    else:
        compile_ahead(gpu, scores)
    graph, result = captured(call)
    if rows > 64:
        scores.copy_(next(contents(rows, width)))
        lengths.fill_(width)
        graph.replay()
        assert_certified(scores, result.indices, result.values, lengths=lengths, order="index")
    else:
        replay_over_everything(graph, scores, lengths, result)


def test_a_plan_and_given_outputs() -> None:
    rows, width = 2, 50_000
    scores = torch.zeros(rows, width, device="cuda")
    lengths = torch.zeros(rows, device="cuda", dtype=torch.int32)
    values = torch.empty(rows, K, device="cuda")
    indices = torch.empty(rows, K, device="cuda", dtype=torch.int32)
    plan = tl_topk.TopKPlan(rows, width, K, "float32", "index", True, True, "cuda", 0, 0)

    def call() -> tl_topk.TopK:
        plan.run(scores, indices, values, lengths)
        return tl_topk.TopK(values, indices)

    graph, result = captured(call)
    replay_over_everything(graph, scores, lengths, result)


def test_nothing_that_is_freed_is_needed(gpu: Target) -> None:
    """Every cached plan is pushed out, every free block overwritten, and the graph still runs."""
    scores = torch.randn(1, 300_000, device="cuda")
    compile_ahead(gpu, scores)
    graph, result = captured(lambda: tl_topk.topk(scores, K, order="index", backend=gpu.backend))
    for extra in range(400):
        tl_topk.topk(torch.ones(1, 10_000 + extra, device="cuda"), K, backend=gpu.backend)
    gc.collect()
    torch.cuda.empty_cache()
    for size in (1 << 12, 1 << 20, 1 << 26):
        blocks = [torch.full((size,), 0xA5, device="cuda", dtype=torch.uint8) for _ in range(30)]
        del blocks
    for content in contents(1, 300_000):
        scores.copy_(content)
        result.indices.fill_(-7)
        graph.replay()
        assert_certified(scores, result.indices, result.values, order="index")


def test_two_graphs_of_one_problem_on_two_streams(gpu: Target) -> None:
    """They may run at once, so they may share no workspace."""
    problems = [torch.randn(1, 262_144, device="cuda").mul_(scale) for scale in (1, 5)]
    problems[1].relu_()
    graphs = [
        captured(lambda scores=scores: tl_topk.topk(scores, K, order="index", backend=gpu.backend))
        for scores in problems
    ]
    streams = [torch.cuda.Stream() for _ in graphs]
    for _ in range(300):
        for stream, (graph, _) in zip(streams, graphs, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
    torch.cuda.synchronize()
    for scores, (_, result) in zip(problems, graphs, strict=True):
        assert_certified(scores, result.indices, result.values, order="index")


def test_one_graph_of_many_calls_and_a_branch(gpu: Target) -> None:
    """Several problems in one capture, two of them on a forked stream."""
    problems = [torch.randn(rows, width, device="cuda") for rows, width in SHAPES[:6]]
    side = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    results = []
    with torch.cuda.graph(graph):
        main = torch.cuda.current_stream()
        side.wait_stream(main)
        for turn, scores in enumerate(problems):
            with torch.cuda.stream(side if turn % 2 else main):
                results.append(tl_topk.topk(scores, K, order="index", backend=gpu.backend))
        main.wait_stream(side)
    for _ in range(50):
        graph.replay()
    for scores, result in zip(problems, results, strict=True):
        assert_certified(scores, result.indices, result.values, order="index")
