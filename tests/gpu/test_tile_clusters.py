"""The TileLang selector with its blocks made to meet in each of the ways it knows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tl_topk
from certificate import assert_certified
from harness import PIPELINED, TORCH
from reference import ORDERS, Oracle, Order, quantize
from tl_topk.problem import Problem
from tl_topk.tile.plan import pipelined_plan
from zoo import lying_samples, matrix, ordinary, outliers, plateaus, special, ties

K = 512
WAYS = [("float32", 1), ("float32", 8), ("float32", 16), ("bfloat16", 16)]


@pytest.fixture(params=WAYS, ids=lambda way: f"{way[0]}-cluster{way[1]}")
def way(request: pytest.FixtureRequest) -> tuple[str, int]:
    reason = pipelined_unavailable()
    if reason:
        pytest.skip(reason)
    found: tuple[str, int] = request.param
    return found


def pipelined_unavailable() -> str:
    state = tl_topk.info()["backends"]["pipelined"]
    return "" if state == "available" else str(state)


def check(way: tuple[str, int], oracle: Oracle, k: int, order: Order) -> None:
    dtype, cluster = way
    rows, width = oracle.scores.shape
    problem = Problem(rows, width, k, dtype, order, oracle.largest, True, "cuda", 0)
    plan = pipelined_plan(problem, cluster)
    indices = torch.full((rows, k), -7, device="cuda", dtype=torch.int32)
    values = torch.zeros((rows, k), device="cuda", dtype=TORCH[dtype])
    lengths, starts = (
        None if given is None else torch.from_numpy(given).cuda()
        for given in (oracle.lengths, oracle.row_starts)
    )
    for _ in range(3):  # the workspace must be left as it was found
        plan.run(PIPELINED.put(oracle.scores), indices, values, lengths, starts)
    PIPELINED.judge(oracle, k, order, tl_topk.TopK(values, indices))


@pytest.mark.parametrize("width", [37, 4096, 4097, 9001, 65_541])
def test_distributions(way: tuple[str, int], width: int, rng: np.random.Generator) -> None:
    scores, labels = matrix(ordinary(width, way[0], rng) | special(width, way[0], rng))
    for largest, k, order in zip((True, False, True), (33, K, 1), ORDERS, strict=True):
        check(way, Oracle(scores, largest=largest, labels=labels), k, order)


def test_hostile_rows(way: tuple[str, int], rng: np.random.Generator) -> None:
    dtype, width = way[0], 50_000
    for rows in (
        outliers(width, dtype, rng),
        plateaus(width, K, dtype, rng),
        ties(width, K, dtype, rng),
        lying_samples(width, dtype, rng),
    ):
        scores, labels = matrix(rows)
        check(way, Oracle(scores, labels=labels), K, "index")


def test_spans(way: tuple[str, int], rng: np.random.Generator) -> None:
    """Rows of every length and start, with better scores outside."""
    width = 20_001
    lengths = np.array([0, 1, -5, 500, 512, 513, 4096, 4097, 9000, 20_001, 40_000, 7000], np.int32)
    starts = np.array([0, 3, 9, -4, 9600, 77, 5, 6000, 1000, 0, 1, 30_000], np.int32)
    outside = quantize(np.array([np.inf]), way[0])[0]
    scores = np.full((len(lengths), width), outside)
    for row, (begin, end) in enumerate(Oracle(scores, lengths, starts).spans):
        scores[row, begin:end] = quantize(rng.standard_normal(end - begin), way[0])
    check(way, Oracle(scores, lengths, starts), 300, "value")


@pytest.mark.parametrize("cluster", [1, 16])
def test_long_rows(cluster: int) -> None:
    if pipelined_unavailable():
        pytest.skip(pipelined_unavailable())
    scores = torch.randn(2, 1_000_003, device="cuda")
    problem = Problem(2, 1_000_003, 2048, "float32", "any", True, False, "cuda", 0)
    plan = pipelined_plan(problem, cluster)
    indices = torch.empty(2, 2048, device="cuda", dtype=torch.int32)
    plan.run(scores, indices)
    assert_certified(scores, indices)
