"""Tests in one of several processes that share them, for :mod:`bench.sanitize`.

    python -m bench.sanitized --until TIME --claims FOLDER --report FILE [--profile FILE] TEST ...

A test is run by the process that claims it first. At TIME (seconds since the epoch) no further test
is begun, so that the tool above comes to its summary.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TextIO

import pytest

__all__ = ["Claims", "main"]

_PYTEST = ("-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-rs", "--tb=short", "-W", "ignore")


class Claims:
    """A plugin of pytest that runs what no other process has claimed, and tells how it went.

    Args:
        folder: that all processes which share the tests have in common.
        until: seconds since the epoch.
        report: takes a line of JSON for each test: name, outcome and seconds.
    """

    def __init__(self, folder: Path, until: float, report: TextIO) -> None:
        self._folder = folder
        self._until = until
        self._report = report

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        for item in session.items:
            if time.time() > self._until:
                break
            if self._claimed(item.nodeid):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            line = [report.nodeid, report.outcome, round(report.duration, 2)]
            print(json.dumps(line), file=self._report, flush=True)

    def _claimed(self, test: str) -> bool:
        name = hashlib.sha256(test.encode()).hexdigest()
        try:
            (self._folder / name).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.sanitized", description=__doc__)
    parser.add_argument("--until", type=float, required=True)
    parser.add_argument("--claims", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--profile", type=Path, help="takes the names of the kernels launched")
    parser.add_argument("tests", nargs="+")
    arguments = parser.parse_args()
    profiler: Any = nullcontext()
    if arguments.profile:
        from torch.profiler import ProfilerActivity, profile

        profiler = profile(activities=[ProfilerActivity.CUDA])
    with arguments.report.open("w") as report, profiler as seen:
        claims = Claims(arguments.claims, arguments.until, report)
        status = pytest.main([*_PYTEST, *arguments.tests], plugins=[claims])
    if arguments.profile:
        names = sorted({event.name for event in seen.events() if "tl_topk" in event.name})
        arguments.profile.write_text(json.dumps(names))
    sys.exit(status)


if __name__ == "__main__":
    main()
