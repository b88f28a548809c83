"""tl_topk.distributed on Gloo groups of 1, 2, 3 and 8 processes, and on NCCL where there are GPUs.

Every rank makes the same whole rows, keeps its own shard of them, and compares what it gets with
the reference's answer for the whole rows.
"""

from __future__ import annotations

import doctest
import os
import re
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

import tl_topk
import tl_topk.distributed
import tl_topk.distributed.api
import tl_topk.distributed.plan
import zoo
from rank_checks import METHODS, Call, judge, target
from ranks import RankError, Ranks, device, group_of
from reference import DTYPES, ORDERS
from tl_topk.distributed import exchange, methods, rule

LAYOUTS = (0, 1, 16)  # block sizes; 0: contiguous


# --- exactness ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", METHODS)
def test_hostile_rows(
    world: tuple[Ranks, int], dtype: str, method: str, rng: np.random.Generator
) -> None:
    rows = {**zoo.ordinary(701, dtype, rng), **zoo.special(701, dtype, rng)}
    rows = {**rows, **zoo.plateaus(701, 40, dtype, rng)}
    calls = [
        Call(k, block, order, method, largest, seed=k)
        for k, (order, largest, block) in zip(
            (40, 1, 300, 64, 701, 7, 40, 1000, 129, 40, 65, 33),
            product(ORDERS, (True, False), (0, 16)),
            strict=True,
        )
    ]
    judge(world, zoo.matrix(rows)[0], calls)


@pytest.mark.parametrize("method", METHODS)
def test_ties_across_the_border(world: tuple[Ranks, int], method: str) -> None:
    """All equal: the lowest indices win, wherever the shards begin."""
    rows = np.zeros((3, 500), np.float32)
    rows[1, ::2] = -0.0
    rows[2] = np.nan
    calls = [
        Call(k, block, order, method, largest)
        for k, block, order, largest in product((3, 250, 499), LAYOUTS, ORDERS, (True, False))
    ]
    judge(world, rows, calls)


@pytest.mark.parametrize("method", METHODS)
def test_all_winners_on_one_rank(world: tuple[Ranks, int], method: str) -> None:
    rows = np.sort(np.random.default_rng(1).standard_normal((2, 4096)).astype(np.float32), axis=1)
    rows[1] = rows[1, ::-1]
    judge(world, rows, [Call(512, order=order, method=method) for order in ORDERS])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_lengths(
    world: tuple[Ranks, int], method: str, kind: type, rng: np.random.Generator
) -> None:
    lengths = np.array([0, 1, -5, 299, 300, 301, 17, 160, 2**31 - 1, 33, 64], kind)
    if kind is np.int64:
        lengths[1] = -(2**62)
        lengths[8] = 2**62
    rows = rng.standard_normal((len(lengths), 300)).astype(np.float32)
    calls = [
        Call(k, block, order, method, lengths=lengths)
        for k, block, order in product((50,), LAYOUTS, ORDERS)
    ]
    judge(world, rows, calls)


@pytest.mark.parametrize("method", METHODS)
def test_degenerate_shapes(world: tuple[Ranks, int], method: str) -> None:
    for shape, k in (((4, 0), 3), ((0, 50), 3), ((2, 50), 0), ((2, 1), 1), ((9,), 4), ((0,), 2)):
        rows = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        calls = [Call(k, block, method=method) for block in (0, 4)]
        judge(world, rows, calls)


@pytest.mark.parametrize("method", METHODS)
def test_large_k(world: tuple[Ranks, int], method: str, rng: np.random.Generator) -> None:
    """Beyond the k that is served at speed."""
    rows = np.round(rng.standard_normal((2, 12_000)) * 50).astype(np.float32)
    judge(world, rows, [Call(5000, order=order, method=method) for order in ORDERS])


# --- what is sent ------------------------------------------------------------------------------


