"""Results as they are kept: one JSON file per suite, whole after every measurement."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.cases import Case, as_dict, from_dict, length_name

__all__ = [
    "ENGINES_SUITE", "EXACT", "FLOORS_SUITE", "FUSED_SUITE", "HINT_SUITE", "HOST_SUITE", "OURS",
    "PHASES_SUITE", "READY_SUITE", "RESULTS", "SCORED_SUITE", "TIES", "Document", "Measurement",
    "Phases", "Scoring", "command_line", "is_our_call", "is_right", "load", "sha256",
]  # fmt: skip

#: Begins the name of every contender of this project.
OURS = "tl_topk"

# Suites whose results are no measurements of cases.
HOST_SUITE = "host_overhead"  # nanoseconds of the CPU by call
ENGINES_SUITE = "engines"  # what engines call: microseconds by problem and way
HINT_SUITE = "hint"  # what a hint could gain: the same
PHASES_SUITE = "phases"  # where a launch spends its time: Phases
FLOORS_SUITE = "floors"  # launches that do less than a selection
FUSED_SUITE = "fused"  # scores and selection together, and apart: Scoring
READY_SUITE = "regret_ready"  # every candidate of the dispatcher: bench.contest.Contest
SCORED_SUITE = "regret_scored"  # the same where the scores are made first

# Verdicts on an answer; any other one says what is wrong.
EXACT = "exact"
TIES = "exact but for the choice among ties"

RESULTS = Path(__file__).parent / "results"


def is_our_call(call: str) -> bool:
    """Of the calls in :data:`HOST_SUITE`: is it one of ours to make cheap?"""
    return call.startswith(("plan.run", "topk", "torch.ops.tl_topk"))


def is_right(verdict: str) -> bool:
    return verdict in (EXACT, TIES)


@dataclass(frozen=True)
class Measurement:
    """One contender on one case.

    Attributes:
        us: microseconds a call; None where the contender does not serve the case.
        noise_us: how far ``us`` may be off, see :func:`bench.timing.noise_of`.
        launches: calls in one repetition.
        repeats: repetitions in each of the two timings.
        answer: the verdict of :func:`bench.exact.judge`, or why there is none.
        detail: what the contender says about its choice.
        shared_bytes: of each block, where the contender tells.
    """

    case: Case
    contender: str
    us: float | None
    noise_us: float
    launches: int
    repeats: int
    answer: str
    detail: str = ""
    shared_bytes: int | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"case": as_dict(self.case)}

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Measurement:
        return Measurement(**data | {"case": from_dict(data["case"])})


@dataclass(frozen=True)
class Phases:
    """Where one launch spends its time.

    Attributes:
        case: what is selected.
        us: microseconds by phase, in order, of the block that is done last.
        launch_us: all of the launch, as a graph replays it; the phases are a part of that.
    """

    case: Case
    us: dict[str, float]
    launch_us: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"case": as_dict(self.case)}


@dataclass(frozen=True)
class Scoring:
    """One way to the selection from queries and keys: fused, or scores first.

    Attributes:
        way: "fused", "separate" (scores, then selection), "scoring alone", or another name.
        queries: of a sequence, which share its keys.
        keys: of each query.
        heads: of the indexer; each has 128 dimensions.
        k: how many are selected.
        us: microseconds of the whole way.
        noise_us: how far that may be off.
        answer: a verdict as a measurement's.
        sequences: each with keys of its own; 0 where the keys lie in a row, as in prefill.
        floor_us: what reading the keys, or the products, takes at the least.
        target_us: what the whole way may take.
        phases: microseconds by phase of the block that selects, or of scoring alone the medians of
            the blocks, where the way was asked for them.
    """

    way: str
    queries: int
    keys: int
    heads: int
    k: int
    us: float
    noise_us: float
    answer: str
    sequences: int = 1
    floor_us: float | None = None
    target_us: float | None = None
    phases: dict[str, float] | None = None

    @property
    def problem(self) -> str:
        keys = f"{self.queries} x {length_name(self.keys)} keys"
        if self.sequences > 1:
            keys = f"{self.sequences} sequences of {keys}"
        return f"{keys}, {self.heads} heads, k={self.k}"

    def __str__(self) -> str:
        return f"{self.way}: {self.problem}"


@dataclass
class Document:
    """A run of a suite.

    Attributes:
        suite: its name.
        command: what was typed.
        commit: of the code that ran.
        date: when it began, UTC.
        machine: see :func:`bench.machine.machine`.
        absent: contenders that could not be used, and why.
        complete: False while it runs and where it was interrupted.
        results: plain data; of timed cases, :class:`Measurement`.
    """

    suite: str
    command: str
    commit: str
    date: str
    machine: dict[str, Any]
    absent: dict[str, str] = field(default_factory=dict)
    complete: bool = False
    results: list[dict[str, Any]] = field(default_factory=list)

    def measurements(self) -> list[Measurement]:
        return [Measurement.from_dict(result) for result in self.results]

    def phases(self) -> list[Phases]:
        return [Phases(**result | {"case": from_dict(result["case"])}) for result in self.results]

    def calls(self) -> list[dict[str, Any]]:
        """Of :data:`HOST_SUITE`: what each call costs."""
        return [result for result in self.results if "call" in result]

    def promises(self) -> list[dict[str, Any]]:
        """Of :data:`HOST_SUITE`: what calls may cost over others, and do."""
        return [result for result in self.results if "promise" in result]

    def scorings(self) -> list[Scoring]:
        return [Scoring(**result) for result in self.results]

    def save(self, path: Path) -> None:
        """Replaces the file as a whole, one result a line: never half a document."""
        head = {name: value for name, value in asdict(self).items() if name != "results"}
        lines = ",\n".join(json.dumps(result) for result in self.results)
        text = json.dumps(head, indent=1)[:-2] + f',\n "results": [\n{lines}\n ]\n}}\n'
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_text(text)
        os.replace(partial, path)


def command_line(module: str, arguments: Sequence[str] | None = None) -> str:
    """What was typed, to be recorded: without ``--output``, which says where and not what.

    Args:
        module: that Python ran.
        arguments: by default those of this process.
    """
    left = list(sys.argv[1:] if arguments is None else arguments)
    kept = []
    while left:
        word = left.pop(0)
        if word == "--output":
            left[:1] = []
        elif not word.startswith("--output="):
            kept.append(word)
    return shlex.join(["python", "-m", module, *kept])


def load(path: Path) -> Document:
    """Raises ValueError where the file is no result."""
    try:
        return Document(**json.loads(path.read_text()))
    except (json.JSONDecodeError, TypeError) as error:
        raise ValueError(f"{path} is no benchmark result: {error}") from error


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
