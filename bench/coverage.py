"""How much of the code the tests run: Python by coverage.py, C++ by gcov.

    python -m bench.coverage [--python-at-least 95] [--native-at-least 90] [PYTEST_ARGUMENT...]

`make coverage` runs this. It builds the library without CUDA and with counters into
build/coverage, runs the whole suite with it, and the native tests' own programs compiled likewise.
Writes bench/results/coverage.json; exits 1 below what is asked for. What only a GPU runs is named
in ONLY_ON_A_GPU and left out. With JAX installed its arrays are tested too.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.machine import new_document
from bench.results import RESULTS, command_line

__all__ = ["ONLY_ON_A_GPU", "main"]

_ROOT = Path(__file__).parents[1]
_BUILD = _ROOT / "build" / "coverage"
_COUNTERS = "--coverage -fprofile-update=atomic"

#: What nothing here can run, and is not counted.
ONLY_ON_A_GPU = (
    "tl_topk/cupy_arrays.py",  # CuPy's arrays lie there
    "tl_topk/indexer/device_scores.py",  # launches the scoring kernel
    "tl_topk/tile/plan.py",  # asks a device what it holds
    "python_bindings/tile_kernel.cc",  # loads a kernel into it
    "csrc/cuda/*",  # but for what is emulated, which is no measure of the whole
)

_SETTINGS = """
[run]
source = tl_topk
parallel = true
concurrency = thread, multiprocessing
patch = subprocess, _exit
"""
_LEFT_OUT = (
    # Where counters are written, a file that may not grow is no file of results alone.
    "tests/test_files.py::TestSaving::test_disk_full",
    # What they run is not counted (see above), and takes them minutes.
    "tests/test_kernel_emulated.py",
    "tests/test_tile_emulated.py",
)


def _run(*command: str | Path, **environment: str) -> int:
    return subprocess.run(
        [str(part) for part in command], cwd=_ROOT, env=os.environ | environment, check=False
    ).returncode


def _python(program: str) -> list[str]:
    return [sys.executable, "-m", program]


def _build() -> Path:
    """The folder that the counting library is installed into."""
    site = _BUILD / "site"
    status = _run(
        *_python("pip"), "install", "--quiet", "--no-build-isolation", "--no-deps", "--upgrade",
        "--target", site, "-C", f"build-dir={_BUILD / 'native'}",
        "-C", "cmake.define.TL_TOPK_COVERAGE=ON", "-C", "cmake.define.TL_TOPK_CUDA=OFF", _ROOT,
    )  # fmt: skip
    if status:
        raise SystemExit(status)
    return site


def _measure(site: Path, arguments: list[str]) -> int:
    """Runs the suite; its exit status."""
    temporary = _BUILD / "tests"  # where the native tests' programs leave their counts
    shutil.rmtree(temporary, ignore_errors=True)
    for counts in _BUILD.rglob("*.gcda"):
        counts.unlink()
    settings = _BUILD / "settings"
    settings.write_text(_SETTINGS)
    measured = {"COVERAGE_FILE": str(_BUILD / "data"), "COVERAGE_RCFILE": str(settings)}
    for old in _BUILD.glob("data*"):
        old.unlink()
    status = _run(
        *_python("coverage"), "run", "-m", "pytest", "-q", "-p", "no:cacheprovider",
        f"--basetemp={temporary}", "-o", "tmp_path_retention_policy=all",
        *(f"--deselect={test}" for test in _LEFT_OUT), *arguments,
        PYTHONPATH=os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]),
        TL_TOPK_NATIVE_CXX=f"g++ {_COUNTERS}", **measured,
    )  # fmt: skip
    _run(*_python("coverage"), "combine", "--quiet", _BUILD, **measured)
    return status


def _of_python() -> dict[str, Any]:
    report = _BUILD / "python.json"
    _run(
        *_python("coverage"), "json", "--quiet", "-o", report,
        f"--omit={','.join(each for each in ONLY_ON_A_GPU if each.endswith('.py'))}",
        COVERAGE_FILE=str(_BUILD / "data"),
    )  # fmt: skip
    files = json.loads(report.read_text())["files"]
    return _summary(
        "Python",
        {
            name: (f["summary"]["covered_lines"], f["summary"]["num_statements"])
            for name, f in files.items()
        },
    )


def _of_native() -> dict[str, Any]:
    report = _BUILD / "native.json"
    _run(
        *_python("gcovr"), "--root", _ROOT, "--filter", "csrc/", "--filter", "python_bindings/",
        "--gcov-ignore-parse-errors=all", "--json-summary", report,
        *(f"--exclude={each.replace('*', '.*')}" for each in ONLY_ON_A_GPU), _BUILD,
    )  # fmt: skip
    files = json.loads(report.read_text())["files"]
    return _summary("C++", {f["filename"]: (f["line_covered"], f["line_total"]) for f in files})


def _summary(language: str, files: dict[str, tuple[int, int]]) -> dict[str, Any]:
    covered, total = (sum(each) for each in zip(*files.values(), strict=True))
    return {
        "language": language,
        "percent": round(100 * covered / total, 2),
        "lines": total,
        "files": {
            name: round(100 * run / all_of_it, 1)
            for name, (run, all_of_it) in sorted(files.items())
            if run < all_of_it
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.coverage", description=__doc__)
    parser.add_argument("--python-at-least", type=float, default=95)
    parser.add_argument("--native-at-least", type=float, default=90)
    arguments, of_pytest = parser.parse_known_args()
    document = new_document("coverage", command_line("bench.coverage"), "cpu")
    status = _measure(_build(), of_pytest)
    document.results = [_of_python(), _of_native()]
    document.complete = status == 0
    document.save(RESULTS / "coverage.json")
    for result in document.results:
        print(json.dumps(result, indent=1))
    reached = [result["percent"] for result in document.results]
    enough = reached[0] >= arguments.python_at_least and reached[1] >= arguments.native_at_least
    raise SystemExit(status or int(not enough))


if __name__ == "__main__":
    main()
