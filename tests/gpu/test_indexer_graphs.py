"""The indexer in CUDA graphs and on several streams: nothing is read by the host or shared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import tl_topk
from indexer_cases import FUSED, UNFUSED, Call, Way, contiguous_call, paged_call

pytestmark = pytest.mark.usefixtures("skip_uncompiled")

K = 512
LENS = [9000, 30_000, 700]


@pytest.fixture(params=[UNFUSED, FUSED], ids=str)
def way(request: pytest.FixtureRequest) -> Way:
    return request.param


def same_sets(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one.sort(dim=1).values, other.sort(dim=1).values)


def test_a_graph_replayed_with_other_lengths_and_pages(way: Way, rng: np.random.Generator) -> None:
    given: dict[str, Any] = {**paged_call(rng, LENS).on("cuda"), "k": K, "backend": way.backend}
    out = torch.empty(3, K, dtype=torch.int32, device="cuda")
    tl_topk.indexer_topk(out=out, **given)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tl_topk.indexer_topk(out=out, **given)
        _, scores = tl_topk.indexer_topk(return_scores=True, **given)
    for lens in ([1, 2, 3], [30_000] * 3, LENS, [0, 600, 29_999]):
        given["context_lens"].copy_(torch.tensor(lens))
        given["block_table"].copy_(given["block_table"].roll(1, dims=0))
        out.fill_(-7)
        graph.replay()
        expected, exact = tl_topk.indexer_topk(return_scores=True, **given)
        assert same_sets(out, expected)
        assert torch.equal(scores, exact)


@pytest.mark.parametrize("lens", [[8990], LENS], ids=len)
def test_lengths_written_just_before(way: Way, rng: np.random.Generator, lens: list[int]) -> None:
    """By the kernel ahead on the stream, as in a loop of decoding steps."""
    call = paged_call(rng, lens, max_blocks=500).on("cuda")
    given: dict[str, Any] = {**call, "k": K, "backend": way.backend, "order": "any"}
    outs = [torch.empty(len(lens), K, dtype=torch.int32, device="cuda") for _ in range(12)]
    first = given["context_lens"].clone()
    tl_topk.indexer_topk(**given)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for out in outs:
            given["context_lens"].add_(7)
            tl_topk.indexer_topk(out=out, **given)
    for _ in range(10):
        given["context_lens"].copy_(first)
        graph.replay()
        for step, out in enumerate(outs, 1):
            given["context_lens"].copy_(first + 7 * step)
            assert same_sets(out, tl_topk.indexer_topk(**given))


def test_many_replays(way: Way, rng: np.random.Generator) -> None:
    """Whatever one launch leaves behind in its memory, the next one is right."""
    given: dict[str, Any] = {**paged_call(rng, LENS).on("cuda"), "k": K, "backend": way.backend}
    expected = tl_topk.indexer_topk(**given)
    out = torch.empty_like(expected)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(20):
            tl_topk.indexer_topk(out=out, **given)
    for _ in range(50):
        out.fill_(-7)
        graph.replay()
        assert same_sets(out, expected)


@pytest.mark.parametrize("lens", [[60_000], LENS, [100] * 70], ids=len)
@pytest.mark.parametrize("result", ["positions", "slots"])
def test_different_calls_in_turn(
    way: Way, rng: np.random.Generator, lens: list[int], result: str
) -> None:
    """Their scores lie in the same memory, one after the other: a selection that did not wait for
    its own, or a launch that did not wait for the selection before, would be seen.
    """
    calls = [paged_call(rng, lens).on("cuda") for _ in range(3)]
    given: list[dict[str, Any]] = [
        {**call, "k": K, "backend": way.backend, "result": result} for call in calls
    ]
    expected = [tl_topk.indexer_topk(**each) for each in given]
    outs = [torch.empty_like(each) for each in expected]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(10):
            for each, out in zip(given, outs, strict=True):
                tl_topk.indexer_topk(out=out, **each)
    for _ in range(20):
        for out in outs:
            out.fill_(-7)
        graph.replay()
        assert all(same_sets(*pair) for pair in zip(outs, expected, strict=True))
    for each, right in zip(given * 20, expected * 20, strict=True):
        assert same_sets(tl_topk.indexer_topk(**each), right)


def test_two_streams(way: Way, rng: np.random.Generator) -> None:
    calls: list[Call] = [paged_call(rng, lens) for lens in (LENS, [20_000])]
    given = [{**call.on("cuda"), "k": K, "backend": way.backend} for call in calls]
    expected = [tl_topk.indexer_topk(**each) for each in given]
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    torch.cuda.synchronize()
    found: list[list[Tensor]] = [[], []]
    for _ in range(30):
        for i, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                found[i].append(tl_topk.indexer_topk(**given[i]))
    torch.cuda.synchronize()
    for results, right in zip(found, expected, strict=True):
        assert all(same_sets(result, right) for result in results)


def test_keys_in_a_row_in_a_graph(rng: np.random.Generator) -> None:
    ends = [10, 500, 900, 1000]
    given: dict[str, Any] = {**contiguous_call(rng, 4, 1000, ends=ends).on("cuda"), "k": 64}
    out = torch.empty(4, 64, dtype=torch.int32, device="cuda")
    tl_topk.indexer_topk(out=out, **given)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tl_topk.indexer_topk(out=out, **given)
    for ends in ([1000, 1, 0, 77], [3, 4, 5, 6]):
        given["row_ends"].copy_(torch.tensor(ends))
        graph.replay()
        assert same_sets(out, tl_topk.indexer_topk(**given))


def test_scores_are_the_same_on_pages_and_in_a_row(rng: np.random.Generator) -> None:
    call = paged_call(rng, [5000], k=K)
    given = call.on("cuda")
    _, paged = tl_topk.indexer_topk(k=K, return_scores=True, **given)
    pages = given["keys"][given["block_table"][0].long()].flatten(1)
    keys = pages[:, : 64 * 128].reshape(-1, 128).view(torch.float8_e4m3fn)
    scales = pages[:, 64 * 128 :].contiguous().view(torch.float32).flatten()
    _, row = tl_topk.indexer_topk(
        given["q"][:, 0].contiguous(),
        keys[:5000],
        given["weights"],
        K,
        key_scales=scales[:5000],
        return_scores=True,
    )
    assert torch.equal(paged[:, :5000], row)
