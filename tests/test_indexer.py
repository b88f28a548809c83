"""Scores of the indexer and their selection: on pages, in a row, float8 and bfloat16."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tl_topk
from indexer_cases import (
    BF16,
    CPU,
    FP8,
    FUSED,
    PAGE,
    UNFUSED,
    Call,
    Way,
    contiguous_call,
    paged_call,
)

pytestmark = pytest.mark.usefixtures("skip_uncompiled")

LENS: dict[str, Any] = {
    "one": [1000],
    "short": [10, 0, 1, 63, 64, 65, 129],
    "ragged": [4097, 255, 256, 257, 2048, 31],
    "negative": [-5, 300, -(2**31), 0],
    "empty": [0, 0],
}


@pytest.fixture(
    params=[CPU, *(pytest.param(way, marks=pytest.mark.gpu) for way in (UNFUSED, FUSED))], ids=str
)
def way(request: pytest.FixtureRequest) -> Way:
    return request.param


@pytest.mark.parametrize("lens", LENS.values(), ids=LENS)
@pytest.mark.parametrize("dtype", [FP8, BF16], ids=["float8", "bfloat16"])
def test_pages(way: Way, rng: np.random.Generator, lens: list[int], dtype: torch.dtype) -> None:
    paged_call(rng, lens, dtype=dtype).check(way)


@pytest.mark.parametrize(
    ("heads", "next_n"), [(64, 2), (64, 3), (64, 4), (32, 1), (32, 4), (16, 2), (8, 1), (8, 4)]
)
@pytest.mark.parametrize("dtype", [FP8, BF16], ids=["float8", "bfloat16"])
def test_heads_and_queries(
    way: Way, rng: np.random.Generator, heads: int, next_n: int, dtype: torch.dtype
) -> None:
    """Among the lengths are some that only later queries of a sequence see."""
    lens = [700, 1, 2, 130]
    paged_call(rng, lens, heads=heads, next_n=next_n, dtype=dtype).check(way)


@pytest.mark.parametrize("ratio", [4, 7])
@pytest.mark.parametrize("next_n", [1, 3])
def test_compressed_keys(way: Way, rng: np.random.Generator, ratio: int, next_n: int) -> None:
    paged_call(rng, [3000, 0, 3, 4, 5, 259], ratio=ratio, next_n=next_n).check(way)


@pytest.mark.parametrize("ratio", [1, 4])
def test_lengths_of_each_query(way: Way, rng: np.random.Generator, ratio: int) -> None:
    lens = [[900, 20], [0, 700], [513, 513]]
    paged_call(rng, lens, next_n=2, ratio=ratio).check(way)


@pytest.mark.parametrize("k", [0, 1, 64, 512, 2048, 5000])
@pytest.mark.parametrize("order", ["any", "index", "value"])
def test_counts_and_orders(way: Way, rng: np.random.Generator, k: int, order: str) -> None:
    if way == FUSED and (order != "any" or k > 4096):
        pytest.skip("not served by the fused kernel")
    paged_call(rng, [3000, 600], k=k).check(way, order)


@pytest.mark.parametrize("wild", [[0], [5, 5, 5], [-1, 2**31 - 1, -(2**31)], []], ids=str)
def test_a_hint_changes_nothing(way: Way, rng: np.random.Generator, wild: list[int]) -> None:
    given = {**paged_call(rng, [3000, 9]).on(way.device), "k": 64, "backend": way.backend}
    hint = torch.tensor([wild, wild], dtype=torch.int32, device=way.device)
    hinted = tl_topk.indexer_topk(hint=hint, **given)
    assert torch.equal(hinted.sort(dim=1).values, tl_topk.indexer_topk(**given).sort(dim=1).values)


def test_pages_that_are_not_there(way: Way, rng: np.random.Generator) -> None:
    """Their keys score -inf: last, after all that is there, and slots of theirs are -1."""
    call = paged_call(rng, [3000, 70, 500], k=2048, missing=0.4)
    call.check(way)
    given = call.on(way.device)
    given |= {"k": call.k, "backend": way.backend}
    slots = tl_topk.indexer_topk(result="slots", **given).sort().values
    positions = tl_topk.indexer_topk(**given)
    table = call.arguments["block_table"].numpy()
    pages = len(call.arguments["keys"])
    for row, found in enumerate(positions.cpu().numpy()):
        page = table[row, np.maximum(found, 0) // PAGE]
        there = (found >= 0) & (page >= 0) & (page < pages)
        expected = np.where(there, page.astype(np.int64) * PAGE + found % PAGE, -1)
        assert (slots[row].cpu().numpy() == np.sort(expected)).all()


def test_a_cache_without_pages(way: Way, rng: np.random.Generator) -> None:
    call = paged_call(rng, [100], k=8, missing=1.0)
    keys = call.arguments["keys"][:0]
    call.with_arguments(keys=keys).check(way)


def test_a_context_longer_than_its_block_table(way: Way, rng: np.random.Generator) -> None:
    paged_call(rng, [1000, 2**31 - 1, 64], max_blocks=3).check(way)


@pytest.mark.parametrize("lens", [[100, 5], [0], [1], [65], [2300]], ids=str)
def test_block_table_wider_than_any_context(
    way: Way, rng: np.random.Generator, lens: list[int]
) -> None:
    paged_call(rng, lens, max_blocks=70).check(way)


@pytest.mark.parametrize("shape", [(0, 3), (2, 0)], ids=["no sequences", "no blocks"])
def test_nothing_at_all(way: Way, rng: np.random.Generator, shape: tuple[int, int]) -> None:
    call = paged_call(rng, [100, 100], k=4)
    sequences, blocks = shape
    given = {
        **call.on(way.device),
        "q": call.arguments["q"][:sequences].to(way.device),
        "weights": call.arguments["weights"][:sequences].to(way.device),
        "block_table": torch.zeros(shape, dtype=torch.int32, device=way.device),
        "context_lens": call.arguments["context_lens"][:sequences].to(way.device),
    }
    for result in ("positions", "slots"):
        indices, scores = tl_topk.indexer_topk(
            k=4, result=result, return_scores=True, backend=way.backend, **given
        )
        assert indices.shape == (sequences, 4)
        assert scores.shape == (sequences, blocks * PAGE)
        assert (indices == -1).all()


@pytest.mark.parametrize("result", ["slots", "ragged"])
@pytest.mark.parametrize("next_n", [1, 2])
def test_other_results(way: Way, rng: np.random.Generator, result: str, next_n: int) -> None:
    call = paged_call(rng, [500, 3, 0], k=128, next_n=next_n)
    given = {**call.on(way.device), "k": 128, "backend": way.backend}
    positions = tl_topk.indexer_topk(**given).cpu().numpy()
    rows = len(positions)
    offsets = torch.arange(rows, dtype=torch.int32, device=way.device) * 1000
    extra = {"offsets": offsets} if result == "ragged" else {}
    out = torch.empty(rows, 128, dtype=torch.int32, device=way.device)
    given |= {"result": result, "out": out, **extra}
    got = tl_topk.indexer_topk(**given)
    assert got is out
    table = call.arguments["block_table"].numpy()
    for row in range(rows):
        there = positions[row] >= 0
        if result == "ragged":
            expected = positions[row] + 1000 * row
        else:
            page = table[row // next_n, np.maximum(positions[row], 0) // PAGE]
            expected = page * PAGE + positions[row] % PAGE
        assert (
            got[row].sort().values.cpu().numpy() == np.sort(np.where(there, expected, -1))
        ).all()


def test_scores_do_not_depend_on_batch_or_paging(way: Way, rng: np.random.Generator) -> None:
    """Alone, in a batch, on other pages, beside other queries: the same bits."""
    lens = [2500, 700, 1300]
    call = paged_call(rng, lens, k=100, next_n=2)
    given = {**call.on(way.device), "backend": way.backend}
    _, together = tl_topk.indexer_topk(k=100, return_scores=True, **given)
    q, weights = given["q"], given["weights"]
    pages = len(given["keys"])
    moved = torch.from_numpy(rng.permutation(pages).astype(np.int32)).to(way.device)
    keys = torch.empty_like(given["keys"])
    keys[moved.long()] = given["keys"]
    for sequence, length in enumerate(lens):
        for query in range(2):
            row = 2 * sequence + query
            seen = length - 1 + query
            _, alone = tl_topk.indexer_topk(
                q[sequence : sequence + 1, query : query + 1].contiguous(),
                keys,
                weights[row : row + 1],
                100,
                block_table=moved[given["block_table"][sequence : sequence + 1].long()],
                context_lens=torch.tensor([seen], dtype=torch.int32, device=way.device),
                return_scores=True,
            )
            assert torch.equal(alone[0, :seen], together[row, :seen])


@pytest.fixture(params=[CPU, pytest.param(UNFUSED, marks=pytest.mark.gpu)], ids=str)
def row_way(request: pytest.FixtureRequest) -> Way:
    """Those that serve keys in a row."""
    return request.param


@pytest.mark.parametrize("dtype", [FP8, BF16], ids=["float8", "bfloat16"])
@pytest.mark.parametrize("heads", [8, 32, 64])
def test_keys_in_a_row(
    row_way: Way, rng: np.random.Generator, dtype: torch.dtype, heads: int
) -> None:
    contiguous_call(rng, 7, 1000, dtype=dtype, heads=heads).check(row_way)


def test_ranges_of_keys_in_a_row(row_way: Way, rng: np.random.Generator) -> None:
    starts, ends = [0, 10, -7, 500, 300, 999, 0], [1000, 11, 5, 400, 2**31 - 1, 1000, -3]
    contiguous_call(rng, 7, 1000, starts=starts, ends=ends).check(row_way)
    contiguous_call(rng, 7, 1001, starts=starts).check(row_way, "index")
    contiguous_call(rng, 7, 1003, ends=ends).check(row_way, "value")
    contiguous_call(rng, 0, 1000).check(row_way)
    contiguous_call(rng, 2, 0).check(row_way)


def test_causal_ranges(row_way: Way, rng: np.random.Generator) -> None:
    """As in prefill: row r sees the keys up to its own."""
    ends = list(range(1, 301))
    call = contiguous_call(rng, 300, 300, ends=ends, k=32, heads=64 if row_way != CPU else 8)
    call.check(row_way)


def test_more_rows_than_are_scored_at_once(
    row_way: Way, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tl_topk.indexer.run._MOST_SCORES", 3000)
    ends = [100 * row for row in range(11)]
    call = contiguous_call(rng, 11, 1000, ends=ends, starts=[50] * 11)
    call.check(row_way)
    offsets = torch.arange(11, dtype=torch.int32, device=row_way.device) * 1000
    given = {**call.on(row_way.device), "k": 64, "result": "ragged", "offsets": offsets}
    whole, _ = tl_topk.indexer_topk(return_scores=True, order="value", **given)
    assert torch.equal(tl_topk.indexer_topk(order="value", **given), whole)


def test_scores_of_chunks_meet(rng: np.random.Generator) -> None:
    """More keys than are held in float64 at a time."""
    paged_call(rng, [20000], k=2048, heads=8).check(CPU)
    contiguous_call(rng, 1, 20000, k=2048, heads=8, starts=[5], ends=[19999]).check(CPU)


LONG = 70_000 if torch.cuda.is_available() else 9_000
MANY = 20_000 if torch.cuda.is_available() else 2_100


@pytest.mark.parametrize("k", [1, 512, 2048, 4096])
def test_long_contexts(way: Way, rng: np.random.Generator, k: int) -> None:
    paged_call(rng, [LONG], k=k, heads=64 if way.device == "cuda" else 8).check(way)


def spoiled(rng: np.random.Generator, kind: str, lens: list[int]) -> Call:
    """Pages in order whose scales make the scores hostile."""
    call = paged_call(rng, lens, k=2048, heads=64 if torch.cuda.is_available() else 8)
    arguments = call.arguments
    arguments["weights"].abs_()
    table = arguments["block_table"]
    table.copy_(torch.arange(table.numel(), dtype=torch.int32).view(table.shape))
    scales = arguments["keys"].view(-1, PAGE * 132)[:, PAGE * 128 :].view(torch.float32)
    count = scales.numel()
    position = torch.arange(count, dtype=torch.float32).view(scales.shape) / count
    noise = torch.from_numpy(rng.random(tuple(scales.shape), np.float32))
    if kind == "all zero":
        scales.zero_()
    elif kind == "many zeros":
        scales.mul_(noise > 0.98)
    elif kind == "few above zero":
        scales.mul_(noise > 0.99).neg_()
        scales[::16, 5] = 1.0
    elif kind == "ascending":
        scales.copy_(position.exp())
    elif kind == "descending":
        scales.copy_((-position).exp())
    elif kind == "one hot stretch":
        scales.copy_(torch.where((position > 0.4) & (position < 0.45), 8.0, 0.1))
    elif kind == "outlier":
        scales[len(scales) // 3, 7] = 1e30
    elif kind == "infinities":
        scales[noise > 0.9] = torch.inf
    elif kind == "nan":
        scales[noise > 0.5] = torch.nan
    elif kind == "all nan":
        scales.fill_(torch.nan)
    elif kind == "huge":
        scales.mul_(1e35)
    else:
        assert kind == "tiny"
        scales.mul_(1e-42)
    return call


@pytest.mark.parametrize("lens", [[LONG], [MANY, 3000, LONG // 2]], ids=["one", "three"])
@pytest.mark.parametrize(
    "kind",
    [
        "all zero", "many zeros", "few above zero", "ascending", "descending", "one hot stretch",
        "outlier", "infinities", "nan", "all nan", "huge", "tiny",
    ],
)  # fmt: skip
def test_hostile_scores(way: Way, rng: np.random.Generator, kind: str, lens: list[int]) -> None:
    spoiled(rng, kind, lens).check_selection(way)
