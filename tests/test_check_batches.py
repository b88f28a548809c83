"""Thousands of rows at a time: what is drawn, what is certified, and what becomes of a fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import tl_topk
from spoilt import spoil_calls
from tl_topk import check
from tl_topk.check.batch import Batch, make_batch
from tl_topk.check.certificate import Selection, certify
from tl_topk.check.draw import KINDS, Draw, bits_of_scores
from tl_topk.check.fuzz import Finding

BITS = {"float32": torch.int32, "float16": torch.int16, "bfloat16": torch.int16}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_draws(kind: str) -> None:
    for dtype, width, k in (("float32", 1, 3), ("float16", 1000, 64), ("bfloat16", 5001, 512)):
        generator = torch.Generator().manual_seed(3)
        bits = bits_of_scores(KINDS[kind](Draw(5, width, k, dtype, generator)), dtype)
        assert bits.shape == (5, width)
        assert bits.dtype == BITS[dtype]


def test_a_seed_means_one_batch() -> None:
    for seed in range(5):
        one, other = make_batch(seed, "cpu"), make_batch(seed, "cpu")
        assert (one.k, one.kinds, one.launches) == (other.k, other.kinds, other.launches)
        assert (one.bits == other.bits).all()


def test_every_option_occurs() -> None:
    batches = [make_batch(seed, "cpu") for seed in range(60)]
    assert {batch.dtype for batch in batches} == set(BITS)
    assert {batch.order for batch in batches} == {"any", "index", "value"}
    for option in ("largest", "with_values"):
        assert {getattr(batch, option) for batch in batches} == {True, False}
    for option in ("lengths", "row_starts"):
        assert {
            None if (t := getattr(batch, option)) is None else t.dtype for batch in batches
        } == {
            None,
            torch.int32,
            torch.int64,
        }
    assert {kind for batch in batches for kind in batch.kinds} == set(KINDS)
    assert any(batch.k > batch.width for batch in batches)
    assert any(batch.k > 4096 for batch in batches)
    assert any(batch.skew and batch.gap for batch in batches)
    assert all(sum(batch.launches) == batch.rows for batch in batches)


def test_the_certificate_agrees_with_the_reference() -> None:
    """Launch by launch, what is certified is what the sorting reference says."""
    for seed in range(40):
        batch = make_batch(seed, "cpu")
        assert batch.failure("cpu") is None
        row = batch.rows - 1
        for case in batch.cases(row):
            if case.scores.size < 300_000:
                assert check.failure(case, "cpu") is None


SPOILS: dict[str, tuple[Callable[[Any, Any], None], str]] = {
    "beyond": (lambda i, v: i[1].__setitem__(0, 40), "outside the row"),
    "negative": (lambda i, v: i[1].__setitem__(0, -1), "outside the row"),
    "padded": (lambda i, v: i[2].__setitem__(7, 0), "does not hold -1"),
    "twice": (lambda i, v: i[1].__setitem__(0, int(i[1, 1])), "twice"),
    "swapped": (lambda i, v: i[1, :2].copy_(i[1, :2].flip(0)), "not in order"),
    "value": (lambda i, v: v[1].__setitem__(3, 1), "bits of its score"),
    "padding": (lambda i, v: v[2].__setitem__(7, 1), "bits of its score"),
}


@pytest.mark.parametrize("dtype", BITS)
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("spoil", SPOILS)
def test_every_kind_of_difference_is_seen(spoil: str, dtype: str, largest: bool) -> None:
    generator = torch.Generator().manual_seed(7)
    rows, width, k = 4, 40, 10
    draw = Draw(rows, width, k, dtype, generator)
    bits = bits_of_scores((draw.normal() * 3).round() / 4, dtype)  # with ties
    lengths = torch.tensor([40, 38, 5, 0])
    scores = bits.view(getattr(torch, dtype))
    values, indices = tl_topk.topk(
        scores, k, lengths=lengths, order="value", largest=largest, backend="cpu"
    )
    asked = Selection(bits, dtype, torch.zeros(4).long(), lengths, k, "value", largest)
    value_bits = values.view(BITS[dtype])
    assert certify(asked, indices, value_bits).first() is None
    change, words = SPOILS[spoil]
    change(indices, value_bits)
    found = certify(asked, indices, value_bits).first()
    assert found is not None
    assert found[0] == (2 if spoil in ("padded", "padding") else 1)
    assert words in found[1]


@pytest.mark.parametrize("dtype", BITS)
@pytest.mark.parametrize("largest", [True, False])
def test_one_index_in_place_of_another_is_seen(dtype: str, largest: bool) -> None:
    """Whichever slot holds it: the best that was left out, or among equals a later one."""
    generator = torch.Generator().manual_seed(8)
    draw = Draw(1, 60, 12, dtype, generator)
    for drawn in (draw.normal(), (draw.normal() * 2).round(), draw.normal() * torch.nan):
        bits = bits_of_scores(drawn, dtype)
        scores = bits.view(getattr(torch, dtype))
        better = tl_topk.topk_indices(scores, 13, order="value", largest=largest, backend="cpu")
        span = torch.zeros(1).long(), torch.full((1,), 60)
        asked = Selection(bits, dtype, *span, 12, "any", largest)
        assert certify(asked, better[:, :12], None).first() is None
        for slot in range(12):
            wrong = better[:, :12].clone()
            wrong[0, slot] = better[0, 12]
            assert certify(asked, wrong, None).first() == (0, "not the best are selected")


def forget_the_best(scores: Any, k: int, indices: Any) -> None:
    """Of wide rows whose first element is wanted, the last is given instead."""
    if scores.shape[1] > 300 and k and (indices == 0).any():
        indices[indices == 0] = scores.shape[1] - 1


def found_in(monkeypatch: pytest.MonkeyPatch, *modules: str) -> Finding:
    for module in modules:
        spoil_calls(monkeypatch, module, forget_the_best)
    for seed in range(1, 200, 2):
        finding = check.fuzz("cpu", seed, seconds=0).finding
        if finding is not None:
            return finding
    raise AssertionError("the fault was never met")


def test_a_fault_becomes_a_small_case(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    finding = found_in(monkeypatch, "tl_topk.check.batch", "tl_topk.check.trial")
    assert finding.case.rows == 1
    assert 301 <= finding.case.width <= 320
    check.save_case(finding.case, tmp_path / "case.npz")
    again = check.load_case(tmp_path / "case.npz")
    assert check.failure(again, "cpu") is not None
    monkeypatch.undo()
    assert check.failure(again, "cpu") is None


def test_a_fault_that_does_not_come_again_is_kept_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    finding = found_in(monkeypatch, "tl_topk.check.batch")
    assert "not when its launch was tried again" in finding.problem
    assert finding.case.width > 300


def test_what_a_launch_writes_beside_its_outputs_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def topk_indices(scores: Any, k: int, out: Any, **options: Any) -> Any:
        tl_topk.topk_indices(scores, k, out=out, **options)
        torch.as_strided(out, (1,), (1,), out.storage_offset() - 1).fill_(3)

    monkeypatch.setattr("tl_topk.check.batch.topk_indices", topk_indices)
    batch: Batch = replace(make_batch(0, "cpu"), with_values=False)
    wrong = batch.failure("cpu")
    assert wrong is not None
    assert "outside the outputs" in wrong.problem


def test_a_launch_that_raises_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    def topk(*_: Any, **__: Any) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr("tl_topk.check.batch.topk", topk)
    wrong = replace(make_batch(2, "cpu"), with_values=True).failure("cpu")
    assert wrong is not None
    assert wrong.problem == "raised RuntimeError: out of luck"
