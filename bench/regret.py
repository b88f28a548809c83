"""How good are the dispatcher's choices? Times every candidate on a grid of problems.

    python -m bench.regret ready [--seconds S] [--output FILE.json]
    python -m bench.regret scored [--seconds S] [--output FILE.json]

`ready`: scores that lie ready, 1 to 256 rows of 4K to 1M: the native kernel with one block a row
and with clusters of every size, and the TileLang kernel. `scored`: the crossover study, scores
from paged float8 keys: one fused kernel, and one that writes the scores with the native selection
behind it. Calls run inside CUDA graphs, the inputs not in L2, the candidates' replays interleaved;
every candidate's answer is compared. A run takes up where the file it finds has ended, and ends by
itself after S seconds. The table comes from `python -m bench show FILE.json`.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path

import torch

from bench.contest import READY, SCORED, Contest, Question
from bench.machine import commit, machine
from bench.regret_candidates import Candidates, ReadyCandidates, ScoredCandidates
from bench.results import READY_SUITE, RESULTS, SCORED_SUITE, Document, load
from bench.timing import noise_of, timing_event

__all__ = ["main"]

_SWEEP_BYTES = 256 << 20  # read before each replay, so that nothing of the inputs is in L2
_GRAPH_US = 400  # of launches in one graph, about
_LAUNCHES = (4, 24)
_ROUNDS = 9

Call = Callable[[], None]


class Clock:
    """Times several ways of doing the same side by side, so that drift hits all alike."""

    def __init__(self) -> None:
        self._sweep = torch.zeros(_SWEEP_BYTES // 4, device="cuda")
        self._stream = torch.cuda.Stream()
        for _ in range(8):  # the first graphs of a process can be faster than all later ones
            self._graph([lambda: self._sweep[:1].zero_()]).replay()  # type: ignore[arg-type]
        torch.cuda.synchronize()

    def time(self, ways: dict[str, Sequence[Call]]) -> dict[str, tuple[float, float]]:
        """(microseconds a call, noise) by way; each is the same number of calls."""
        graphs = {name: self._graph(calls) for name, calls in ways.items()}
        spent: dict[str, list[float]] = {name: [] for name in ways}
        for round_number in range(-1, _ROUNDS):
            for name, graph in graphs.items():
                us = self._replay(graph) / len(ways[name])
                if round_number >= 0:
                    spent[name].append(us)
        half = _ROUNDS // 2
        return {
            name: (sorted(times)[half], noise_of(times[:half], times[half:]))
            for name, times in spent.items()
        }

    def _graph(self, calls: Sequence[Call]) -> torch.cuda.CUDAGraph:
        # torch.cuda.graph() would collect garbage and give memory back every time.
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.stream(self._stream):
            graph.capture_begin()
            for call in calls:
                call()
            graph.capture_end()
        return graph

    def _replay(self, graph: torch.cuda.CUDAGraph) -> float:
        begin, end = timing_event(), timing_event()
        self._sweep.sum()
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e3


def launches(question: Question, least_us: float) -> int:
    """Calls in a graph."""
    fewest, most = _LAUNCHES
    return int(min(most, max(fewest, _GRAPH_US / least_us)))


def contest(question: Question, candidates: Candidates, clock: Clock) -> Contest:
    ways = candidates.ways(question, launches(question, candidates.least_us(question)))
    for calls in ways.values():
        calls[0]()  # what the first call allocates or loads stays out of the graph
    wrong = candidates.wrong(question, ways)
    times = clock.time(ways)
    return Contest(
        question,
        {name: round(us, 3) for name, (us, _) in times.items()},
        {name: round(noise, 3) for name, (_, noise) in times.items()},
        wrong,
    )


def contests(
    questions: Sequence[Question], candidates: Candidates, seconds: float
) -> Iterator[Contest]:
    clock = Clock()
    gc.collect()
    gc.freeze()
    end = time.monotonic() + seconds
    for number, question in enumerate(questions):
        left = end - time.monotonic()
        if left < 0:
            print(f"stopped after {number} of {len(questions)}", file=sys.stderr)
            return
        yield contest(question, candidates, clock)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.regret",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("which", choices=("ready", "scored"))
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    ready = options.which == "ready"
    suite, questions = (READY_SUITE, READY) if ready else (SCORED_SUITE, SCORED)
    path = options.output or RESULTS / f"{suite}.json"
    candidates: Candidates = ReadyCandidates() if ready else ScoredCandidates()
    document = Document(
        suite=suite,
        command=" ".join(["python -m bench.regret", *sys.argv[1:]]),
        commit=commit(),
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        machine=machine("cuda") | candidates.facts(),
        absent=candidates.absent(),
    )
    if path.exists() and (found := load(path)).commit == document.commit:
        document.results = found.results
    done = {Contest.from_dict(result).question for result in document.results}
    left = [question for question in questions if question not in done]
    for number, result in enumerate(contests(left, candidates, options.seconds)):
        document.results.append(result.as_dict())
        if number % 16 == 0:
            document.save(path)
            print(f"{len(document.results)} of {len(questions)}: {result.question}", flush=True)
    document.complete = len(document.results) == len(questions)
    document.save(path)


if __name__ == "__main__":
    main()
