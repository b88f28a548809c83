"""``tl-topk explain`` and ``calibrate``: what they print, and how they say no."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

import tl_topk
from tl_topk.cli import cli

PROBLEM = ("--rows", 4, "--length", 131072, "--k", 2048)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["explain", *map(str, arguments)])


def answer(*arguments: object) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    assert result.output.count("\n") == 1
    return json.loads(result.output)


def test_json_is_what_the_function_returns() -> None:
    found = answer(*PROBLEM, "--device", "H200")
    assert found == json.loads(json.dumps(tl_topk.explain(4, 131072, 2048, device="h200")))
    assert {"backend", "kernel", "config", "reason", "candidates"} <= set(found)
    assert found["candidates"][0]["backend"] == found["backend"]
    assert all({"name", "estimate_us", "refusal"} <= set(c) for c in found["candidates"])


def test_scored_problems() -> None:
    keys = ("--heads", 64, "--dim", 128, "--next-n", 2, "--paged", "--device", "h200")
    found = answer(*PROBLEM, *keys)
    assert found["problem"]["scoring"]["next_n"] == 2
    assert {c["name"] for c in found["candidates"]} == {"fused", "dsmem after scores", "cpu"}
    assert answer(*PROBLEM, *keys, "--policy", "rule")["backend"] == "pipelined"
    assert answer(*PROBLEM, *keys, "--policy", "fixed:dsmem")["backend"] == "dsmem"


def test_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = run(*PROBLEM, "--device", "h100")
    assert result.exit_code == 0
    for part in ("backend dsmem: ", "derived", "chosen", "pipelined", "cluster 16", "estimate"):
        assert part in result.output
    assert "not cpu: it needs the scores on 'cpu', they lie on 'cuda:0'\n" in result.output
    here = run("--rows", 1, "--length", 100, "--k", 5, "--device", "cpu")
    assert here.exit_code == 0
    assert "backend cpu" in here.output


@pytest.mark.parametrize("columns", [80, 200])
@pytest.mark.parametrize("policy", ["model", "rule"])
def test_scored_problems_for_people(
    columns: int, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which candidate is which, and nothing is cut off or broken into lines."""
    monkeypatch.setenv("COLUMNS", str(columns))
    keys = ("--heads", 64, "--next-n", 2, "--paged", "--device", "h100", "--policy", policy)
    lines = run(*PROBLEM, *keys).output.splitlines()
    apart, fused = "scores first, then dsmem", "fused in one kernel (pipelined)"
    for name, is_chosen in ((apart, policy == "model"), (fused, policy == "rule")):
        (row,) = (line for line in lines if line.startswith(f"│ {name} "))
        assert "132 blocks" in row
        assert " us │ derived" in row
        assert ("chosen" in row) == is_chosen
    assert lines[-1] == "not cpu: it needs queries and keys on 'cpu', they lie on 'cuda:0'"
    assert not any("…" in line for line in lines)
    if policy == "model":
        assert lines[0].startswith(f"backend dsmem: '{apart}' with ")
        assert f", '{fused}' next with " in lines[0]
    refused = run(*PROBLEM, *keys, "--order", "index").output
    assert f"\nnot {fused}: the fused kernel serves order='any' alone" in refused


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--device", "h1"), "device: expected 'cpu', 'cuda', 'h200'"),
        (("--policy", "best"), "policy: expected 'rule', 'model', 'measured'"),
        (("--policy", "fixed:gpu"), "'fixed:dsmem', 'fixed:pipelined' or 'fixed:cpu'"),
        (("--policy", "fixed:cpu"), "it needs the scores on 'cpu'"),
        (("--next-n", 2), "next_n: expected 1"),
        (("--heads", 0), "heads: expected"),
    ],
)
def test_says_what_is_allowed(arguments: tuple[object, ...], message: str) -> None:
    result = run(*PROBLEM, "--device", "h200", *arguments)
    assert result.exit_code != 0
    assert message in f"{result.exception} {result.output}"


def test_what_is_needed() -> None:
    assert run("--rows", 1).exit_code != 0
    assert run("--help").exit_code == 0