def bytes_received(size: int, rows: int, k: int, dtype: str, method: str) -> int:
    """On one rank: in one call, from the tensors that the collectives are given."""
    received = 0

    def all_gather(gathered: torch.Tensor, own: torch.Tensor, group: Any) -> None:
        nonlocal received
        received += gathered.nbytes - own.nbytes
        exchange.all_gather(gathered, own, group)

    def all_reduce(summands: torch.Tensor, group: Any) -> None:
        nonlocal received
        received += 2 * (size - 1) * summands.nbytes // size
        exchange.all_reduce(summands, group)

    scores = target().put(np.zeros((rows, 2 * k), np.float32)).to(getattr(torch, dtype))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(methods, "all_gather", all_gather)
        patch.setattr(methods, "all_reduce", all_reduce)
        tl_topk.distributed.topk(scores, k, group=group_of(size), method=method)
    return received


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("rows", "k", "dtype"), [(1, 2048, "float32"), (3, 100, "bfloat16")])
def test_bytes_received(
    world: tuple[Ranks, int], method: str, rows: int, k: int, dtype: str
) -> None:
    """What the rule states is what the collectives are given."""
    ranks, size = world
    stated = rule.received_bytes(method, size, rows, k, getattr(torch, dtype).itemsize)
    assert ranks.run(size, bytes_received, rows, k, dtype, method) == [stated] * size


class TestRule:
    def test_few_bytes_are_gathered(self) -> None:
        assert rule.choose_method(2, 64, 2048, 4) == "gather"
        assert rule.choose_method(8, 1, 2048, 4) == "gather"

    def test_many_ranks_agree_on_a_threshold(self) -> None:
        assert rule.choose_method(16, 1, 2048, 4) == "threshold"
        assert rule.choose_method(64, 64, 2048, 4) == "threshold"
        gathered = rule.received_bytes("gather", 64, 64, 2048, 4)
        assert rule.received_bytes("threshold", 64, 64, 2048, 4) * 8 < gathered

    def test_many_rows_as_well(self) -> None:
        assert rule.choose_method(8, 16, 2048, 4) == "gather"
        assert rule.choose_method(8, 256, 2048, 4) == "threshold"

    @pytest.mark.parametrize("k", [1, 2, 8, 100, 512, 2048, 4096, 100_000])
    def test_the_stride_is_about_the_best(self, k: int) -> None:
        def received(stride: int) -> float:
            return k / stride + 2 * stride  # of a row, per rank, in pairs

        assert received(rule.stride_of(k)) <= 1.1 * min(received(2**i) for i in range(20))


# --- bad input ---------------------------------------------------------------------------------


