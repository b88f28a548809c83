"""compute-sanitizer over the tests marked `sanitizer`, by all of its tools, side by side.

racecheck, for which a launch takes seconds, is given those alone that are marked `racecheck` too:
they launch every kernel, and which they launched is recorded.

    python -m bench.sanitize [--tools memcheck,racecheck] [--seconds S] [--keyword EXPRESSION]

Run in the checkout, on a machine with a GPU. The processes of a tool take the next test that none
of them has run; after S seconds none is begun any more. Writes bench/results/sanitizer.json and a
log beside it, every few seconds anew, so that a run that is ended keeps what it has. Exits 1 where
a tool found something, a test failed, or a kernel was not launched. torch's own kernels are watched
by initcheck alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from bench.results import RESULTS, command_line

__all__ = ["PROFILER", "TOOLS", "Outcome", "Ran", "kernels_of_library", "main", "shares", "verdict"]

#: With the share of the processes that each needs.
_WEIGHTS = {"memcheck": 3, "racecheck": 5, "synccheck": 3, "initcheck": 4}
TOOLS = tuple(_WEIGHTS)
_ROOT = Path(__file__).parents[1]
_SUMMARY = re.compile(
    r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard|LEAK SUMMARY: (\d+)"
)
_FINDING = re.compile(
    r"^.*=========\s(?:Error|Warning|Invalid|Uninitialized|Barrier|Program)\b", re.MULTILINE
)
# With `pipelined` selections, exchange and mapping are done by the kernels of `dsmem`.
_OWN_KERNELS = "not (pipelined and (exchange or mapped))"
_FIRST_PORT, _PORTS = 49_152, 16  # that a process under a tool may use
_KEEP_S = 5.0
_RUNS = -1  # the status of a process that has not ended
_GRACE_S = 20.0  # after which a test that was begun in time is cut off

#: Is given all outcomes so far, and the kernels known to be launched.
Keep: TypeAlias = "Callable[[Sequence[Outcome], set[str]], None]"

#: Not a tool of compute-sanitizer: names the kernels that racecheck's tests launch.
PROFILER = "profiler"


@dataclass(frozen=True)
class Ran:
    """A test that a process has run.

    Attributes:
        name: of the test.
        outcome: as pytest names it.
        seconds: that it took.
    """

    name: str
    outcome: str
    seconds: float


@dataclass(frozen=True)
class Outcome:
    """What one process under one tool came to.

    Attributes:
        tool: of compute-sanitizer, or :data:`PROFILER`.
        tests: that were run.
        errors: that the tool reports; None where it came to no summary.
        status: how the process ended.
        seconds: that it took.
        output: all that it printed.
    """

    tool: str
    tests: Sequence[Ran]
    errors: int | None
    status: int
    seconds: float
    output: str

    @property
    def clean(self) -> bool:
        return self.errors == 0 and self.status == 0

    @property
    def findings(self) -> int:
        """As the summary counts them, or where there is none, those that were printed."""
        return len(_FINDING.findall(self.output)) if self.errors is None else self.errors

    @property
    def passed(self) -> int:
        return sum(test.outcome == "passed" for test in self.tests)


def verdict(
    tool: str, output: str, status: int, seconds: float, tests: Sequence[Ran] = ()
) -> Outcome:
    """From what a process printed and how it ended."""
    found = [int(next(filter(None, match), 0)) for match in _SUMMARY.findall(output)]
    return Outcome(tool, tests, sum(found) if found else None, status, seconds, output)


def kernels_of_library(path: Path) -> set[str]:
    """The demangled names of all kernels in a library; empty where cuobjdump is missing."""
    if not (tool := shutil.which("cuobjdump") or shutil.which("/usr/local/cuda/bin/cuobjdump")):
        return set()
    listing = subprocess.run(
        [tool, "-res-usage", str(path)], capture_output=True, text=True, check=False
    ).stdout
    mangled = re.findall(r"Function (\S+):", listing)
    names = subprocess.run(
        ["c++filt"], input="\n".join(mangled), capture_output=True, text=True, check=True
    ).stdout
    return {_short(name) for name in names.splitlines() if "tl_topk" in name}


def _library() -> Path:
    """The native library that this process has loaded."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    return Path(next(line.split()[-1] for line in maps if "libtl_topk.so" in line))


