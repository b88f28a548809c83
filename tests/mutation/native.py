"""Changes the C++ of the CPU core in small ways, and tells which of them no native test notices.

    pip install universalmutator   # makes the mutants; needs no `typing` backport beside it
    python tests/mutation/native.py --mutate mutate --output survivors.json [--each 25] [--seed 1]

A seeded sample of each file's mutants. What does not compile, or compiles to the same machine code,
is passed over; a mutant is killed when a native test fails, crashes or does not end.
"""

from __future__ import annotations

import argparse
import difflib
import json
import random
import shlex
import subprocess
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
CORE = ROOT / "csrc" / "cpu"
NATIVE = ROOT / "tests" / "native"
FILES = ("topk_cpu", "select", "scan", "sample", "filter", "filter_x86", "exchange_cpu")
# Of each the tests that look at it first; all of them have a say.
TESTS = ("topk_cpu_test", "select_test", "scan_test", "filter_test", "exchange_test")
FLAGS = ("-std=c++17", "-O1", "-pthread", "-w", f"-I{ROOT / 'csrc'}")
PATIENCE_S = 60


@dataclass(frozen=True)
class Mutant:
    """A changed line and what came of it: killed, survived, invalid or equivalent."""

    file: str
    line: int
    before: str
    after: str
    fate: str
    killer: str = ""


def compiled(source: Path, target: Path) -> bool:
    command = ["g++", *FLAGS, "-c", str(source), "-o", str(target)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def changed_line(original: str, mutated: str) -> tuple[int, str, str]:
    """Its number, and what stood and stands there."""
    before, after = original.splitlines(), mutated.splitlines()
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag != "equal":
            return a + 1, "\n".join(before[a:b]).strip(), "\n".join(after[c:d]).strip()
    return 0, "", ""


def killer(objects: list[Path], tests: dict[str, Path], folder: Path) -> str:
    """The first test that notices; empty where none does."""
    for name, test in tests.items():
        program = folder / name
        link = ["g++", "-pthread", str(test), *map(str, objects), "-o", str(program)]
        if subprocess.run(link, capture_output=True, check=False).returncode != 0:
            return "link"
        try:
            run = subprocess.run(
                [str(program)], capture_output=True, timeout=PATIENCE_S, check=False
            )
        except subprocess.TimeoutExpired:
            return f"{name}, does not end"
        if run.returncode != 0:
            return name
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutate", default="mutate", help="universalmutator's command")
    parser.add_argument("--each", type=int, default=25, help="mutants of each file")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    mutants: list[Mutant] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = sorted([*(ROOT / "csrc").glob("*.cc"), *CORE.glob("*.cc")])
        objects = {source.stem: folder / f"{source.stem}.o" for source in sources}
        tests = {test: folder / f"{test}.o" for test in TESTS}
        for source in sources:
            assert compiled(source, objects[source.stem]), source
        for test, target in tests.items():
            assert compiled(NATIVE / f"{test}.cc", target), test
        assert killer(list(objects.values()), tests, folder) == "", "the tests fail as it is"
        for stem in FILES:
            source = CORE / f"{stem}.cc"
            made = folder / f"{stem}.mutants"
            made.mkdir()
            subprocess.run(
                [
                    *shlex.split(arguments.mutate),
                    str(source),
                    "--mutantDir",
                    str(made),
                    "--noCheck",
                ],
                capture_output=True,
                check=True,
            )
            candidates = sorted(made.iterdir())
            random.shuffle(candidates)
            # First its own test, which needs no others to notice.
            own = {t: tests[t] for t in sorted(tests, key=lambda t: t != f"{stem}_test")}
            left = arguments.each
            for candidate in candidates:
                if left == 0:
                    break
                line, before, after = changed_line(source.read_text(), candidate.read_text())
                target = folder / "mutant.o"
                mutant = Mutant(stem, line, before, after, "invalid")
                # Under its own name, for objects hold that.
                copy = folder / "mutant" / source.name
                copy.parent.mkdir(exist_ok=True)
                copy.write_bytes(candidate.read_bytes())
                if compiled(copy, target):
                    if target.read_bytes() == objects[stem].read_bytes():
                        mutant = Mutant(stem, line, before, after, "equivalent")
                    else:
                        rest = [path for key, path in objects.items() if key != stem]
                        found = killer([target, *rest], own, folder)
                        fate = "killed" if found else "survived"
                        mutant = Mutant(stem, line, before, after, fate, found)
                        left -= 1
                        print(stem, line, fate, found, flush=True)
                mutants.append(mutant)
            fates = Counter(mutant.fate for mutant in mutants if mutant.file == stem)
            print(stem, dict(fates), flush=True)
            arguments.output.write_text(
                json.dumps(
                    {
                        "tool": "universalmutator",
                        "seed": arguments.seed,
                        "fates": dict(Counter(mutant.fate for mutant in mutants)),
                        "survivors": [asdict(m) for m in mutants if m.fate == "survived"],
                    },
                    indent=1,
                )
                + "\n"
            )


if __name__ == "__main__":
    main()
