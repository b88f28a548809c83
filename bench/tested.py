"""Runs some of the tests and records how many passed, and where.

    python -m bench.tested NAME "what they show" PYTEST_ARGUMENT...

Writes bench/results/tests_NAME.json; exits as pytest does.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import torch

from bench.machine import new_document
from bench.results import RESULTS

__all__ = ["counts", "main"]


def counts(report: str) -> dict[str, int]:
    """Of a JUnit report: how many tests passed, failed (or broke) and were skipped."""
    suites = list(ElementTree.fromstring(report).iter("testsuite"))
    total = {
        name: sum(int(suite.get(name, 0)) for suite in suites)
        for name in ("tests", "failures", "errors", "skipped")
    }
    failed = total["failures"] + total["errors"]
    return {
        "passed": total["tests"] - failed - total["skipped"],
        "failed": failed,
        "skipped": total["skipped"],
    }


def main() -> None:
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    name, what, *arguments = sys.argv[1:]
    document = new_document(
        "tests",
        f"python -m pytest {shlex.join(arguments)}",
        "cuda" if torch.cuda.is_available() else "cpu",
    )
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        done = subprocess.run([*command, f"--junitxml={report}", *arguments], check=False)
        result: dict[str, Any] = {"what": what, **counts(report.read_text())}
    document.results = [result | {"seconds": round(time.monotonic() - begun, 1)}]
    document.complete = True
    document.save(RESULTS / f"tests_{name}.json")
    raise SystemExit(done.returncode)


if __name__ == "__main__":
    main()
