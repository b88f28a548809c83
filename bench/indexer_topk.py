"""Scores and selection together: in one kernel, one after the other, and scoring alone.

    python -m bench.indexer_topk [--output FILE.json]

k = 2048, float8 keys of 128. One sequence on pages in random order, as in decoding, with one or two
queries of 64 heads: in a CUDA graph, the keys not in L2. And 2048 queries over keys in a row, as in
prefill. Answers are checked: the selected scores are the best of those that the call returns.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

import tl_topk
from bench.exact import Answer
from bench.machine import commit, machine
from bench.results import EXACT, FUSED_SUITE, RESULTS, Document, Scoring
from bench.tables import console_table
from bench.timing import GraphTimer
from tl_topk.indexer.arguments import Arguments
from tl_topk.indexer.device_scores import compute_scores

__all__ = ["CASES", "Case", "main"]

K = 2048
DIM, PAGE, KEY_BYTES = 128, 64, 132
_FOOTPRINT = 260 << 20  # bytes of keys that the calls of a graph go round, larger than L2

#: What is timed, by the name of the way, and the backend that goes it.
_WAYS = {"fused": "pipelined", "separate": "dsmem"}


@dataclass(frozen=True)
class Case:
    queries: int
    keys: int
    heads: int = 64

    @property
    def is_paged(self) -> bool:
        return self.queries <= 4  # as many as a sequence has in decoding


CASES = (
    *(Case(1, 1 << bits) for bits in (14, 15, 16, 17, 18, 19, 20)),
    *(Case(2, 1 << bits) for bits in (17, 20)),
    Case(2048, 1 << 16, heads=64),
    Case(2048, 1 << 16, heads=32),
)


def make_calls(case: Case) -> list[dict[str, Any]]:
    """Arguments of as many calls as keep the keys out of L2."""
    generator = torch.Generator(device="cuda").manual_seed(20260)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device="cuda")

    def call() -> dict[str, Any]:
        keys = normal(case.keys, DIM).to(torch.float8_e4m3fn)
        scales = torch.rand(case.keys, generator=generator, device="cuda") + 0.5
        q = normal(case.queries, case.heads, DIM).to(torch.float8_e4m3fn)
        weights = normal(case.queries, case.heads)
        if not case.is_paged:
            return {"q": q, "keys": keys, "weights": weights, "key_scales": scales}
        pages = case.keys // PAGE
        parts = [keys.view(torch.uint8).view(pages, -1), scales.view(torch.uint8).view(pages, -1)]
        order = torch.randperm(pages, generator=generator, device="cuda")
        return {
            "q": q.unsqueeze(0),
            "keys": torch.cat(parts, dim=1).view(pages, PAGE, 1, KEY_BYTES),
            "weights": weights,
            "block_table": order.int().unsqueeze(0),
            "context_lens": torch.tensor([case.keys], dtype=torch.int32, device="cuda"),
            "next_n": case.queries,
        }

    slots = -(-_FOOTPRINT // (case.keys * KEY_BYTES)) if case.is_paged else 1
    return [call() for _ in range(slots)]


def whole(backend: str, call: dict[str, Any], out: Tensor) -> Answer:
    return Answer(tl_topk.indexer_topk(k=K, backend=backend, out=out, **call))


def scores_alone(arguments: Arguments, scores: Tensor, out: Tensor) -> Answer:
    compute_scores(arguments, scores)
    return Answer(out)


def plain_arguments(call: dict[str, Any]) -> Arguments:
    """What a call with these arguments and no others is checked into."""
    absent = ("key_scales", "block_table", "context_lens", "row_starts", "row_ends", "offsets")
    plain = {"k": K, "next_n": 1, "compress_ratio": 1, "result": "positions", "order": "any"}
    return Arguments.checked(**{**dict.fromkeys((*absent, "out")), **plain, **call})


def verdict(call: dict[str, Any], answer: Answer) -> str:
    """Compares values, so that whichever of equal scores is chosen is right."""
    _, scores = tl_topk.indexer_topk(k=K, backend="dsmem", return_scores=True, **call)
    chosen = scores.gather(1, answer.indices.long().clamp(min=0)).sort(dim=1).values
    best = scores.topk(K, dim=1).values.sort(dim=1).values
    distinct = answer.indices.sort(dim=1).values.diff(dim=1).min() > 0
    return EXACT if bool(distinct) and torch.equal(chosen, best) else "wrong"


def measure(case: Case, timer: GraphTimer) -> Iterator[Scoring]:
    calls = make_calls(case)
    shape = (case.queries, case.keys, case.heads, K)
    outs = [torch.empty(case.queries, K, dtype=torch.int32, device="cuda") for _ in calls]
    for way, backend in _WAYS.items():
        if way == "fused" and not case.is_paged:
            continue  # it serves pages
        launches: list[Callable[[], Answer]] = [
            partial(whole, backend, *pair) for pair in zip(calls, outs, strict=True)
        ]
        timing, answers = timer.time(launches)
        answer = verdict(calls[0], answers[0])
        yield Scoring(way, *shape, timing.us, timing.noise_us, answer)
    matrix = torch.empty(case.queries, case.keys, device="cuda")
    alone: list[Callable[[], Answer]] = [
        partial(scores_alone, plain_arguments(call), matrix, out)
        for call, out in zip(calls, outs, strict=True)
    ]
    timing, _ = timer.time(alone)
    yield Scoring("scoring alone", *shape, timing.us, timing.noise_us, EXACT)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.indexer_topk",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--output", type=Path, default=RESULTS / f"{FUSED_SUITE}.json")
    options = parser.parse_args()
    document = Document(
        suite=FUSED_SUITE,
        command=" ".join(["python -m bench.indexer_topk", *sys.argv[1:]]),
        commit=commit(),
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        machine=machine("cuda"),
    )
    timer = GraphTimer()
    for case in CASES:
        document.results += [asdict(scoring) for scoring in measure(case, timer)]
        document.save(options.output)
        torch.cuda.empty_cache()
    document.complete = True
    document.save(options.output)
    Console().print(console_table(document))


if __name__ == "__main__":
    main()