def attempt(size: int, changes: dict[int, dict[str, Any]]) -> str:
    """On one rank: calls with this rank's changes; the error, or "" without one."""
    arguments: dict[str, Any] = {"local_scores": torch.zeros(2, 50), "k": 4}
    arguments["group"] = group_of(size)
    arguments.update(changes.get(dist.get_rank(arguments["group"]), {}))
    for name, argument in arguments.items():
        if isinstance(argument, torch.Tensor):
            arguments[name] = argument.to(device())
    try:
        tl_topk.distributed.topk(**arguments)
    except (TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"local_scores": torch.zeros(3, 50)}, "rows"),
        ({"local_scores": torch.zeros(50)}, "dimensions"),
        ({"local_scores": torch.zeros(2, 50).half()}, "dtype"),
        ({"k": 5}, "k"),
        ({"layout": "interleaved", "block_size": 1}, "layout"),
        ({"lengths": torch.zeros(2, dtype=torch.int32)}, "lengths"),
        ({"largest": False}, "largest"),
        ({"order": "value"}, "order"),
        ({"return_local": True}, "return_local"),
        ({"method": "threshold"}, "method"),
    ],
)
def test_ranks_disagree(world: tuple[Ranks, int], change: dict[str, Any], name: str) -> None:
    """In steady state as well, and with what all have asked for before: every rank learns it."""
    ranks, size = world
    for same in ({}, dict.fromkeys(range(size), change)):
        assert ranks.run(size, attempt, same) == [""] * size
    if size == 1:
        return
    errors = ranks.run(size, attempt, {1: change})
    assert len(set(errors)) == 1
    assert errors[0].startswith(f"ValueError: {name}: expected the same on every rank"), errors
    assert ranks.run(size, attempt, {}) == [""] * size


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"local_scores": torch.zeros(2, 50).double()}, "TypeError: local_scores: expected 'float"),
        ({"local_scores": torch.zeros(2, 3, 4)}, "ValueError: local_scores: expected shape"),
        ({"local_scores": torch.zeros(50, 2).T}, "ValueError: local_scores: expected unit stride"),
        (
            {"local_scores": torch.zeros(50).requires_grad_()},
            "ValueError: local_scores: expected s",
        ),
        ({"k": -1}, "ValueError: k: expected 0 to"),
        ({"k": 1.5}, "TypeError: k: expected an integer"),
        ({"layout": "striped"}, "ValueError: layout: expected 'contiguous' or 'interleaved'"),
        ({"layout": "interleaved"}, "TypeError: block_size: expected an integer, got NoneType"),
        ({"layout": "interleaved", "block_size": 0}, "ValueError: block_size: expected 1 to"),
        ({"block_size": 4}, "ValueError: block_size: expected None"),
        ({"lengths": [1, 2]}, "TypeError: lengths: expected a torch tensor"),
        ({"lengths": torch.zeros(2)}, "TypeError: lengths: expected int32 or int64"),
        ({"lengths": torch.zeros(3, dtype=torch.int32)}, "ValueError: lengths: expected shape"),
        ({"largest": None}, "TypeError: largest: expected True or False"),
        ({"order": "best"}, "ValueError: order: expected"),
        ({"return_local": 2}, "TypeError: return_local: expected True or False"),
        ({"method": "guess"}, "ValueError: method: expected 'auto', 'gather' or 'threshold'"),
    ],
)
@pytest.mark.parametrize("backend", ["gloo", pytest.param("nccl", marks=pytest.mark.gpu)], ids=str)
def test_one_rank_is_wrong(
    request: pytest.FixtureRequest, backend: str, change: dict[str, Any], message: str
) -> None:
    """It says what is wrong, and the others that it was that one."""
    ranks: Ranks = request.getfixturevalue(backend)
    if 2 not in ranks.sizes:
        pytest.skip("needs 2 GPUs")
    errors = ranks.run(2, attempt, {1: change})
    assert errors[1].startswith(message), errors
    assert errors[0].startswith("ValueError: rank 1 of the group refused its own arguments")


def test_hosts_of_several_groups(gloo: Ranks) -> None:
    """Ranks that are in different numbers of groups find one another, as NCCL's do."""
    assert gloo.run(1, met_apart) == [[[0, 7]]]
    assert gloo.run(2, met_apart) == [[[0, 7], [1, 7]]] * 2
    assert gloo.run(3, met_apart) == [[[0, 7], [1, 7], [2, 7]]] * 3


def met_apart(size: int) -> list[list[int]]:
    """What hosts tell one another where the group's own backend is for GPUs alone."""
    group = group_of(size)
    hosts = exchange._gloo_of(group, timedelta(seconds=20))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, "get_backend_config", lambda _: "cuda:nccl")
        patch.setitem(exchange._HOSTS, group, hosts)
        return exchange.between_hosts(group, [dist.get_rank(group), 7])


def test_shards_of_no_interleaved_row(gloo: Ranks) -> None:
    change = {"layout": "interleaved", "block_size": 16}
    narrow = {**change, "local_scores": torch.zeros(2, 49)}
    errors = gloo.run(2, attempt, {0: narrow, 1: change})
    assert len(set(errors)) == 1
    assert errors[0].startswith("ValueError: local_scores: expected 51 elements on rank 0"), errors


def test_too_wide_in_all(gloo: Ranks) -> None:
    wide = {"local_scores": torch.zeros(1).half().expand(2**30 + 1)}
    (error, other) = gloo.run(2, attempt, {0: wide, 1: wide})
    assert error == other


