"""The dispatcher: pure policies, who is asked and how often, and what is said about it."""

from __future__ import annotations

import logging
import pickle
import threading
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest
import torch

import tl_topk
from tl_topk import Decision, Problem
from tl_topk.backends import BACKENDS
from tl_topk.dispatch import costs, decide, fixed, measured, model, policy_named, rule
from tl_topk.dispatch.candidates import candidates
from tl_topk.dispatch.decision import FUSED, SCORE_AND_SELECT
from tl_topk.dispatch.devices import NAMED, device_named
from tl_topk.problem import Scoring
from tl_topk.select import planned

CPU = Problem(rows=2, width=100, k=5, dtype="float32")
CUDA = Problem(rows=2, width=100, k=5, dtype="float32", device_type="cuda", device_id=1)
H200 = NAMED["h200"]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("TL_TOPK_POLICY", raising=False)
    tl_topk.set_policy(None)
    yield
    tl_topk.set_policy(None)


def ready(rows: int = 1, width: int = 131072, k: int = 2048, **changes: Any) -> Problem:
    """Scores that lie ready on an H200."""
    return Problem(rows, width, k, "float32", device_type="cuda", gpu=H200, **changes)


def scored(rows: int = 1, width: int = 131072, k: int = 2048, **changes: Any) -> Problem:
    scoring = Scoring(**{"heads": 64, **changes.pop("scoring", {})})
    return ready(rows, width, k, scoring=scoring, values=False, **changes)


def scores(rows: int = 3, width: int = 200) -> torch.Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(0))


class Asked:
    """A policy that counts."""

    def __init__(self, backend: str = "cpu") -> None:
        self.backend = backend
        self.problems: list[Problem] = []

    def __call__(self, problem: Problem) -> Decision:
        self.problems.append(problem)
        return Decision(self.backend, "a test says so")


def cuda_is(monkeypatch: pytest.MonkeyPatch, missing: str | None) -> None:
    for name in ("dsmem", "pipelined"):
        monkeypatch.setattr(type(BACKENDS[name]), "unavailable", lambda self: missing)
    monkeypatch.setattr("tl_topk.dispatch.gpu_of", lambda device_id: H200)


def constants_are(
    monkeypatch: pytest.MonkeyPatch, measured_of: dict[str, Any], fused_costs: float = 1.0
) -> None:
    """Other ranges of what was measured, and a fused kernel that costs so much of the other way."""
    fitted = costs._fitted()
    fused = {part: fused_costs * cost for part, cost in fitted[SCORE_AND_SELECT].items()}
    changed = fitted | {"measured": measured_of, FUSED: fused}
    monkeypatch.setattr("tl_topk.dispatch.costs._fitted", lambda: changed)


class TestValues:
    def test_are_immutable_and_compare(self) -> None:
        values: tuple[Any, ...] = (ready(), scored(), H200, model(ready()), candidates(ready()))
        for value in values:
            assert value == pickle.loads(pickle.dumps(value))
            assert hash(value) == hash(pickle.loads(pickle.dumps(value)))
            with pytest.raises((FrozenInstanceError, TypeError, AttributeError)):
                value.backend = "another"

    @pytest.mark.parametrize(
        ("name", "bad"),
        [("heads", 0), ("heads", "many"), ("dim", -1), ("key_format", "fp4"), ("next_n", True)],
    )
    def test_bad_scoring(self, name: str, bad: Any) -> None:
        with pytest.raises((TypeError, ValueError), match=rf"^{name}: expected .*, got"):
            scored(scoring={name: bad})


