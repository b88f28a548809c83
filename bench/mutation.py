"""Changes the C++ of the CPU core in small ways, and tells which of them no native test notices.

    pip install universalmutator   # which makes the mutants
    python -m bench.mutation [--mutate mutate] [--each 15] [--seed 1]

A seeded sample of each file's mutants. What does not compile, or compiles to the same machine code,
is passed over; a mutant is killed when a native test fails, crashes or does not end, or does so
with sanitizers. Writes bench/results/mutation_native.json; bench/mutation.md explains survivors.
"""

from __future__ import annotations

import argparse
import difflib
import random
import shlex
import subprocess
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

from bench.machine import commit, machine
from bench.results import RESULTS, Document

__all__ = ["Build", "Mutant", "changed_line", "main"]

ROOT = Path(__file__).parents[1]
CORE = ROOT / "csrc" / "cpu"
NATIVE = ROOT / "tests" / "native"
FILES = ("topk_cpu", "select", "scan", "sample", "filter", "filter_x86", "exchange_cpu")
# Of each the tests that look at it first; all of them have a say.
TESTS = ("topk_cpu_test", "select_test", "scan_test", "filter_test", "exchange_test")
FLAGS = ("-std=c++17", "-O1", "-pthread", "-w", f"-I{ROOT / 'csrc'}")
SANITIZE = "-fsanitize=address,undefined"
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


@dataclass(frozen=True)
class Build:
    """The core and its tests, compiled one way.

    Attributes:
        flags: of every compilation and linking.
        objects: of the core, by the file's stem.
        tests: objects, by the program's name.
    """

    flags: tuple[str, ...]
    objects: dict[str, Path]
    tests: dict[str, Path]

    @staticmethod
    def of(flags: tuple[str, ...], folder: Path) -> Build:
        folder.mkdir()
        sources = sorted([*(ROOT / "csrc").glob("*.cc"), *CORE.glob("*.cc")])
        build = Build(
            flags,
            {source.stem: folder / f"{source.stem}.o" for source in sources},
            {test: folder / f"{test}.o" for test in TESTS},
        )
        for source in sources:
            assert build.compiled(source, build.objects[source.stem]), source
        for test, target in build.tests.items():
            assert build.compiled(NATIVE / f"{test}.cc", target), test
        assert build.killer("", Path()) == "", "the tests fail as it is"
        return build

    def compiled(self, source: Path, target: Path) -> bool:
        command = ["g++", *FLAGS, *self.flags, "-c", str(source), "-o", str(target)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def killer(self, stem: str, mutant: Path) -> str:
        """The first test that notices the object in place of the file's own; empty if none does."""
        objects = [mutant if key == stem else path for key, path in self.objects.items()]
        # First its own test, which needs no others to notice.
        for name in sorted(self.tests, key=lambda test: test != f"{stem}_test"):
            program = self.tests[name].with_suffix("")
            link = ["g++", "-pthread", *self.flags, str(self.tests[name]), *map(str, objects)]
            link += ["-o", str(program)]
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


def changed_line(original: str, mutated: str) -> tuple[int, str, str]:
    """Its number, and what stood and stands there."""
    before, after = original.splitlines(), mutated.splitlines()
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag != "equal":
            return a + 1, "\n".join(before[a:b]).strip(), "\n".join(after[c:d]).strip()
    return 0, "", ""


def judged(stem: str, candidate: Path, plain: Build, sanitized: Build, folder: Path) -> Mutant:
    source = CORE / f"{stem}.cc"
    line, before, after = changed_line(source.read_text(), candidate.read_text())
    # Under its own name, for objects hold that.
    copy = folder / "mutant" / source.name
    copy.parent.mkdir(exist_ok=True)
    copy.write_bytes(candidate.read_bytes())
    target = folder / "mutant.o"
    if not plain.compiled(copy, target):
        return Mutant(stem, line, before, after, "invalid")
    if target.read_bytes() == plain.objects[stem].read_bytes():
        return Mutant(stem, line, before, after, "equivalent")
    found = plain.killer(stem, target)
    if not found and sanitized.compiled(copy, target):
        found = sanitized.killer(stem, target)
        found += ", sanitized" if found else ""
    return Mutant(stem, line, before, after, "killed" if found else "survived", found)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.mutation", description=__doc__)
    parser.add_argument("--mutate", default="mutate", help="universalmutator's command")
    parser.add_argument("--each", type=int, default=15, help="mutants of each file")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=RESULTS / "mutation_native.json")
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    mutants: list[Mutant] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain = Build.of((), folder / "plain")
        sanitized = Build.of((SANITIZE,), folder / "sanitized")
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
            left = arguments.each
            for candidate in candidates:
                if left == 0:
                    break
                mutants.append(judged(stem, candidate, plain, sanitized, folder))
                left -= mutants[-1].fate in ("killed", "survived")
            fates = Counter(mutant.fate for mutant in mutants if mutant.file == stem)
            print(stem, dict(fates), flush=True)
    fates = Counter(mutant.fate for mutant in mutants)
    Document(
        suite="mutation",
        command=" ".join(["python -m bench.mutation", f"--each {arguments.each}"]),
        commit=commit(),
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        machine=machine("cpu"),
        complete=True,
        results=[
            {
                "what": "the CPU core",
                "tool": "universalmutator",
                **{fate: fates[fate] for fate in ("killed", "survived", "invalid", "equivalent")},
                "survivors": [asdict(mutant) for mutant in mutants if mutant.fate == "survived"],
            }
        ],
    ).save(arguments.output)


if __name__ == "__main__":
    main()
