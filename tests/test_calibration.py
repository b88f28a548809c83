"""The policy ``measured`` and its table, trusted where it speaks of this GPU and this build."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

import tl_topk
from tl_topk.cli import cli
from tl_topk.dispatch import measured, model
from tl_topk.dispatch.calibration import Entry, _table, calibration_file, load, save
from tl_topk.dispatch.devices import NAMED
from tl_topk.problem import Problem, Scoring

H200 = NAMED["h200"]
PROBLEM = Problem(4, 65536, 2048, "float32", values=False, device_type="cuda", gpu=H200)
TIMES = {"dsmem block": 9.0, "dsmem cluster 4": 4.0, "dsmem cluster 16": 5.0, "pipelined": 7.0}


@pytest.fixture(autouse=True)
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TL_TOPK_CACHE", str(tmp_path))
    _table.cache_clear()
    yield calibration_file(H200)
    _table.cache_clear()


def write(path: Path, **us: float) -> None:
    save(H200, [Entry(4, 65536, 2048, "float32", {**TIMES, **us})], path)


def test_is_taken(table: Path) -> None:
    write(table)
    decision = measured(PROBLEM)
    assert (decision.backend, decision.blocks_per_row) == ("dsmem", 4)
    assert decision.config is not None
    assert decision.config.blocks_per_row == 4
    assert (decision.estimate_us, decision.candidates[0].basis) == (4.0, "measured")
    assert "measured to be fastest on this GPU" in decision.reason
    assert load(H200, table) == (Entry(4, 65536, 2048, "float32", TIMES),)


def test_any_candidate_may_be_the_fastest(table: Path) -> None:
    write(table, pipelined=1.5)
    assert measured(PROBLEM).backend == "pipelined"
    absent = replace(PROBLEM, absent=(("pipelined", "no TileLang"),))
    assert measured(absent).backend == "dsmem"


@pytest.mark.parametrize(
    "near", [{"rows": 5}, {"width": 80000}, {"width": 50000}, {"k": 1500}, {"largest": False}]
)
def test_near_problems(table: Path, near: dict[str, Any]) -> None:
    write(table)
    assert measured(replace(PROBLEM, **near)).candidates[0].basis == "measured"


@pytest.mark.parametrize(
    ("far", "why"),
    [
        ({"rows": 8}, "off the calibrated grid"),
        ({"width": 1 << 20}, "off the calibrated grid"),
        ({"k": 512}, "off the calibrated grid"),
        ({"dtype": "bfloat16"}, "off the calibrated grid"),
        ({"order": "value"}, "order='any'"),
        ({"scoring": Scoring(64)}, "scores that lie ready"),
        ({"gpu": NAMED["h100"]}, "no table for this GPU"),
        ({"rows": 0}, "off the calibrated grid"),
    ],
)
def test_off_the_grid_the_model_decides(table: Path, far: dict[str, Any], why: str) -> None:
    write(table)
    problem = replace(PROBLEM, **far)
    decision = measured(problem)
    assert replace(decision, reason="") == replace(model(problem), reason="")
    assert f"(not measured: {why}" in decision.reason.replace("tables are of ", "") or (
        why in decision.reason
    )


def test_without_a_table() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "tl-topk calibrate" in measured(PROBLEM).reason
        assert measured(Problem(1, 10, 2, "float32")).backend == "cpu"


def broken(path: Path, change: Any) -> None:
    write(path)
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(format=99),
        lambda d: d.update(build="0123"),
        lambda d: d.update(gpu="NVIDIA H100"),
        lambda d: d.update(sms=100),
        lambda d: d.pop("sms"),
        lambda d: d.update(entries={}),
        lambda d: d["entries"].append(3),
        lambda d: d["entries"][0].update(rows="4"),
        lambda d: d["entries"][0].update(rows=0),
        lambda d: d["entries"][0].update(us={}),
        lambda d: d["entries"][0].update(us={"dsmem block": -1}),
        lambda d: d["entries"][0].update(us={"dsmem block": True}),
        lambda d: d["entries"][0].update(us=[1]),
        lambda d: d["entries"][0].update(dtype="float64"),
        lambda d: d["entries"][0].update(more=1),
        lambda d: d["entries"][0].pop("k"),
    ],
)
def test_a_damaged_or_outdated_table_is_ignored_with_one_warning(table: Path, change: Any) -> None:
    broken(table, change)
    with pytest.warns(RuntimeWarning, match="is ignored: .* `tl-topk calibrate`") as warned:
        decisions = [measured(replace(PROBLEM, rows=rows)) for rows in (4, 3)]
    assert len(warned) == 1
    assert {decision.candidates[0].basis for decision in decisions} == {"fitted"}


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"text"', "{}", "\0\1"])
def test_no_table_at_all(table: Path, text: str) -> None:
    table.parent.mkdir()
    table.write_text(text)
    with pytest.warns(RuntimeWarning, match="is ignored"):
        assert measured(PROBLEM).backend == model(PROBLEM).backend


def test_candidates_that_no_longer_exist(table: Path) -> None:
    save(H200, [Entry(4, 65536, 2048, "float32", {"dsmem grid 99": 1.0})], table)
    assert measured(PROBLEM).candidates[0].basis == "fitted"


def test_a_table_is_written_as_a_whole(table: Path) -> None:
    write(table)
    before = table.read_text()
    with pytest.raises(TypeError):
        save(H200, [Entry(1, 1, 1, "float32", {"x": object()})], table)  # type: ignore[dict-item]
    assert table.read_text() == before
    assert list(table.parent.iterdir()) == [table]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_calibrate_needs_a_gpu() -> None:
    result = CliRunner().invoke(cli, ["calibrate"])
    assert isinstance(result.exception, RuntimeError)
    assert "CUDA" in str(result.exception)


def test_the_grid_and_its_graphs() -> None:
    from tl_topk import calibrate

    problems = calibrate.grid(3)
    assert len(set(problems)) == len(problems) > 300
    assert {p.device_id for p in problems} == {3}
    assert {p.k for p in problems} == {512, 1024, 2048}
    assert max(p.rows * p.width for p in problems) * 4 <= 1 << 30
    assert [calibrate.launches_for(n) for n in (0, 6_000_000, 1 << 30)] == [24, 24, 4]
    (name,) = calibrate.plans_of(Problem(2, 100, 5, "float32", values=False))
    assert name == "cpu"


class FakeClock:
    """Makes each call once, and says how long it took."""

    def series(self, ways: dict[str, Sequence[Callable[[], None]]]) -> dict[str, list[float]]:
        for calls in ways.values():
            for call in calls:
                call()
        return {name: [9.0, 4.0 + i, 1.0] for i, name in enumerate(ways)}


def test_a_whole_calibration(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On memory of the host and by a clock that makes up its times; the rest is as on a GPU."""
    from tl_topk import TopKPlan, calibrate

    empty = torch.empty

    def plans(problem: Problem) -> dict[str, TopKPlan]:
        made = [TopKPlan(problem.rows, problem.width, problem.k, values=False) for _ in range(2)]
        return dict(zip(("dsmem cluster 4", "dsmem block"), made, strict=True))

    monkeypatch.setattr(torch, "empty", lambda *shape, device=None, **how: empty(*shape, **how))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(calibrate, "gpu_of", lambda device_id: H200)
    monkeypatch.setattr(calibrate, "GraphClock", FakeClock)
    monkeypatch.setattr(calibrate, "plans_of", plans)
    monkeypatch.setattr(calibrate, "grid", lambda device_id: [PROBLEM])
    monkeypatch.setattr(calibrate, "_MOST_BYTES", 1 << 21)
    result = CliRunner().invoke(cli, ["calibrate"])
    assert result.exit_code == 0
    assert "1 problems in" in result.output
    assert load(H200, table) == (
        Entry(4, 65536, 2048, "float32", {"dsmem cluster 4": 4.0, "dsmem block": 5.0}),
    )
    assert measured(PROBLEM).blocks_per_row == 4
    other = table.with_name("other.json")
    result = CliRunner().invoke(cli, ["calibrate", "-o", str(other), "--json"])
    answer = json.loads(result.stdout)
    assert answer["path"] == str(other)
    assert answer["entries"][0]["us"] == {"dsmem cluster 4": 4.0, "dsmem block": 5.0}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match="expected a torch that finds the GPU"):
        calibrate.calibrate()


@pytest.mark.gpu
def test_calibrate(table: Path) -> None:
    from tl_topk.calibrate import calibrate

    device = torch.cuda.current_device()
    problems = [
        Problem(rows, 16384, 512, "float32", values=False, device_type="cuda", device_id=device)
        for rows in (1, 8)
    ]
    calibration = calibrate(device, problems=problems)
    entries = list(calibration.run())
    assert [entry.rows for entry in entries] == [1, 8]
    assert all(len(entry.us) >= 2 and min(entry.us.values()) > 0 for entry in entries)
    scores = torch.randn(8, 16384, device="cuda")
    expected = scores.topk(512).indices.sort(dim=1).values.int()
    found = tl_topk.topk_indices(scores, 512, order="index", policy="measured")
    assert torch.equal(found, expected)
    answer = tl_topk.explain(8, 16384, 512, policy="measured", device=f"cuda:{device}")
    assert answer["candidates"][0]["basis"] == "measured"