class TestPolicies:
    @pytest.mark.parametrize("policy", [rule, model, measured])
    @pytest.mark.parametrize("problem", [ready(), ready(64, k=5000), scored(), scored(4, k=9)])
    def test_are_pure(self, policy: Any, problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
        """The same answer each time, and no look at this machine."""
        monkeypatch.setattr("tl_topk._ffi.device_info", None)
        monkeypatch.setattr("tl_topk._ffi.device_count", None)
        decision = policy(problem)
        assert decision == policy(problem)
        assert decision.reason
        assert decision.candidates[0].backend == decision.backend
        assert {c.backend for c in decision.candidates} == set(BACKENDS)

    def test_the_rule(self) -> None:
        assert (rule(ready()).backend, rule(CPU).backend) == ("dsmem", "cpu")
        assert rule(scored()).backend == "pipelined"
        assert "hide behind" in rule(scored()).reason
        assert rule(scored(order="index")).backend == "dsmem"
        assert rule(scored(scoring={"paged": False})).backend == "dsmem"

    def test_the_model_takes_the_least_estimate(self) -> None:
        for problem in (ready(), ready(64, 65536), scored(), scored(8)):
            decision = model(problem)
            able = [c for c in decision.candidates if not c.refusal and c.is_native_choice]
            assert decision.estimate_us == min(c.estimate_us or 0 for c in able)
            assert all(c.estimate_us and c.estimate_us > 0 for c in able)
            assert decision.backend in decision.reason

    def test_candidates_of_ready_scores(self) -> None:
        names = [c.name for c in candidates(ready())]
        assert names[0].startswith("dsmem ")
        scopes = {"dsmem block", *(f"dsmem cluster {n}" for n in (2, 4, 8, 16))}
        assert set(names) >= scopes | {"pipelined", "cpu"}
        assert sum(c.backend == "dsmem" and c.is_native_choice for c in candidates(ready())) == 1

    def test_candidates_of_scored_problems(self) -> None:
        assert [c.name for c in candidates(scored())] == ["dsmem after scores", "fused", "cpu"]
        refusals = {c.name: c.refusal for c in candidates(scored(order="value"))}
        assert "order='any'" in refusals["fused"]
        assert not refusals["dsmem after scores"]

    def test_what_costs_more_is_estimated_to(self) -> None:
        for larger, smaller in (
            (ready(width=1 << 20), ready()),
            (ready(256), ready(8)),
            (scored(width=1 << 20), scored()),
            (scored(64), scored()),
        ):
            assert (model(larger).estimate_us or 0) > (model(smaller).estimate_us or 0)

    def test_other_gpus_say_that_they_were_not_measured(self) -> None:
        fitted, derived = model(ready()), model(replace(ready(), gpu=NAMED["h100"]))
        own = [c for c in fitted.candidates if c.config is not None and c.config.scope != "grid"]
        assert {c.basis for c in own if c.backend == "dsmem"} == {"fitted"}
        assert {c.basis for c in derived.candidates if c.estimate_us} == {"derived"}
        assert "derived" in derived.reason
        assert "nothing was measured on NVIDIA H100" in derived.reason
        assert "derived" not in fitted.reason
        far = replace(ready(64, 1 << 20), gpu=NAMED["h100"])
        assert (model(far).estimate_us or 0) > (model(ready(64, 1 << 20)).estimate_us or 0)

    def test_what_is_beyond_the_fit_says_so(self) -> None:
        for problem in (ready(order="value"), ready(k=2049), ready(width=(1 << 20) + 1)):
            own = [c for c in model(problem).candidates if c.backend == "dsmem" and c.estimate_us]
            bases = {c.basis for c in own if c.config is not None and c.config.scope != "grid"}
            assert bases == {"extrapolated"}

    def test_what_was_not_measured_is_not_chosen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Constants of one number of heads say too little about another."""
        ranges = {"rows": [1, 64], "width": [1, 1 << 20], "heads": [16, 64], "next_n": [1, 1]}
        constants_are(monkeypatch, dict.fromkeys((FUSED, SCORE_AND_SELECT), ranges))
        assert model(scored()).estimate_us
        for scoring in ({"heads": 8}, {"next_n": 2}):
            decision = model(scored(scoring=scoring))
            assert (decision.backend, decision.estimate_us) == ("dsmem", None)
            assert decision.reason.endswith(
                "nothing like this was measured of 'scores first, then dsmem'"
                " and 'fused in one kernel (pipelined)'"
            )

    def test_fused_is_not_taken_on_another_gpus_word(self, monkeypatch: pytest.MonkeyPatch) -> None:
        constants_are(monkeypatch, {}, fused_costs=0.5)
        problem = scored(64, 1 << 20)
        assert model(problem).backend == "pipelined"
        decision = model(replace(problem, gpu=NAMED["h100"]))
        times = {c.backend: c.estimate_us or 0 for c in decision.candidates if not c.refusal}
        assert decision.backend == "dsmem"
        assert times["pipelined"] < times["dsmem"]
        assert "'fused in one kernel (pipelined)' at less" in decision.reason

    def test_no_clusters_no_candidates_of_clusters(self) -> None:
        names = [c.name for c in candidates(replace(ready(), gpu=NAMED["a100"]))]
        assert not any("cluster" in name for name in names)
        assert "dsmem block" in names
        with pytest.raises(RuntimeError, match=r"no backend can serve .* 9\.0 alone, this is 8\.0"):
            model(replace(scored(), gpu=NAMED["a100"]))

    def test_empty_problems(self) -> None:
        for problem in (ready(0), ready(width=0), ready(k=0), scored(0), scored(k=0)):
            for policy in (rule, model):
                assert policy(problem).backend in BACKENDS


class TestForced:
    def test_unknown(self) -> None:
        with pytest.raises(
            ValueError, match=r"expected 'auto', 'dsmem', 'pipelined' or 'cpu', got 'tpu'"
        ):
            decide(CPU, "tpu")
        with pytest.raises(ValueError, match=r"backend: expected .* got 'tpu'"):
            fixed("tpu")

    def test_unavailable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        cuda_is(monkeypatch, "no GPU today")
        with pytest.raises(ValueError, match=r"backend: 'dsmem' cannot run here: no GPU today"):
            decide(CPU, "dsmem")
        with pytest.raises(RuntimeError, match=r"no backend can serve.* no GPU today"):
            decide(CUDA)

    def test_another_device(self, monkeypatch: pytest.MonkeyPatch) -> None:
        cuda_is(monkeypatch, None)
        with pytest.raises(
            ValueError, match=r"expected 'auto', 'dsmem' or 'pipelined' for scores on 'cuda:1'"
        ):
            decide(CUDA, "cpu")

    def test_a_device_of_another_kind(self) -> None:
        with pytest.raises(
            ValueError, match=r"scores: expected on 'cuda' or 'cpu', got on 'xpu:0'"
        ):
            decide(Problem(rows=1, width=1, k=1, dtype="float32", device_type="xpu"))

    def test_what_a_backend_does_not_serve(self) -> None:
        problem = scored(order="index")
        with pytest.raises(ValueError, match=r"got 'pipelined': the fused kernel serves order="):
            decide(problem, "pipelined")
        for policy in (rule, model, measured):
            assert policy(problem).backend == "dsmem"

    def test_says_so(self) -> None:
        assert fixed("cpu")(CPU).reason == "backend='cpu' was asked for"
        assert fixed("cpu") is fixed("cpu")
        plan = planned(scores(), 5)
        assert plan.decision.backend == plan.plan.backend == "cpu"
        assert plan.plan.reason


class TestOwnPolicies:
    def test_by_call(self) -> None:
        mine = Asked()
        for _ in range(3):
            tl_topk.topk(scores(), 5, policy=mine)
            tl_topk.topk_indices(scores().numpy(), 5, policy=mine)
        assert len(mine.problems) == 2
        assert mine.problems[0].rows == 3
        tl_topk.topk(scores(), 5)
        assert len(mine.problems) == 2

    @pytest.mark.parametrize("name", ["rule", "model", "measured", "fixed:cpu"])
    def test_by_name(self, name: str) -> None:
        for _ in range(2):
            assert tl_topk.topk_indices(scores(), 5, policy=name).shape == (3, 5)

    def test_a_cached_call_asks_nobody(self, monkeypatch: pytest.MonkeyPatch) -> None:
        mine = Asked()
        tl_topk.set_policy(mine)
        given = scores()
        out = tl_topk.topk(given, 5)
        monkeypatch.setattr("tl_topk.plans.decide", None)  # calling it would raise
        for _ in range(5):
            tl_topk.topk(given, 5)
            tl_topk.topk(given, 5, lengths=torch.tensor([7, 200, 0]))
            tl_topk.topk(given.clone(), 5, out=out)
        assert len(mine.problems) == 1

    def test_of_the_process(self) -> None:
        mine = Asked()
        tl_topk.topk_indices(scores(), 5)
        tl_topk.set_policy(mine)
        tl_topk.topk_indices(scores(), 5)
        done = threading.Thread(target=lambda: tl_topk.topk_indices(scores(), 6))
        done.start()
        done.join()
        assert [problem.k for problem in mine.problems] == [5, 6]
        tl_topk.set_policy(None)
        tl_topk.topk_indices(scores(), 5)
        assert len(mine.problems) == 2

    def test_of_a_block(self) -> None:
        outer, inner = Asked(), Asked()
        given = scores()
        out = tl_topk.topk_indices(given, 5)
        tl_topk.topk_indices(given, 5, out=out)
        seen_elsewhere: list[int] = []

        def elsewhere() -> None:
            tl_topk.topk_indices(given, 5)
            seen_elsewhere.append(len(outer.problems))

        with tl_topk.use_policy(outer):
            for _ in range(2):
                tl_topk.topk_indices(given, 5, out=out)
            assert len(outer.problems) == 1
            with tl_topk.use_policy(inner):
                tl_topk.topk_indices(given, 5, out=out)
                tl_topk.topk_indices(given, 5, backend="cpu")
            assert (len(outer.problems), len(inner.problems)) == (1, 1)
            other = threading.Thread(target=elsewhere)
            other.start()
            other.join()
            assert seen_elsewhere == [1]
            tl_topk.topk_indices(given, 6, policy="rule")
        tl_topk.topk_indices(given, 5, out=out)
        assert (len(outer.problems), len(inner.problems)) == (1, 1)

    def test_a_block_leaves_the_shortest_way_as_it_was(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        given = scores()
        out = tl_topk.topk_indices(given, 5)
        tl_topk.topk_indices(given, 5, out=out)
        with pytest.raises(KeyError), tl_topk.use_policy("rule"):
            raise KeyError
        monkeypatch.setattr("tl_topk.api.select", None)  # the general way
        assert tl_topk.topk_indices(given, 5, out=out) is out
        assert tl_topk.topk_indices(given, 5).shape == (3, 5)

    def test_by_variable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TL_TOPK_POLICY", f"{__name__}:refusing")
        with pytest.raises(ZeroDivisionError):
            tl_topk.topk_indices(scores(), 5)
        tl_topk.set_policy("rule")  # goes before the variable
        tl_topk.topk_indices(scores(), 5)
        monkeypatch.setenv("TL_TOPK_POLICY", "fastest")
        tl_topk.set_policy(None)
        with pytest.raises(ValueError, match=r"^TL_TOPK_POLICY: expected 'rule', 'model'.*fastest"):
            tl_topk.topk_indices(scores(), 5)

    @pytest.mark.parametrize("bad", ["", "best", "fixed:tpu", "no.such:thing", "math:no", 3])
    def test_no_policy(self, bad: Any) -> None:
        for call in (
            lambda: tl_topk.set_policy(bad),
            lambda: tl_topk.topk_indices(scores(), 5, policy=bad),
            lambda: tl_topk.use_policy(bad).__enter__(),
            lambda: tl_topk.explain(1, 10, 2, policy=bad),
        ):
            with pytest.raises((TypeError, ValueError), match=r"^policy: (expected|.* imported)"):
                call()

    def test_no_plan_could_be_kept_by_it(self) -> None:
        class Equal(Asked):
            def __eq__(self, other: object) -> bool:
                return isinstance(other, Equal)

        with pytest.raises(TypeError, match="policy: expected a hashable callable"):
            tl_topk.topk_indices(scores(), 5, policy=Equal())

    def test_with_a_backend(self) -> None:
        with pytest.raises(ValueError, match="policy: expected None with backend='cpu'"):
            tl_topk.topk(scores(), 5, backend="cpu", policy="rule")

    @pytest.mark.parametrize(
        ("answer", "error"),
        [
            ("cpu", "expected broken to return a Decision, got str"),
            (Decision("tpu", "why not"), "expected broken to name backend .* got 'tpu'"),
            (Decision("dsmem", "why not"), "backend: "),
            (Decision("cpu", "why not", blocks_per_row=2), "blocks_per_row=0 with backend 'cpu'"),
        ],
    )
    def test_bad_answers(self, answer: Any, error: str) -> None:
        def broken(problem: Problem) -> Decision:
            return answer

        with pytest.raises((TypeError, ValueError), match=error):
            tl_topk.topk(scores(), 5, policy=broken)

    def test_of_gradients_and_compilation(self) -> None:
        mine = Asked()
        given = scores().requires_grad_()
        tl_topk.topk(given, 5, policy=mine).values.sum().backward()
        assert len(mine.problems) == 1
        assert given.grad is not None

        @torch.compile(backend="eager", fullgraph=True)
        def compiled(x: torch.Tensor) -> Any:
            return tl_topk.topk_indices(x, 5, policy="rule")

        assert compiled(scores()).shape == (3, 5)
        with tl_topk.use_policy(mine):
            compiled(scores())

    def test_of_mapped_calls_and_the_indexer(self) -> None:
        mine = Asked()
        table = np.zeros((3, 200), np.int32)
        for _ in range(2):
            tl_topk.topk_paged(scores().numpy(), 5, table, policy=mine)
            tl_topk.topk_ragged(scores().numpy(), 5, np.zeros(3, np.int32), policy=mine)
        assert len(mine.problems) == 1
        q, keys = torch.ones(1, 8, 128).bfloat16(), torch.ones(5, 128).bfloat16()
        for _ in range(2):
            tl_topk.indexer_topk(q, keys, torch.ones(1, 8), 2, policy=mine)
        scoring = mine.problems[-1].scoring
        assert len(mine.problems) == 2
        assert scoring == Scoring(8, 128, "bfloat16", paged=False, next_n=1)


def refusing(problem: Problem) -> Decision:
    raise ZeroDivisionError


class TestReports:
    def test_each_decision_once(self, caplog: pytest.LogCaptureFixture) -> None:
        width = 3217  # of no other test
        with caplog.at_level(logging.DEBUG, logger="tl_topk"):
            for _ in range(3):
                tl_topk.clear_plan_cache()
                tl_topk.topk_indices(scores(3, width), 5)
        (record,) = [r for r in caplog.records if str(width) in r.getMessage()]
        assert "backend cpu" in record.getMessage()
        assert (record.name, record.levelno) == ("tl_topk", logging.DEBUG)


class TestExplain:
    def test_needs_no_gpu_for_a_named_device(self) -> None:
        answer = tl_topk.explain(1, 131072, 2048, device="h200")
        assert (answer["backend"], answer["kernel"]) == ("dsmem", "select")
        assert answer["config"]
        assert answer["config"]["threads"] > 0
        assert answer["problem"]["gpu"]["sms"] == 132
        estimates = [c["estimate_us"] for c in answer["candidates"] if c["estimate_us"]]
        assert len(estimates) >= 6
        assert answer["candidates"][-1]["refusal"]

    def test_of_scored_problems(self) -> None:
        answer = tl_topk.explain(
            8, 65536, 2048, heads=64, next_n=2, paged=True, policy="rule", device="H100"
        )
        assert (answer["backend"], answer["kernel"]) == ("pipelined", "fused")

    def test_this_machine(self) -> None:
        assert tl_topk.explain(1, 100, 5, device="cpu")["backend"] == "cpu"
        if not torch.cuda.is_available():
            assert tl_topk.explain(1, 100, 5)["backend"] == "cpu"
            with pytest.raises(RuntimeError, match="no backend can serve"):
                tl_topk.explain(1, 100, 5, device="cuda")

    @pytest.mark.parametrize(
        ("bad", "name"),
        [
            ({"device": "tpu"}, "device: expected 'cpu', 'cuda', 'h200', .* got 'tpu'"),
            ({"device": "cuda:x"}, "device: expected"),
            ({"device": 3}, "device: expected"),
            ({"rows": -1}, "rows: expected"),
            ({"length": 1 << 31}, "length: expected"),
            ({"k": "many"}, "k: expected"),
            ({"next_n": 2}, "next_n: expected 1"),
            ({"rows": 3, "heads": 8, "next_n": 2, "paged": True}, "next_n: expected"),
            ({"heads": 0}, "heads: expected"),
            ({"heads": 8, "paged": 2}, "paged: expected"),
            ({"order": "best"}, "order: expected"),
            ({"dtype": "float64"}, "scores: expected"),
        ],
    )
    def test_bad_arguments(self, bad: dict[str, Any], name: str) -> None:
        with pytest.raises((TypeError, ValueError), match=f"^{name}"):
            tl_topk.explain(**{"rows": 1, "length": 10, "k": 2, "device": "h200", **bad})

    def test_devices(self) -> None:
        assert device_named("H200 ") == ("cuda", 0, H200)
        assert device_named("cuda:3") == ("cuda", 3, None)


def test_policies_have_names() -> None:
    assert policy_named("rule") is rule
    assert policy_named("fixed:cpu") is fixed("cpu")
    assert policy_named(f"{__name__}:refusing").__name__ == "refusing"
