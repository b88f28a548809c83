"""Plans of tl_topk.distributed, and what CUDA graphs make of calls and of plans."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

import tl_topk.distributed
import zoo
from rank_checks import METHODS, Call, check_local, judge, own_columns, target
from ranks import Ranks, device, group_of
from reference import Oracle, assert_topk
from tl_topk.distributed import agreement


@pytest.mark.parametrize("method", METHODS)
def test_plans(world: tuple[Ranks, int], method: str, rng: np.random.Generator) -> None:
    rows = {**zoo.ordinary(701, "float32", rng), **zoo.special(701, "float32", rng)}
    matrix = zoo.matrix(rows)[0]
    lengths = rng.integers(-5, 750, len(matrix))
    calls = [
        Call(40, order="index", method=method),
        Call(65, 16, "value", method, largest=False),
        Call(1000, 1, "any", method, lengths=lengths),
        Call(7, method=method, return_local=False),
    ]
    judge(world, matrix, calls, planned=True)
    judge(world, np.zeros((4, 0), np.float32), [Call(3, method=method)], planned=True)
    judge(world, matrix[0], [Call(40, method=method)], planned=True)


def run_plan_many_times(size: int, method: str) -> None:
    """On one rank: results stay as they are while the plan goes on, without the other hosts."""
    rng, group = np.random.default_rng(5), group_of(size)
    where, rank = target(), dist.get_rank(group)
    rows = [rng.standard_normal((3, 900)).astype(np.float32) for _ in range(5)]
    columns = own_columns(size, rank, 900, 0, 1)
    shards = [where.put(np.ascontiguousarray(whole[:, columns])) for whole in rows]
    plan = tl_topk.distributed.Plan(shards[0], 50, group=group, method=method)
    assert plan.method == method
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agreement, "between_hosts", None)
        results = [plan.run(shard) for shard in shards]
    for whole, result in zip(rows, results, strict=True):
        indices, values = where.get(result.indices), where.get(result.values)
        assert_topk(Oracle(whole, None), 50, "any", indices, values)


@pytest.mark.parametrize("method", METHODS)
def test_a_plan_runs_many_times(world: tuple[Ranks, int], method: str) -> None:
    ranks, size = world
    ranks.run(size, run_plan_many_times, method)


def plan_attempt(size: int, changes: dict[int, dict[str, Any]]) -> str:
    arguments: dict[str, Any] = {"local_scores": torch.zeros(2, 50), "k": 4}
    arguments["group"] = group_of(size)
    arguments.update(changes.get(dist.get_rank(arguments["group"]), {}))
    arguments["local_scores"] = arguments["local_scores"].to(device())
    try:
        tl_topk.distributed.Plan(**arguments)
    except (TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def test_plans_disagree(world: tuple[Ranks, int]) -> None:
    ranks, size = world
    if size == 1:
        return
    errors = ranks.run(size, plan_attempt, {1: {"order": "value"}})
    assert len(set(errors)) == 1
    assert errors[0].startswith("ValueError: order: expected the same on every rank"), errors
    errors = ranks.run(size, plan_attempt, {1: {"k": -1}})
    assert errors[1].startswith("ValueError: k: expected 0 to"), errors
    assert errors[0].startswith("ValueError: rank 1 of the group refused its own arguments")


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((torch.zeros(2, 51),), r"local_scores: expected .* float32 \(2, 50\) on 'cpu', got"),
        ((torch.zeros(2, 50).half(),), "local_scores: expected as the plan was made for"),
        ((torch.zeros(50),), "local_scores: expected as the plan was made for"),
        ((torch.zeros(2, 50).double(),), "local_scores: expected 'float32'"),
        ((torch.zeros(2, 50), torch.zeros(2).int()), "lengths: expected None, as the plan"),
    ],
)
def test_not_what_a_plan_was_made_for(given: tuple[torch.Tensor, ...], message: str) -> None:
    plan = tl_topk.distributed.Plan(torch.zeros(2, 50), 4)
    with pytest.raises((TypeError, ValueError), match=message):
        plan.run(*given)


# --- on GPUs -----------------------------------------------------------------------------------


def replay(size: int, method: str, planned: bool) -> None:
    """On one rank: a captured call, replayed with other scores and lengths."""
    group = group_of(size)
    rank, where = dist.get_rank(group), target()
    rng = np.random.default_rng(3)
    rows = [rng.standard_normal((4, 40_000)).astype(np.float32) for _ in range(3)]
    lengths = [np.array(each) for each in ([40_000] * 4, [1, 0, 39_999, 20_001], [30_000] * 4)]
    columns = own_columns(size, rank, 40_000, 64, 0)
    shards = [where.put(np.ascontiguousarray(whole[:, columns])) for whole in rows]
    scores, given = shards[0].clone(), where.put(lengths[0])

    options: dict[str, Any] = {"group": group, "layout": "interleaved", "block_size": 64}
    options |= {"return_local": True, "method": method, "lengths": given}
    plan = tl_topk.distributed.Plan(scores, 600, **options) if planned else None

    def call() -> Any:
        if plan is not None:
            return plan.run(scores, given)
        return tl_topk.distributed.topk(scores, 600, **options)

    with torch.cuda.stream(torch.cuda.Stream()):
        call()
        torch.cuda.set_sync_debug_mode("error")
        try:
            call()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()
    for whole, shard, counted in zip(rows, shards, lengths, strict=True):
        scores.copy_(shard)
        given.copy_(where.put(counted))
        graph.replay()
        indices = where.get(result.indices)
        assert_topk(Oracle(whole, counted), 600, "any", indices, where.get(result.values))
        check_local(where.get(result.local_indices), indices, columns)


def capture_something_new(size: int) -> None:
    scores, group = target().put(np.zeros((2, 78), np.float32)), group_of(size)
    for call in (tl_topk.distributed.topk, tl_topk.distributed.Plan):
        refused = pytest.raises(RuntimeError, match="this very call once on every rank")
        with refused, torch.cuda.graph(torch.cuda.CUDAGraph()):
            call(scores, 5, group=group)


@pytest.mark.gpu
class TestGpu:
    @pytest.fixture(params=[1, 2])
    def on_gpus(self, request: pytest.FixtureRequest, nccl: Ranks) -> tuple[Ranks, int]:
        if request.param not in nccl.sizes:
            pytest.skip(f"needs {request.param} GPUs")
        return nccl, request.param

    @pytest.mark.parametrize("planned", [False, True])
    @pytest.mark.parametrize("method", METHODS)
    def test_replay(self, on_gpus: tuple[Ranks, int], method: str, planned: bool) -> None:
        ranks, size = on_gpus
        ranks.run(size, replay, method, planned)

    def test_new_under_capture(self, on_gpus: tuple[Ranks, int]) -> None:
        ranks, size = on_gpus
        ranks.run(size, capture_something_new)
