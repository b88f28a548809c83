"""Runs of the benchmarks, whole, interrupted and gone on with, and their comparison."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

# Where pytest was not started as a module, or there is no checkout, bench is not importable.
pytest.importorskip("bench", reason="run as python -m pytest in a checkout")

from bench import runner, session, suites
from bench.__main__ import main
from bench.cases import Case
from bench.compare import compare
from bench.contenders import Contender, Ours, OursByName, TorchTopK
from bench.inputs import Inputs, make_inputs
from bench.results import (
    EXACT,
    FUSED_SUITE,
    HOST_SUITE,
    PHASES_SUITE,
    Document,
    Measurement,
    Phases,
    Scoring,
    load,
)
from bench.tables import markdown, table_of
from bench.timing import Timer, WallTimer, noise_of
from bench_kit import (
    SMALL,
    Broken,
    Careless,
    FakeTimer,
    document,
    ours,
    run_small,
    small_suite,
)


def test_wrong_broken_and_refusing_contenders_are_marked() -> None:
    case = replace(SMALL, lengths=500)
    results = run_small(SMALL, case, contenders=[Careless(), Broken(), TorchTopK()])
    answers = [(m.contender, m.us, m.answer) for m in results.measurements()]
    assert answers[:3] == [
        ("careless", 10.0, "wrong: not the best k in 6 of 6 rows"),
        ("broken", None, "failed: no kernel image"),
        ("torch.topk", 10.0, EXACT),
    ]
    assert answers[5] == ("torch.topk", None, "refused: no lengths or row starts")
    assert "10.00 wrong" in markdown(table_of(results))


def test_our_own_failure_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ours, "prepare", Broken.prepare)
    with pytest.raises(RuntimeError, match="no kernel image"):
        run_small(SMALL, contenders=[ours()])


def test_wall_timer_measures_something() -> None:
    measured, answers = WallTimer(0.01).time(ours().prepare(make_inputs(SMALL, "cpu")))
    assert measured.us > 0
    assert len(answers) == measured.launches == 2


@pytest.fixture
def a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """``python -m bench run small`` with options: two cases, three contenders, a fake clock."""
    suite = small_suite(SMALL, replace(SMALL, k=7))
    monkeypatch.setitem(suites.SUITES, "cpu", suite)
    monkeypatch.setattr(session, "make_timer", lambda suite: FakeTimer())
    contenders = [ours(), TorchTopK(), Careless()]
    monkeypatch.setattr(session, "choose_contenders", lambda suite: (contenders, {"x": "why"}))
    monkeypatch.setenv("BENCH_COMMIT", "abc")

    def run(*options: str) -> Result:
        return CliRunner().invoke(
            main, ["run", "cpu", "--output", str(tmp_path / "new" / "run.json"), *options]
        )

    return run


def test_a_whole_run(tmp_path: Path, a_run: Callable[..., Result]) -> None:
    run = a_run()
    assert run.exit_code == 0, run.output
    assert "without x: why" in run.output
    assert "6 of 6 measurements are in" in run.output
    kept = load(tmp_path / "new" / "run.json")
    assert (kept.complete, kept.commit, kept.absent) == (True, "abc", {"x": "why"})
    assert kept.command == "python -m bench run cpu"


def test_an_interrupted_run_keeps_what_it_has_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, a_run: Callable[..., Result]
) -> None:
    def interrupted(*arguments: Any) -> Iterator[Measurement]:
        yield from islice(runner.measure(*arguments), 4)
        raise KeyboardInterrupt

    path = tmp_path / "new" / "run.json"
    with monkeypatch.context() as patch:
        patch.setattr(session, "measure", interrupted)
        run = a_run()
    assert run.exit_code == 1
    assert "interrupted" in run.output
    assert "4 of 6 measurements are in" in run.output
    assert "--resume measures the rest" in run.output
    assert not load(path).complete
    assert [file.name for file in path.parent.iterdir()] == ["run.json"]

    measured: list[str] = []
    one = runner._one

    def counted(inputs: Inputs, contender: Contender, timer: Timer) -> Measurement:
        measured.append(contender.name)
        return one(inputs, contender, timer)

    monkeypatch.setattr(runner, "_one", counted)
    assert a_run("--resume").exit_code == 0
    assert measured == ["torch.topk", "careless"]
    whole = load(path)
    assert whole.complete
    assert len({(m.case, m.contender) for m in whole.measurements()}) == 6
    assert a_run("--resume").exit_code == 0  # nothing left to do
    assert measured == ["torch.topk", "careless"]


def test_a_run_stops_in_time_and_goes_on(tmp_path: Path, a_run: Callable[..., Result]) -> None:
    path = tmp_path / "new" / "run.json"
    assert a_run("--seconds", "1e-9").exit_code == 0
    assert (len(load(path).results), load(path).complete) == (1, False)
    assert a_run("--resume").exit_code == 0
    assert (len(load(path).results), load(path).complete) == (6, True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"commit": "def"}, "it was measured at commit def, this is abc"),
        ({"suite": "grid"}, "it holds suite grid, not small"),
        ({"machine": {"cpu": "an abacus"}}, "it was measured with cpu an abacus, this is"),
    ],
)
def test_what_others_have_measured_is_not_gone_on_with(
    tmp_path: Path, a_run: Callable[..., Result], change: dict[str, Any], said: str
) -> None:
    a_run()
    path = tmp_path / "new" / "run.json"
    replace(load(path), **change).save(path)
    before = path.read_text()
    run = a_run("--resume")
    assert run.exit_code == 2
    assert said in " ".join(run.output.split())
    assert path.read_text() == before


def test_a_wrong_answer_of_ours_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, a_run: Callable[..., Result]
) -> None:
    monkeypatch.setattr(Ours, "prepare", Careless.prepare)
    run = a_run()
    assert run.exit_code == 1
    assert "tl_topk cpu: 3 x 3000, k=100: wrong: not the best k in 6 of 6 rows" in run.output
    assert "careless: 3" not in run.output  # is wrong as well, and not ours


def test_progress_says_what_is_left(
    monkeypatch: pytest.MonkeyPatch, a_run: Callable[..., Result]
) -> None:
    monkeypatch.setattr(session, "_LINE_EVERY_S", 0.0)
    lines = re.findall(r"(\d) of 6, about (\d+) s left; (.*)", a_run().output)
    assert [line[0] for line in lines] == list("012345")
    assert lines[-1][2] == "careless: 3 x 3000, k=7"


def test_a_run_that_is_terminated_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "cpu.json"
    command = [sys.executable, "-m", "bench", "run", "cpu", "--output", str(path)]
    root = Path(__file__).parents[1]
    with subprocess.Popen(command, cwd=root, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        while not path.exists() and run.poll() is None:
            time.sleep(0.05)
        run.send_signal(signal.SIGTERM)
        _, errors = run.communicate(timeout=60)
    assert run.returncode == 1
    assert not load(path).complete
    assert load(path).results
    assert b"measurements are in" in errors


def test_one_case_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "make_timer", lambda suite: FakeTimer())
    path = tmp_path / "case.json"
    arguments = ["case", "--device", "cpu", "--width", "4K", "-k", "64", "--rows", "2"]
    arguments += ["--distribution", "steps 35 %", "--order", "value", "--output", str(path)]
    run = CliRunner().invoke(main, arguments)
    assert run.exit_code == 0, run.output
    kept = load(path)
    assert {m.case for m in kept.measurements()} == {
        Case(2, 4096, 64, distribution="steps 35 %", order="value")
    }
    words = kept.command.split(" case ")[1]
    assert words.startswith("--rows=2 --width=4096 --k=64")
    again = CliRunner().invoke(main, shlex.split(kept.command)[3:])  # without "python -m bench"
    assert again.exit_code == 0, again.output


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--width", "3Q", "expected a length such as 4096, 64K or 1M, got '3Q'"),
        ("--width", "", "expected a length such as"),
        ("--lengths", "all", "or mixed or causal, got 'all'"),
        ("--distribution", "gaussian", "expected one of normal, uniform"),
        ("--distribution", "steps 101 %", "or steps N % (N up to 100), got 'steps 101 %'"),
    ],
)
def test_a_case_that_is_none_is_refused(option: str, value: str, said: str) -> None:
    run = CliRunner().invoke(main, ["case", "--device", "cpu", option, value])
    assert run.exit_code == 2
    assert said in " ".join(run.output.split())


def test_a_backend_by_name_is_judged_as_plans_are() -> None:
    cases = [SMALL, replace(SMALL, lengths="mixed", values=True, order="value", row_starts=True)]
    results = run_small(*cases, contenders=[OursByName("cpu")]).measurements()
    assert [m.answer for m in results] == [EXACT, EXACT]
    assert {m.contender for m in results} == {"tl_topk cpu"}


def test_a_gpu_suite_without_a_gpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    run = CliRunner().invoke(main, ["run", "short"])
    assert run.exit_code == 1
    assert run.output == "Error: suite short needs a GPU, and torch sees none\n"


# Comparison


def compared(tmp_path: Path, old: Document, new: Document) -> tuple[int, str]:
    paths = [tmp_path / "old.json", tmp_path / "new.json"]
    old.save(paths[0])
    new.save(paths[1])
    run = CliRunner().invoke(main, ["compare", *map(str, paths)])
    return run.exit_code, run.output


@pytest.mark.parametrize(
    ("us", "status", "said"),
    [
        (10.0, 0, "0 regressed, 0 improved"),
        (10.45, 0, "0 regressed, 0 improved"),  # 3 % of 10 and twice 0.1
        (10.55, 1, "REGRESSED tl_topk cpu: 3 x 3000, k=100: 10.00 -> 10.55 us"),
        (9.0, 0, "0 regressed, 1 improved"),
    ],
)
def test_compare_takes_noise_into_account(
    tmp_path: Path, us: float, status: int, said: str
) -> None:
    old, new = (run_small(SMALL, contenders=[ours()], us=time) for time in (10.0, us))
    exit_code, output = compared(tmp_path, old, new)
    assert exit_code == status
    assert said in output


def test_a_peer_that_slows_down_is_no_regression_of_ours(tmp_path: Path) -> None:
    old, new = (run_small(SMALL, contenders=[TorchTopK()], us=time) for time in (10.0, 20.0))
    assert compared(tmp_path, old, new)[0] == 0


def test_an_answer_no_longer_right_is_a_regression() -> None:
    old = run_small(SMALL, contenders=[ours()])
    wrong = [result | {"answer": "wrong: not the best k"} for result in old.results]
    (change,) = compare(old, document("short", wrong)).changes
    assert change.regressed
    assert change.outcome == "broken"


def test_a_call_that_no_longer_works_is_a_regression(tmp_path: Path) -> None:
    old = run_small(SMALL, contenders=[ours()])
    failed = [result | {"us": None, "answer": "failed: no"} for result in old.results]
    status, output = compared(tmp_path, old, document("short", failed))
    assert status == 1
    assert "10.00 -> none us" in output


def test_what_the_new_run_lacks_and_other_machines_are_named(tmp_path: Path) -> None:
    old = run_small(SMALL, replace(SMALL, k=7), contenders=[ours()])
    new = run_small(SMALL, contenders=[ours()])
    new.machine = new.machine | {"cpu": "another"}
    new.complete = False
    status, output = compared(tmp_path, old, new)
    assert status == 0
    assert "note: not the same cpu: a CPU and another" in output
    assert "note: the new run was interrupted" in output
    assert "missing   tl_topk cpu: 3 x 3000, k=7" in output


def test_host_overheads_are_compared(tmp_path: Path) -> None:
    def at(ns: float, **noise: float) -> Document:
        result = {"call": "plan.run(x)", "median_ns": ns, "p99_ns": ns, "calls": 9}
        return document(HOST_SUITE, [result | noise])

    assert compared(tmp_path, at(1000), at(1020))[0] == 0
    assert compared(tmp_path, at(1000), at(1100))[0] == 1
    assert compared(tmp_path, at(1000, noise_ns=50), at(1100, noise_ns=50))[0] == 0


def test_fused_ways_are_compared(tmp_path: Path) -> None:
    def at(us: float) -> Document:
        ways = [Scoring("fused", 1, 65536, 64, 2048, us, 0.1, EXACT)]
        return document(FUSED_SUITE, [asdict(way) for way in ways])

    assert compared(tmp_path, at(9), at(9.2))[0] == 0
    status, output = compared(tmp_path, at(9), at(10))
    assert status == 1
    assert "REGRESSED fused: 1 x 64K keys, 64 heads, k=2048: 9.00 -> 10.00 us" in output


def test_launches_are_compared_whole_not_by_phase(tmp_path: Path) -> None:
    def at(us: float) -> Document:
        return document(PHASES_SUITE, [Phases(SMALL, {"read": 1 / us}, us).as_dict()])

    assert compared(tmp_path, at(5), at(5.1))[0] == 0
    assert compared(tmp_path, at(5), at(6))[0] == 1


def test_noise_is_the_larger_of_drift_and_scatter() -> None:
    assert noise_of([10.0] * 8, [10.0] * 8) == 0
    assert noise_of([10.0] * 8, [10.5] * 8) == pytest.approx(0.5)  # drift
    scattered = [9.0, 11.0] * 8
    assert noise_of(scattered, scattered) == pytest.approx(1.57 * 2 / 32**0.5)


def test_compare_refuses_what_it_cannot_compare(tmp_path: Path) -> None:
    old = run_small(SMALL, contenders=[ours()])
    new = run_small(replace(SMALL, k=5), contenders=[ours()])
    status, output = compared(tmp_path, old, new)
    assert status == 2
    assert "no measurement in common" in output
    (tmp_path / "new.json").write_text("{}")
    run = CliRunner().invoke(main, ["compare", *[str(tmp_path / "new.json")] * 2])
    assert run.exit_code == 2
    assert "is no benchmark result" in run.output