def _short(name: str) -> str:
    """A kernel's name without its return type and arguments, casts in its template's shortened."""
    name = re.sub(r"^(void )?tl_topk::(\(anonymous namespace\)::)?", "", name.strip())
    name = re.sub(r"\(tl_topk::(\w+)\)(\d)", r"\1 \2", name)
    depth = 0
    for at, letter in enumerate(name):  # up to where the template's arguments end
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0:
            return name[:at]
    return name


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.sanitize",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--tools", default=",".join(TOOLS), help="of compute-sanitizer")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="in all")
    parser.add_argument("--keyword", default=_OWN_KERNELS, help="as pytest's -k")
    parser.add_argument("--seconds", type=float, default=600, help="no test is begun after them")
    parser.add_argument("--output", type=Path, default=RESULTS / "sanitizer.json")
    arguments = parser.parse_args()

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started ends as well
    from bench.machine import new_document  # torch, which takes its time

    document = new_document("sanitizer", command_line("bench.sanitize"), "cuda")
    every, some = (_test_ids(marker, arguments.keyword) for marker in ("sanitizer", "racecheck"))
    workers = shares(arguments.tools.split(","), arguments.processes)
    ids = {tool: some if tool in (PROFILER, "racecheck") else every for tool in workers}
    known = kernels_of_library(_library())

    def keep(outcomes: Sequence[Outcome], launched: set[str]) -> None:
        document.results = [
            summary(tool, outcomes, len(ids[tool])) for tool in workers if tool != PROFILER
        ]
        document.results.append(
            {
                "kernels": len(known),
                "launched": len(known & launched),
                "not launched": sorted(known - launched),
                "left": summary(PROFILER, outcomes, len(ids[PROFILER]))["left"],
            }
        )
        document.save(arguments.output)
        log = arguments.output.with_suffix(".log")
        log.write_text("\n".join(f"== {each.tool}\n{_essence(each)}" for each in outcomes))

    with tempfile.TemporaryDirectory() as folder:
        outcomes = _run_all(workers, ids, arguments.seconds, Path(folder), keep)
    document.complete = all(result.get("left", 0) == 0 for result in document.results)
    document.save(arguments.output)
    print(json.dumps(document.results, indent=1))
    for each in outcomes:
        if not each.clean:
            print(f"== {each.tool}, status {each.status}\n{each.output[-3000:]}")
    missed = document.results[-1]["not launched"]
    raise SystemExit(0 if all(each.clean for each in outcomes) and not missed else 1)


