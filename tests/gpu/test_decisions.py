"""Decisions on a GPU: every candidate selects the same, and captured calls ask nobody."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tl_topk
from tl_topk import Decision, Problem, TopKPlan
from tl_topk.calibrate import plans_of

pytestmark = pytest.mark.gpu

ROWS, WIDTH, K = 5, 70_000, 512


def scores(rows: int = ROWS, width: int = WIDTH) -> torch.Tensor:
    generator = torch.Generator(device="cuda").manual_seed(rows * width)
    return torch.randn(rows, width, generator=generator, device="cuda")


def best(given: torch.Tensor, k: int = K) -> torch.Tensor:
    return given.topk(k, dim=1).indices.sort(dim=1).values.int()


def on_gpu(**changes: Any) -> Problem:
    device = torch.cuda.current_device()
    shape: dict[str, Any] = {"rows": ROWS, "width": WIDTH, "k": K, "dtype": "float32", **changes}
    return Problem(**shape, values=False, device_type="cuda", device_id=device)


@pytest.mark.parametrize("lengths", [None, [70_000, 513, 512, 3, 0]])
def test_every_candidate_selects_the_same(lengths: list[int] | None) -> None:
    given = scores()
    some = None if lengths is None else torch.tensor(lengths, device="cuda")
    expected = tl_topk.topk_indices(given, K, lengths=some, order="index")
    plans = plans_of(on_gpu(order="index"))
    assert len(plans) >= 2
    for plan in plans.values():
        found = torch.full_like(expected, -7)
        plan.run(given, found, lengths=some)
        assert torch.equal(found, expected)


@pytest.mark.parametrize("k", [1, K, 5000])
@pytest.mark.parametrize("blocks", [1, 2, 4, 8, 16])
def test_blocks_that_were_asked_for(blocks: int, k: int) -> None:
    given = scores()
    if tl_topk.info()["devices"][torch.cuda.current_device()]["max_cluster"] < blocks:
        pytest.skip("no such clusters")
    plan = TopKPlan(ROWS, WIDTH, k, values=False, device_type="cuda", blocks_per_row=blocks)
    assert plan.config is not None
    assert plan.config.blocks_per_row == blocks
    found = torch.empty(ROWS, k, dtype=torch.int32, device="cuda")
    plan.run(given, found)
    assert torch.equal(found.sort(dim=1).values, best(given, k))


def test_more_rows_than_clusters_fit_at_once() -> None:
    given = scores(200, 9000)
    expected = best(given)
    for plan in plans_of(on_gpu(rows=200, width=9000)).values():
        found = torch.empty(200, K, dtype=torch.int32, device="cuda")
        plan.run(given, found)
        assert torch.equal(found.sort(dim=1).values, expected)


@pytest.mark.parametrize("policy", ["rule", "model", "measured", "fixed:dsmem"])
def test_policies(policy: str) -> None:
    given = scores()
    assert torch.equal(tl_topk.topk_indices(given, K, order="index", policy=policy), best(given))


def test_a_captured_call_asks_nobody() -> None:
    asked = []

    def mine(problem: Problem) -> Decision:
        asked.append(problem)
        return Decision("dsmem", "a test says so", blocks_per_row=2)

    given = scores()
    lengths = torch.full((ROWS,), WIDTH, dtype=torch.int32, device="cuda")
    out = torch.empty(ROWS, K, dtype=torch.int32, device="cuda")
    tl_topk.topk_indices(given, K, lengths=lengths, out=out, order="index", policy=mine)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tl_topk.topk_indices(given, K, lengths=lengths, out=out, order="index", policy=mine)
    for length in (WIDTH, 2000, 700):
        lengths.fill_(length)
        graph.replay()
        assert torch.equal(out, best(given[:, :length]))
    assert len(asked) == 1
    assert asked[0].gpu is not None


def test_explains_this_gpu() -> None:
    answer = tl_topk.explain(1, 1 << 20, 2048)
    assert answer["backend"] == "dsmem"
    assert answer["problem"]["gpu"]["name"] == torch.cuda.get_device_name()
    assert answer["config"] is not None
    assert answer["config"]["grid_blocks"] >= 1
    with pytest.raises(ValueError, match="'cpu'"):
        tl_topk.explain(1, 100, 5, device="cuda", policy="fixed:cpu")
