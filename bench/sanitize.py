"""compute-sanitizer over the tests marked `sanitizer`, by all of its tools, side by side.

    python -m bench.sanitize [--tools memcheck,racecheck] [--shards 4] [--keyword EXPRESSION]

Run in the checkout, on a machine with a GPU. Writes bench/results/sanitizer.json and a log beside
it, and exits 1 where a tool found something, a test failed, or a kernel was not launched.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from bench.results import RESULTS, Document

__all__ = ["TOOLS", "Outcome", "kernels_of_library", "main", "verdict"]

TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
_ROOT = Path(__file__).parents[1]
_SUMMARY = re.compile(
    r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard|LEAK SUMMARY: (\d+)"
)
_PASSED = re.compile(r"(\d+) passed")
_PYTEST = (
    "-q",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:randomly",
    "-rs",
    "--tb=short",
    "--durations=6",
)


@dataclass(frozen=True)
class Outcome:
    """What one process under one tool came to.

    Attributes:
        tool: of compute-sanitizer.
        tests: that passed.
        errors: that the tool reports; None where it came to no end.
        status: how the process ended.
        seconds: that it took.
        output: all that it printed.
    """

    tool: str
    tests: int
    errors: int | None
    status: int
    seconds: float
    output: str

    @property
    def clean(self) -> bool:
        return self.errors == 0 and self.status == 0


def verdict(tool: str, output: str, status: int, seconds: float) -> Outcome:
    """From what a process printed and how it ended."""
    found = [int(next(filter(None, match), 0)) for match in _SUMMARY.findall(output)]
    passed = _PASSED.findall(output)
    return Outcome(
        tool=tool,
        tests=int(passed[-1]) if passed else 0,
        errors=sum(found) if found else None,
        status=status,
        seconds=seconds,
        output=output,
    )


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


def _test_ids(keyword: str) -> list[str]:
    command = [sys.executable, "-m", "pytest", "tests", "-m", "sanitizer and gpu", "--collect-only"]
    done = subprocess.run(
        [*command, "-q", "-k", keyword], cwd=_ROOT, capture_output=True, text=True, check=False
    )
    ids = [line for line in done.stdout.splitlines() if "::" in line]
    if not ids:
        raise SystemExit(f"no test is marked sanitizer:\n{done.stdout}{done.stderr}")
    return ids


def _start(
    command: Sequence[str], ids: Sequence[str], output: Path, **environment: str
) -> subprocess.Popen[bytes]:
    with output.open("wb") as stream:
        return subprocess.Popen(
            [*command, *_PYTEST, *ids],
            cwd=_ROOT,
            env=os.environ | environment,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that what a tool has started ends with it
        )


def _under(tool: str) -> list[str]:
    sanitizer = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9"]
    return [*sanitizer, sys.executable, "-m", "pytest"]


# The kernels that tests launch, as a profiler sees them.
_PROFILED = """
import json, pytest, sys, torch
from torch.profiler import ProfilerActivity, profile
with profile(activities=[ProfilerActivity.CUDA]) as seen:
    status = pytest.main(sys.argv[2:])
names = sorted({event.name for event in seen.events() if "tl_topk" in event.name})
json.dump(names, open(sys.argv[1], "w"))
sys.exit(status)
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.sanitize", description=__doc__)
    parser.add_argument("--tools", default=",".join(TOOLS), help="of compute-sanitizer")
    parser.add_argument("--shards", type=int, default=4, help="processes for each tool")
    parser.add_argument("--keyword", default="", help="as pytest's -k")
    parser.add_argument("--seconds", type=float, default=600, help="a tool's, at most")
    parser.add_argument("--output", type=Path, default=RESULTS / "sanitizer.json")
    arguments = parser.parse_args()
    from bench.machine import commit, machine  # torch, which takes its time

    ids = _test_ids(arguments.keyword)
    document = Document(
        suite="sanitizer",
        command="python -m bench.sanitize " + " ".join(sys.argv[1:]),
        commit=commit(),
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        machine=machine("cuda"),
    )
    with tempfile.TemporaryDirectory() as folder:
        outcomes, launched = _run_all(arguments, ids, Path(folder))
    known = kernels_of_library(_library())
    document.results = [
        {
            "tool": tool,
            "tests": sum(each.tests for each in outcomes if each.tool == tool),
            "findings": sum(each.errors or 0 for each in outcomes if each.tool == tool),
            "clean": all(each.clean for each in outcomes if each.tool == tool),
            "seconds": round(max(each.seconds for each in outcomes if each.tool == tool), 1),
        }
        for tool in arguments.tools.split(",")
    ]
    missed = sorted(known - launched)
    document.results.append(
        {"kernels": len(known), "launched": len(known & launched), "not launched": missed}
    )
    document.complete = True
    document.save(arguments.output)
    log = arguments.output.with_suffix(".log")
    log.write_text("\n".join(f"== {each.tool}\n{_essence(each)}" for each in outcomes))
    print(json.dumps(document.results, indent=1))
    for each in outcomes:
        if not each.clean:
            print(f"== {each.tool}, status {each.status}\n{each.output[-6000:]}")
    raise SystemExit(0 if all(each.clean for each in outcomes) and not missed else 1)


def _run_all(
    arguments: argparse.Namespace, ids: Sequence[str], folder: Path
) -> tuple[list[Outcome], set[str]]:
    """What all tools came to, and the kernels that the tests launched."""
    begun = time.monotonic()
    names = folder / "names.json"
    profiler = [sys.executable, "-c", _PROFILED, str(names)]
    waiting = {("", 0): _start(profiler, ids, folder / "0.log")}
    for tool in arguments.tools.split(","):
        for shard in range(arguments.shards):
            waiting[tool, shard] = _start(
                _under(tool),
                ids[shard :: arguments.shards],
                folder / f"{tool}{shard}.log",
                # So that each tensor is an allocation of its own, whose ends are watched.
                PYTORCH_NO_CUDA_MEMORY_CACHING="1",
            )
    outcomes = []
    while waiting:
        time.sleep(0.2)
        spent = time.monotonic() - begun
        for (tool, shard), process in list(waiting.items()):
            if process.poll() is None and spent > arguments.seconds:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            if (status := process.poll()) is not None:
                output = (folder / f"{tool}{shard}.log").read_text(errors="replace")
                print(f"{tool or 'profiler'} {shard}: status {status}, {spent:.0f} s", flush=True)
                if tool:
                    outcomes.append(verdict(tool, output, status, spent))
                elif status != 0:
                    print(output[-3000:])
                del waiting[tool, shard]
    launched = json.loads(names.read_text()) if names.exists() else []
    return outcomes, {_short(name) for name in launched}


def _essence(outcome: Outcome) -> str:
    """The lines of a log that say what was run and what was found."""
    lines = [line for line in outcome.output.splitlines() if line.startswith("=========")]
    tail = outcome.output.splitlines()[-12:]
    shown = lines[:400] + [line for line in tail if line not in lines]
    return "\n".join(shown) + "\n"


if __name__ == "__main__":
    main()