def shares(tools: Sequence[str], processes: int) -> dict[str, int]:
    """How many processes each tool gets, at least one; a tenth of them are profilers."""
    profilers = max(1, processes // 10)
    whole = sum(_WEIGHTS[tool] for tool in tools)
    due = {tool: (processes - profilers) * _WEIGHTS[tool] / whole for tool in tools}
    given = {tool: max(1, int(count)) for tool, count in due.items()}
    left = max(0, processes - profilers - sum(given.values()))
    for tool in sorted(tools, key=lambda tool: given[tool] - due[tool])[:left]:
        given[tool] += 1
    return {PROFILER: profilers} | given


def summary(tool: str, outcomes: Sequence[Outcome], tests: int) -> dict[str, Any]:
    """Of all processes under one tool, of so many tests in all."""
    mine = [each for each in outcomes if each.tool == tool]
    seen = [test.outcome for each in mine for test in each.tests]
    return {
        "tool": tool,
        "tests": seen.count("passed"),
        "failed": seen.count("failed"),
        "skipped": seen.count("skipped"),
        "left": tests - len(seen),
        "findings": sum(each.findings for each in mine),
        "clean": all(each.clean for each in mine),
        "cut off": sum(each.errors is None for each in mine),
        "seconds": round(max(each.seconds for each in mine), 1),
    }


def _test_ids(marker: str, keyword: str) -> list[str]:
    """Of all tests with the marker, in an order that leaves no part to the end."""
    command = [sys.executable, "-m", "pytest", "tests", "-m", f"{marker} and gpu"]
    done = subprocess.run(
        [*command, "--collect-only", "-q", "-W", "ignore", "-k", keyword],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    ids = [line for line in done.stdout.splitlines() if "::" in line]
    if not ids:
        raise SystemExit(f"no test is marked {marker}:\n{done.stdout}{done.stderr}")
    return sorted(ids, key=lambda test: hashlib.sha256(test.encode()).digest())


def _under(tool: str, number: int) -> list[str]:
    """What comes before the command; each process connects to the tool by ports of its own."""
    command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9"]
    command += ["--port", str(_FIRST_PORT + number * _PORTS), "--launch-timeout", "120"]
    command += ["--target-processes", "application-only", "--print-limit", "20"]
    if tool == "racecheck":
        command += ["--racecheck-num-workers", "1"]  # a core each
    if tool != "initcheck":  # which has to see what torch's kernels write
        command += ["--kernel-name-exclude", "kns=at6native"]
    return command


@dataclass
class _Worker:
    """A process that runs tests under a tool, or under the profiler."""

    tool: str
    process: subprocess.Popen[bytes]
    log: Path
    report: Path
    names: Path

    @staticmethod
    def start(tool: str, number: int, ids: Sequence[str], until: float, folder: Path) -> _Worker:
        stem = f"{tool}{number}"
        claims, log, report, names = (
            folder / name for name in (tool, f"{stem}.log", f"{stem}.report", f"{stem}.names")
        )
        claims.mkdir(exist_ok=True)
        command = [] if tool == PROFILER else _under(tool, number)
        command += [sys.executable, "-m", "bench.sanitized", "--until", str(until)]
        command += ["--claims", str(claims), "--report", str(report)]
        command += ["--profile", str(names)] if tool == PROFILER else []
        # So that each tensor is an allocation of its own, whose ends are watched.
        caching = {} if tool == PROFILER else {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
        with log.open("wb") as stream:
            process = subprocess.Popen(
                [*command, *ids],
                cwd=_ROOT,
                env=os.environ | caching,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that what a tool has started ends with it
            )
        return _Worker(tool, process, log, report, names)

    def outcome(self, seconds: float) -> Outcome:
        """What it has come to; so far, if it has not ended."""
        text = self.report.read_text() if self.report.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        tests = [Ran(*json.loads(line)) for line in whole.splitlines()]
        output = self.log.read_text(errors="replace")
        status = self.process.poll()
        return verdict(self.tool, output, _RUNS if status is None else status, seconds, tests)

    def end(self) -> None:
        """If need be by force, with all that it has started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def _run_all(
    workers: dict[str, int],
    ids: Mapping[str, Sequence[str]],
    seconds: float,
    folder: Path,
    keep: Keep,
) -> list[Outcome]:
    """What all processes came to, ``ids`` being the tests of each tool. ``keep`` is told now and
    then, and in the end.
    """
    begun = kept = time.monotonic()
    until = time.time() + seconds
    names = [tool for tool, count in workers.items() for _ in range(count)]
    waiting = [
        _Worker.start(tool, number, ids[tool], until, folder) for number, tool in enumerate(names)
    ]
    outcomes: list[Outcome] = []
    launched: set[str] = set()
    try:
        while waiting:
            time.sleep(0.2)
            spent = time.monotonic() - begun
            if spent > seconds + _GRACE_S:
                for worker in waiting:
                    worker.end()
            for worker in [each for each in waiting if each.process.poll() is not None]:
                waiting.remove(worker)
                outcome = worker.outcome(spent)
                outcomes.append(outcome)
                if worker.names.exists():
                    launched |= {_short(name) for name in json.loads(worker.names.read_text())}
                print(
                    f"{worker.tool}: {len(outcome.tests)} tests, status {outcome.status},"
                    f" errors {outcome.errors}, {spent:.0f} s",
                    flush=True,
                )
            if time.monotonic() - kept > _KEEP_S or not waiting:
                kept = time.monotonic()
                keep([*outcomes, *(worker.outcome(spent) for worker in waiting)], launched)
    finally:
        for worker in waiting:
            worker.end()
    return outcomes


def _essence(outcome: Outcome) -> str:
    """Which tests were run, and the lines of a log that say what was found."""
    tests = [f"{test.outcome} {test.seconds:6.2f} s {test.name}" for test in outcome.tests]
    lines = [line for line in outcome.output.splitlines() if line.startswith("=========")]
    tail = outcome.output.splitlines()[-12:]
    shown = lines[:400] + [line for line in tail if line not in lines]
    return "\n".join(tests + shown) + "\n"


if __name__ == "__main__":
    main()
