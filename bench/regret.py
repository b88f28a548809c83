"""How good are the dispatcher's choices? Times every candidate on a grid of problems.

    python -m bench.regret ready [--seconds S] [--output FILE.json]
    python -m bench.regret scored [--seconds S] [--output FILE.json]

`ready`: scores that lie ready, 1 to 256 rows of 4K to 1M: the native kernel with one block a row
and with clusters of every size, and the TileLang kernel. `scored`: the crossover study, scores
from paged float8 keys: one fused kernel, and one that writes the scores with the native selection
behind it. Calls run inside CUDA graphs, the inputs not in L2, the candidates' replays interleaved;
every candidate's answer is compared. A run takes up where the file that it finds has ended, and
ends by itself after S seconds. `make report` makes the tables and the figure.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.contest import READY, SCORED, Contest, Question
from bench.machine import new_document
from bench.regret_candidates import Candidates, ReadyCandidates, ScoredCandidates
from bench.results import READY_SUITE, RESULTS, SCORED_SUITE, load
from bench.timing import noise_of
from tl_topk.calibrate import GraphClock, launches_for

__all__ = ["main"]


def contest(question: Question, candidates: Candidates, clock: GraphClock) -> Contest:
    ways = candidates.ways(question, launches_for(candidates.bytes_read(question)))
    for calls in ways.values():
        calls[0]()  # what the first call allocates or loads stays out of the graph
    wrong = candidates.wrong(question, ways)
    series = clock.series(ways)
    return Contest(
        question,
        {name: round(statistics.median(times), 3) for name, times in series.items()},
        {
            name: round(noise_of(times[: len(times) // 2], times[len(times) // 2 :]), 3)
            for name, times in series.items()
        },
        wrong,
    )


def contests(
    questions: Sequence[Question], candidates: Candidates, seconds: float
) -> Iterator[Contest]:
    clock = GraphClock()
    gc.collect()
    gc.freeze()
    end = time.monotonic() + seconds
    for number, question in enumerate(questions):
        left = end - time.monotonic()
        if left < 0:
            print(f"stopped after {number} of {len(questions)}", file=sys.stderr)
            return
        try:
            yield contest(question, candidates, clock)
        except RuntimeError as error:  # a kernel that was not compiled ahead of time
            print(f"{question}: {error}", file=sys.stderr)


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
    command = f"python -m bench.regret {options.which} --seconds {options.seconds:g}"
    document = new_document(suite, command, "cuda")
    document.machine |= candidates.facts()
    document.absent = candidates.absent()
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
