"""What the dispatcher's choices cost, and the constants behind them: fitted, never typed."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from bench import fit_costs, regret_figures
from bench.contest import READY, SCORED, Contest, Question, Scored
from bench.regret_tables import choice, ready_table, regrets, scored_table, summary
from bench.results import READY_SUITE, RESULTS, SCORED_SUITE, Document, load
from bench.targets import K
from bench_contests import H200, document, estimated, ready_document, scored_document
from tl_topk.dispatch import model, rule


def test_the_grid_is_large_enough() -> None:
    assert len(set(READY)) == len(READY) >= 200
    assert len(set(SCORED)) == len(SCORED) >= 100
    assert {q.scored.heads for q in SCORED if q.scored} == {8, 16, 32, 64}
    assert {q.scored.queries for q in SCORED if q.scored} == {1, 2, 4, 8}
    assert {q.width for q in SCORED} >= {8 << 10, 1 << 20}


def test_contests_survive_json() -> None:
    for question in (READY[0], READY[-1], SCORED[0], SCORED[-1]):
        contest = estimated(question)
        assert Contest.from_dict(json.loads(json.dumps(contest.as_dict()))) == contest
        assert contest.best in contest.us
    assert str(Question(64, 1 << 16, 512, "bfloat16", 4096)) == (
        "64 x 64K, k=512, bfloat16, length=4K"
    )
    assert str(Question(2, 1000, scored=Scored(8, 2))) == "2 x 1000, k=2048, 8 heads, next_n=2"
    assert str(Question(8, K, scored=Scored(8, 4, 2))).endswith("next_n=4, 2 of the same keys")


def test_a_fit_finds_the_costs_that_made_the_times() -> None:
    costs = {"launch": 3.5, "wave": 1.25, "block_mb": 20.0, "memory_mb": 0.0, "k": 0.5}
    rng = np.random.default_rng(0)
    samples = []
    for _ in range(200):
        work = {"launch": 1.0, **{part: float(rng.uniform(0, 4)) for part in list(costs)[1:]}}
        samples.append((work, sum(costs[part] * amount for part, amount in work.items())))
    found = fit_costs.costs_of(samples)
    assert found == pytest.approx(costs, abs=1e-4)
    assert max(map(abs, fit_costs.errors(samples, found))) < 1e-3


def test_no_cost_is_negative() -> None:
    samples = [({"launch": 1.0, "wave": float(i)}, 10.0 - i / 2) for i in range(10)]
    found = fit_costs.costs_of(samples)
    assert found["wave"] == 0
    assert found["launch"] > 0


def test_regret_is_what_was_taken_by_the_best() -> None:
    question = READY[0]
    chosen = choice(question, H200, model)
    contest = estimated(question)
    other = next(name for name in contest.us if name != chosen)
    slower = estimated(question, **{chosen: 2.0, other: 1.0, **{
        name: 9.0 for name in contest.us if name not in (chosen, other)
    }})  # fmt: skip
    (found,) = regrets(document(READY_SUITE, [slower]))
    assert (found.chosen, found.ratio) == (chosen, 2.0)
    assert summary([found]) == (1, 0.0, 2.0)
    wrong = Contest(question, slower.us, slower.noise_us, (other,))
    (found,) = regrets(document(READY_SUITE, [wrong]))
    assert found.ratio == 1.0


def test_tables_and_figures(tmp_path: Path) -> None:
    ready, scored = ready_document(), scored_document()
    table = ready_table(ready)
    assert table.rows[-1][0] == "**all**" or "best" in table.rows[-1][3]
    assert all(len(row) == len(table.header) for row in table.rows)
    table = scored_table(scored)
    assert all(len(row) == len(table.header) for row in table.rows)
    assert "/" in table.rows[0][1]
    both = {READY_SUITE: ready, SCORED_SUITE: scored}
    for draw in (regret_figures.intensity, regret_figures.regret):
        figure = draw(both)
        assert figure is not None
        figure.savefig(tmp_path / "figure.png")
        assert draw({}) is None


def recorded(suite: str) -> Document:
    return load(RESULTS / f"{suite}.json")


def test_constants_are_what_the_measurements_give() -> None:
    assert fit_costs.TARGET.read_text() == fit_costs.text_of(fit_costs.fit())


def test_estimates_are_near_the_measurements() -> None:
    for suite in (READY_SUITE, SCORED_SUITE):
        off = [
            abs(error)
            for name, samples in fit_costs.samples_of(recorded(suite)).items()
            for error in fit_costs.errors(samples, fit_costs.fit()[name])
        ]
        assert np.median(off) < 0.15


def test_the_default_policy_is_good_enough() -> None:
    """On the grid that was measured: within 5 % of the best on 95 %, never beyond 1.3 times."""
    both = [regrets(recorded(suite)) for suite in (READY_SUITE, SCORED_SUITE)]
    for found in both:
        assert not any(regret.chosen in regret.contest.wrong for regret in found)
    count, share, worst = summary(chain(*both))
    assert count >= 200
    assert share >= 0.95
    assert worst <= 1.3


def test_the_rule_alone_is_worse() -> None:
    found = recorded(SCORED_SUITE)
    assert summary(regrets(found, rule))[1] <= summary(regrets(found, model))[1]
