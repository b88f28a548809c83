"""The records of what shows that answers are right: how they are judged, and README's table."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench import endurance, reliability, sanitize, tested
from bench.results import Document, command_line, load

MANGLED = (
    "void tl_topk::select_kernel<(tl_topk::Dtype)1, (tl_topk::Scope)1, 1, 6u, true, false>"
    "(std::conditional<false, tl_topk::MappedParams, tl_topk::KernelParams>::type)"
)


def test_kernels_have_short_names() -> None:
    assert sanitize._short(MANGLED) == "select_kernel<Dtype 1, Scope 1, 1, 6u, true, false>"
    name = "tl_topk::(anonymous namespace)::local_lengths_kernel(tl_topk::LengthsArgs)"
    assert sanitize._short(name) == "local_lengths_kernel"


@pytest.mark.parametrize(
    ("output", "status", "errors"),
    [
        ("12 passed, 3 skipped in 4 s\n========= ERROR SUMMARY: 0 errors\n", 0, 0),
        ("12 passed\n========= ERROR SUMMARY: 7 errors\n", 9, 7),
        ("3 passed\n========= RACECHECK SUMMARY: 2 hazards displayed (1 error", 9, 2),
        ("1 failed, 2 passed\n========= ERROR SUMMARY: 0 errors\n", 1, 0),
        ("..", -9, None),
    ],
)
def test_what_a_tool_prints(output: str, status: int, errors: int | None) -> None:
    outcome = sanitize.verdict("memcheck", output, status, 1.0)
    assert outcome.errors == errors
    assert outcome.clean == (status == 0)


def test_findings_of_a_process_that_was_cut_off() -> None:
    output = (
        "========= COMPUTE-SANITIZER\n..========= Error: Race reported between Write access at k\n"
        "=========     and Read access at k [8 hazards]\n"
        "========= Warning: Race reported between Write access at k\n"
        "========= Uninitialized __global__ memory read of size 16 bytes\n"
    )
    outcome = sanitize.verdict("racecheck", output, -9, 1.0)
    assert outcome.errors is None
    assert not outcome.clean
    assert outcome.findings == 3
    assert sanitize.verdict("racecheck", "..", -9, 1.0).findings == 0


FAKE_SANITIZER = """#!/bin/sh
while [ "${1#--}" != "$1" ]; do shift 2; done
"$@"; status=$?
echo "========= ERROR SUMMARY: 0 errors"
exit $status
"""


def test_processes_of_a_tool_share_the_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(FAKE_SANITIZER)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    tests = [f"tests/test_exchange.py::test_lengths_of_shards[cpu-torch-{n}]" for n in (0, 1, 7)]
    folder = tmp_path / "run"
    folder.mkdir()
    monkeypatch.setattr(sanitize, "_KEEP_S", 0.1)
    kept: list[int] = []

    def keep(outcomes: Sequence[sanitize.Outcome], launched: set[str]) -> None:
        kept.append(sum(len(each.tests) for each in outcomes))
        assert len(outcomes) == 2
        assert launched == set()

    outcomes = sanitize._run_all({"memcheck": 2}, {"memcheck": tests}, 60, folder, keep)
    assert sorted(test.name for each in outcomes for test in each.tests) == tests
    assert len(kept) > 1
    assert kept[-1] == 3
    found = sanitize.summary("memcheck", outcomes, 4)
    assert found["clean"]
    assert (found["tests"], found["left"], found["cut off"]) == (3, 1, 0)
    late = sanitize._run_all({"racecheck": 1}, {"racecheck": tests}, -1, folder, lambda *_: None)
    assert sanitize.summary("racecheck", late, 3)["left"] == 3


def test_each_tool_has_a_process() -> None:
    assert sum(sanitize.shares(sanitize.TOOLS, 16).values()) == 16
    assert set(sanitize.shares(["initcheck"], 1).values()) == {1}


def test_a_recorded_command_names_no_output() -> None:
    words = ["--limit", "60", "--output", "/somewhere/file.json", "--output=there", "-k", "a or b"]
    assert command_line("bench.x", words) == "python -m bench.x --limit 60 -k 'a or b'"


def test_a_junit_report_is_counted() -> None:
    report = '<testsuites><testsuite tests="9" failures="1" errors="2" skipped="3"/></testsuites>'
    assert tested.counts(report) == {"passed": 3, "failed": 3, "skipped": 3}


def run(program: str) -> subprocess.Popen[str]:
    program = f"import faulthandler, time; faulthandler.enable(); {program}"
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize(
    ("program", "limit", "passed", "words"),
    [
        ("""print('{"count": 3, "wrong": 0, "lost_bytes": 5}')""", 30, True, "3"),
        ("""print('{"count": 3, "wrong": 1, "lost_bytes": 5}')""", 30, False, "'wrong': 1"),
        ("""print('{"count": 3, "wrong": 0, "lost_bytes": 1000000000}')""", 30, False, "lost"),
        ("raise ValueError('no luck')", 30, False, "no luck"),
        ("time.sleep(60)", 1.5, False, 'hangs: Fatal Python error: Aborted'),
    ],
)  # fmt: skip
def test_a_phase_is_judged(program: str, limit: float, passed: bool, words: str) -> None:
    """A hang above all: it is ended, and says where it was."""
    begun = time.monotonic()
    result = endurance._judged("replays", run(program), begun, limit)
    assert result["passed"] == passed
    assert words in str(result)
    assert time.monotonic() - begun < 25


def record(suite: str, results: list[dict[str, object]], machine: dict[str, object]) -> Document:
    return Document(
        suite=suite,
        command=f"python -m bench.{suite}",
        commit="0123456789ab",
        date="2026-11-29T23:00:00+00:00",
        machine=machine,
        complete=True,
        results=results,
    )


def test_the_table_shows_every_record(tmp_path: Path) -> None:
    gpu = {"gpu": "NVIDIA H200"}
    check = {"backend": "dsmem", "rows": 12_000_000, "elements": 2.5e10, "launches": 4000}
    records = {
        "check_dsmem": record("check", [check | {"finding": None}], gpu),
        "check_cpu": record(
            "check", [check | {"backend": "cpu", "finding": "seed 7: twice"}], {"cores": 2}
        ),
        "sanitizer": record(
            "sanitizer",
            [
                {"tool": "memcheck", "tests": 90, "findings": 0, "clean": True},
                {"tool": "racecheck", "tests": 90, "findings": 4, "clean": False, "failed": 2},
                {"kernels": 86, "launched": 86, "not launched": [], "left": 0},
            ],
            gpu,
        ),
        "sanitizer_mapped": replace(
            record(
                "sanitizer",
                [
                    {"tool": "memcheck", "tests": 9, "findings": 0, "clean": True, "skipped": 2},
                    {"kernels": 86, "launched": 44, "not launched": ["others"], "left": 0},
                ],
                gpu,
            ),
            command="python -m bench.sanitize --keyword mapped",
        ),
        "endurance": record(
            "endurance",
            [
                {"what": "replays", "count": 1_000_000, "passed": True, "lost_bytes": 0},
                {"what": "captures", "passed": False, "problem": "hangs: there"},
            ],
            gpu,
        ),
        "tests_adversaries": record(
            "tests", [{"what": "GPU tests", "passed": 1234, "failed": 0}], gpu
        ),
        "coverage": record(
            "coverage", [{"language": "C++", "percent": 93.21, "lines": 1500}], {"cores": 2}
        ),
        "mutation_native": record(
            "mutation",
            [{"what": "csrc/cpu", "tool": "a tool", "killed": 90, "survived": 10}],
            {"cores": 2},
        ),
    }
    for name, document in records.items():
        document.save(tmp_path / f"{name}.json")
    made = reliability.reliability_section(tmp_path)
    for words in (
        "| 12,000,000 rows of 25.0G scores in 4,000 launches: no difference |",
        "**seed 7: twice**",
        "| compute-sanitizer memcheck | 90 tests: nothing |",
        "| compute-sanitizer racecheck | 90 tests: **4 findings**, **2 failed** |",
        "| compute-sanitizer memcheck, `mapped` tests | 9 tests: nothing, 2 others skipped |",
        "| 86 of 86 |",
        "| 1,000,000: no wrong answer, no hang, no memory lost |",
        "**failed: hangs: there**",
        "| 1,234 passed, 0 failed |",
        "| 93.2 % of 1,500 |",
        "| 90 of 100 |",
        "| [`python -m bench.check`](bench/results/check_dsmem.json) | 2026-11-29 | NVIDIA H200 |",
        "| 2 CPU cores | 0123456789ab |",
    ):
        assert words in made
    assert "44 of 86" not in made
    assert reliability.reliability_section(tmp_path / "none") == ""


def test_what_failed_is_in_the_table() -> None:
    for name in reliability.FILES:
        path = reliability.RESULTS / f"{name}.json"
        if path.exists():
            document = load(path)
            assert not document.commit.endswith("+"), path
            failed = [each for each in document.results if each.get("passed") is False]
            shown = str(reliability.reliability_table({name: document}).rows)
            assert shown.count("**failed") == len(failed)


def test_a_cut_run_says_what_it_did_not_reach() -> None:
    results: list[dict[str, Any]] = [
        {"tool": "synccheck", "tests": 80, "findings": 0, "clean": True, "left": 10, "failed": 0},
        {"kernels": 86, "launched": 3, "not launched": [], "left": 70},
    ]
    assert list(reliability._sanitizer(results)) == [
        ("compute-sanitizer synccheck", "80 tests: nothing, 10 not reached")
    ]