def test_without_a_group() -> None:
    with pytest.raises(RuntimeError, match=r"group: torch\.distributed has no group"):
        tl_topk.distributed.topk(torch.zeros(4), 2)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"local_scores": [1.0, 2.0]}, TypeError, "local_scores: expected a torch tensor, got li"),
        ({"local_scores": torch.zeros(2, 9).to_sparse()}, TypeError, "expected a strided tensor"),
        ({"local_scores": torch.zeros(2, 9).double()}, TypeError, "got 'float64'"),
        ({"local_scores": torch.zeros(2, 9, device="meta")}, ValueError, "got on meta"),
        ({"local_scores": torch.zeros(2, 3, 4)}, ValueError, r"\(rows, length\), got \(2, 3, 4\)"),
        ({"local_scores": torch.zeros(())}, ValueError, r"\(rows, length\), got \(\)"),
        ({"local_scores": torch.zeros(9, 2).T}, ValueError, "expected unit stride in the last dim"),
        (
            {"local_scores": torch.zeros(2, 9, requires_grad=True)},
            ValueError,
            r"pass local_scores\.detach\(\)",
        ),
        ({"lengths": [3, 4]}, TypeError, "lengths: expected a torch tensor, got list"),
        ({"lengths": torch.ones(2)}, TypeError, "lengths: expected int32 or int64, got torch.floa"),
        ({"lengths": torch.ones(3).int()}, ValueError, r"expected shape \(2,\), got \(3,\)"),
        ({"lengths": torch.ones(4).int()[::2]}, ValueError, "expected unit stride, got 2"),
        (
            {"lengths": torch.ones(2, device="meta").int()},
            ValueError,
            "expected on cpu, as local_s",
        ),
    ],
)
def test_what_is_wrong_is_named(
    changed: dict[str, Any], error: type[Exception], words: str
) -> None:
    given: dict[str, Any] = {"local_scores": torch.zeros(2, 9), **changed}
    with pytest.raises(error, match=words):
        tl_topk.distributed.topk(given.pop("local_scores"), 2, **given)


@pytest.mark.usefixtures("alone")
def test_the_readme_runs() -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    (example,) = (
        block
        for block in re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
        if "distributed" in block
    )
    lengths = torch.tensor([5000, 100])
    names: dict[str, Any] = {"local_scores": torch.rand(2, 5000), "whole_lengths": lengths}
    exec(example, names)
    assert torch.equal(names["own"], names["indices"])
    assert (names["indices"][1, 100:] == -1).all()


def test_examples_in_docstrings() -> None:
    for module in (tl_topk.distributed.api, tl_topk.distributed.plan):
        result = doctest.testmod(module)
        assert result.attempted > 0
        assert result.failed == 0


def attempt_from_outside(size: int) -> str:
    """On a rank that the group of ``size`` does not have, if there are more ranks."""
    outside = dist.GroupMember.NON_GROUP_MEMBER
    try:
        tl_topk.distributed.topk(torch.zeros(4), 2, group=outside)
    except ValueError as error:
        return str(error)
    return ""


def test_from_outside_the_group(gloo: Ranks) -> None:
    (error,) = gloo.run(1, attempt_from_outside)
    assert error.startswith("group: expected a torch.distributed group that this rank belongs to")


def default_group(size: int) -> list[int]:
    scores = torch.full((3,), float(dist.get_rank()))
    return tl_topk.distributed.topk(scores, 4, order="value").indices.tolist()


def test_the_default_group(gloo: Ranks) -> None:
    assert gloo.run(8, default_group) == [[21, 22, 23, 18]] * 8


def end_on_rank_1(size: int) -> str:
    group = group_of(size)
    scores = torch.zeros(2, 50, device=device())
    tl_topk.distributed.topk(scores, 4, group=group)
    if dist.get_rank(group) == 1:
        os._exit(1)
    try:
        tl_topk.distributed.topk(scores, 4, group=group)
    except RuntimeError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("backend", "size"), [("gloo", 3), pytest.param("nccl", 2, marks=pytest.mark.gpu)]
)
def test_a_rank_dies(tmp_path: Path, backend: str, size: int) -> None:
    """The others end with a message, within the group's timeout."""
    if backend == "nccl" and torch.cuda.device_count() < size:
        pytest.skip(f"needs {size} GPUs")
    ranks = Ranks((1, size), backend, tmp_path / "store", timeout_s=10)
    try:
        ranks.start(size, end_on_rank_1)
        first, dead, *others = ranks.answers(size)
    finally:
        ranks.close()
    assert isinstance(dead, RankError)
    for answer in (first, *others):
        assert answer.startswith("the exchange with the other ranks of the group failed")
