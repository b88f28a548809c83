"""What the benchmarks select from, and how they judge an answer."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

# Where pytest was not started as a module, or there is no checkout, bench is not importable.
pytest.importorskip("bench", reason="run as python -m pytest in a checkout")

from bench import suites
from bench.cases import Case, as_dict, from_dict
from bench.distributions import DISTRIBUTIONS, find_distribution
from bench.exact import Answer, judge
from bench.inputs import Inputs, make_inputs
from bench.results import EXACT, TIES, is_right
from bench_kit import SMALL, ours, run_small

# Cases and inputs


def test_case_names_what_is_not_plain() -> None:
    assert str(Case(1, 65536)) == "1 x 64K, k=2048"
    case = Case(4, 120000, 512, "bfloat16", "offset", 16, "mixed", True, "value", True)
    words = "offset, entropy=16, lengths=mixed, row_starts, order=value, values"
    assert str(case) == f"4 x 120000, k=512, bfloat16, {words}"


@pytest.mark.parametrize("suite", suites.SUITES.values(), ids=lambda suite: suite.name)
def test_cases_of_a_suite_are_distinct_and_survive_json(suite: suites.Suite) -> None:
    assert len(set(suite.cases)) == len(suite.cases)
    assert len(set(map(str, suite.cases))) == len(suite.cases)
    for case in suite.cases:
        assert from_dict(json.loads(json.dumps(as_dict(case)))) == case
        assert case.distribution in DISTRIBUTIONS


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distributions_are_finite_repeatable_and_selected_from_exactly(name: str) -> None:
    case = replace(SMALL, distribution=name)
    inputs = make_inputs(case, "cpu")
    assert inputs.scores.shape == (inputs.slots, case.rows, case.width)
    assert inputs.scores.dtype == torch.float32
    assert inputs.scores.isfinite().all()
    assert torch.equal(inputs.scores, make_inputs(case, "cpu").scores)
    (measured,) = run_small(case, contenders=[ours()]).measurements()
    assert measured.answer == EXACT


@pytest.mark.parametrize(
    ("name", "width", "overlap"),
    [
        ("steps 44 %", 65536, 0.44),
        ("steps 2 %", 16384, 0.02),  # rows with nothing in common share an eighth
        ("steps 90.5 %", 65536, 0.905),
        ("steps 0 %", 65536, 0.0),
    ],
)
def test_consecutive_steps_overlap_as_asked(name: str, width: int, overlap: float) -> None:
    scores = make_inputs(Case(1, width, distribution=name), "cpu").scores[:, 0]
    before, after = (set(step.topk(2048).indices.tolist()) for step in scores)
    assert len(before & after) / 2048 == pytest.approx(overlap, abs=0.03)


@pytest.mark.parametrize("name", ["steps", "steps 101 %", "steps -1 %", "Normal", ""])
def test_unknown_distributions_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"expected one of normal, .* or steps N %"):
        find_distribution(name)


def test_relu_sums_have_the_signs_they_are_called_by() -> None:
    both, positive = (
        make_inputs(Case(1, 4096, distribution=name), "cpu").scores
        for name in ("relu sum", "relu sum of w > 0")
    )
    assert both.min() < 0 < both.max()
    assert positive.min() >= 0


def test_real_rows_are_real() -> None:
    scores = make_inputs(Case(1, 65536, distribution="real"), "cpu").scores
    assert -2 < scores.min() < scores.max() < 3  # as tests/data/README.md and shared data say
    with pytest.raises(ValueError, match="real rows have"):
        make_inputs(Case(1, 1 << 20, distribution="real"), "cpu")


def test_entropy_leaves_fewer_values() -> None:
    values = make_inputs(replace(SMALL, entropy=10), "cpu").scores.unique()
    assert len(values) < 100


def test_inputs_are_shared_between_ks_but_not_between_shapes() -> None:
    scores = make_inputs(SMALL, "cpu").scores
    assert torch.equal(scores, make_inputs(replace(SMALL, k=7, order="index"), "cpu").scores)
    assert not torch.equal(scores, make_inputs(replace(SMALL, width=3001), "cpu").scores[..., :-1])


@pytest.mark.parametrize("rows", [1, 2, 7, 16])
def test_mixed_lengths_are_spread_over_the_width(rows: int) -> None:
    lengths = make_inputs(Case(rows, 1000, 10, lengths="mixed"), "cpu").row_lengths()
    assert sorted(lengths.tolist()) == [i * 1000 // max(rows - 1, 1) for i in range(rows)]


# Verdicts


@pytest.mark.parametrize(
    "case",
    [
        SMALL,
        replace(SMALL, dtype="float16", values=True),
        replace(SMALL, dtype="bfloat16", order="value", values=True),
        replace(SMALL, order="index", lengths="mixed", values=True),
        replace(SMALL, lengths=50),
        replace(SMALL, row_starts=True, lengths=2990, order="value"),
        replace(SMALL, row_starts=True),
        replace(SMALL, lengths="causal", k=1),
        replace(SMALL, k=5000),
        Case(1, 40, 40, distribution="two values", order="value"),
    ],
    ids=str,
)
def test_our_answers_are_exact(case: Case) -> None:
    (measured,) = run_small(case, contenders=[ours()]).measurements()
    assert (measured.answer, measured.us) == (EXACT, 10.0)
    assert "native code" in measured.detail


def right_answers(case: Case) -> tuple[Inputs, list[Answer]]:
    inputs = make_inputs(case, "cpu")
    return inputs, [launch() for launch in ours().prepare(inputs)]


def test_another_choice_among_ties_is_right_and_said() -> None:
    inputs = make_inputs(replace(SMALL, distribution="all equal"), "cpu")
    last = torch.arange(SMALL.width - SMALL.k, SMALL.width).repeat(SMALL.rows, 1)
    verdict = judge(inputs, [Answer(last)] * inputs.slots)
    assert verdict == TIES
    assert is_right(verdict)


@pytest.mark.parametrize("slot", [0, 1])
def test_wrong_answers_are_found_in_every_slot(slot: int) -> None:
    case = replace(SMALL, order="index", values=True, lengths=2000)
    inputs, answers = right_answers(case)
    assert judge(inputs, answers) == EXACT
    worst = int(inputs.scores[slot, 1, :2000].argmin())

    def verdict(**changes: object) -> str:
        changed = [Answer(a.indices.clone(), a.values) for a in answers]
        row = changed[slot].indices[1]
        for name, value in changes.items():
            row[int(name.removeprefix("at"))] = value
        return judge(inputs, changed)

    assert verdict(at0=-1) == "wrong: an index out of range or bad padding in 1 of 6 rows"
    assert verdict(at0=2000).startswith("wrong: an index out of range")
    assert verdict(at5=int(answers[slot].indices[1, 6])).startswith("wrong: an index twice")
    assert verdict(at0=worst).startswith("wrong: not the best k")
    first, second = answers[slot].indices[1, :2].tolist()
    assert verdict(at0=second, at1=first).startswith("wrong: slots not in order")
    answers[slot].values[2, 3] += 1
    assert judge(inputs, answers) == "wrong: a value that is not the score in 1 of 6 rows"


def test_an_answer_in_the_wrong_order_of_values() -> None:
    inputs, answers = right_answers(replace(SMALL, order="value"))
    flipped = [Answer(answer.indices.flip(1)) for answer in answers]
    assert judge(inputs, flipped) == "wrong: slots not in order in 6 of 6 rows"
