"""Changes the dispatcher in small ways, and tells which of them its tests do not notice.

    pip install mutmut   # which makes the mutants and runs the tests
    python -m bench.mutation_python [--seconds 900]

Works on a copy of the checkout. Writes bench/results/mutation_python.json; bench/mutation.md
explains survivors.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from bench.machine import new_document
from bench.results import RESULTS

__all__ = ["main"]

_ROOT = Path(__file__).parents[1]
_WHAT = "tl_topk/dispatch/"
_TESTS = ("tests/test_dispatch.py", "tests/test_dispatch_values.py", "tests/test_calibration.py")
# Tests that mutmut's own wrapping of functions, or running twice in one process, breaks.
_LEFT_OUT = (
    f"{_TESTS[0]}::TestOwnPolicies::test_of_gradients_and_compilation",
    f"{_TESTS[0]}::TestReports::test_each_decision_once",
)
_COPIED = ("tl_topk", "tests", "bench", "csrc", "python_bindings", "build/libtl_topk.so")


def _settings() -> str:
    left_out = "".join(f"\n    --deselect\n    {test}" for test in _LEFT_OUT)
    tests = "".join(f"\n    {test}" for test in _TESTS)
    copied = "".join(f"\n    {path}" for path in (*_COPIED[:-1], "build", "pyproject.toml"))
    return (
        f"[mutmut]\nsource_paths={_WHAT}\n"
        "pytest_add_cli_args=\n    -p\n    no:cacheprovider\n"
        f"pytest_add_cli_args_test_selection={tests}{left_out}\n"
        f"also_copy={copied}\n"
    )


def _mutmut(folder: Path, *arguments: str, seconds: float | None = None) -> str:
    command = [sys.executable, "-m", "mutmut", *arguments]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.mutation_python", description=__doc__)
    parser.add_argument("--seconds", type=float, default=900, help="mutants are tried, at most")
    parser.add_argument("--output", type=Path, default=RESULTS / "mutation_python.json")
    arguments = parser.parse_args()
    document = new_document("mutation", "python -m bench.mutation_python", "cpu")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path in (*_COPIED, "pyproject.toml"):
            target = folder / path
            target.parent.mkdir(exist_ok=True)
            copy = shutil.copytree if (_ROOT / path).is_dir() else shutil.copy
            copy(_ROOT / path, target)
        (folder / "setup.cfg").write_text(_settings())
        output = _mutmut(folder, "run", "--max-children", "2", seconds=arguments.seconds)
        fates = Counter(
            line.rpartition(": ")[2].strip()
            for line in _mutmut(folder, "results", "--all", "true").splitlines()
            if ": " in line
        )
        survivors = [
            line.partition(":")[0].strip()
            for line in _mutmut(folder, "results").splitlines()
            if line.rstrip().endswith(": survived")
        ]
        shown = {name: _mutmut(folder, "show", name).splitlines()[4:] for name in survivors}
    if not fates["killed"]:
        raise SystemExit(f"mutmut came to nothing:\n{output[-3000:]}")
    endless = fates.pop("timeout", 0)
    fates["killed"] += endless
    document.results = [
        {
            "what": "the dispatcher",
            "tool": "mutmut",
            "of which do not end": endless,
            **{fate.replace(" ", "_"): count for fate, count in sorted(fates.items())},
            "survivors": [
                {
                    "mutant": name,
                    "change": [line for line in diff if line[:1] in "+-" and line[1:2] != line[:1]],
                }
                for name, diff in shown.items()
            ],
        }
    ]
    document.complete = not fates["not checked"]
    document.save(arguments.output)
    print(json.dumps(fates))


if __name__ == "__main__":
    main()
