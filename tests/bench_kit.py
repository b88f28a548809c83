"""What the tests of the benchmarks share: careless contenders, and a clock told what to say."""

from __future__ import annotations

from collections.abc import Sequence

from bench import runner, suites
from bench.cases import Case
from bench.contenders import Contender, Ours
from bench.exact import Answer
from bench.inputs import Inputs
from bench.results import Document
from bench.timing import Launch, Timing

SMALL = Case(3, 3000, 100)


class FakeTimer:
    """Calls everything once and claims what it was told."""

    def __init__(self, us: float = 10.0) -> None:
        self.us = us

    def time(self, launches: Sequence[Launch]) -> tuple[Timing, list[Answer]]:
        return Timing(self.us, 0.1, len(launches), 1), [launch() for launch in launches]


class Careless(Contender):
    """Forgets the best element, as some kernels do."""

    name = "careless"

    def prepare(self, inputs: Inputs) -> list[Launch]:
        k = inputs.case.k
        return [lambda s=s: Answer(s.topk(k + 1).indices[:, 1:]) for s in inputs.scores]


class Broken(Contender):
    name = "broken"

    def prepare(self, inputs: Inputs) -> list[Launch]:
        raise RuntimeError("no kernel image\nfor this device")


def small_suite(*cases: Case) -> suites.Suite:
    return suites.Suite("small", "for tests", "cpu", cases, ())


def run_small(*cases: Case, contenders: Sequence[Contender], us: float = 10.0) -> Document:
    results = runner.measure(small_suite(*cases), contenders, FakeTimer(us), lambda text: None)
    return document("short", [measurement.as_dict() for measurement in results])


def document(suite: str, results: list[dict[str, object]]) -> Document:
    machine = {"cpu": "a CPU", "cores": 2, "torch": "2"}
    return Document(suite, "python -m bench", "abc", "2026-01-01", machine, {}, True, results)


def ours() -> Ours:
    return Ours("cpu", "cpu", 1)
