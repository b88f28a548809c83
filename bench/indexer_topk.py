"""Scores and selection together: in one kernel, one after the other, and scoring alone.

    python -m bench.indexer_topk [--output FILE.json]
    python -m bench.indexer_topk --compile FOLDER    # all kernels it launches; needs no GPU

k = 2048, float8 keys of 128. Sequences on pages in random order, as in decoding, with one or two
queries of 64 heads: in a CUDA graph, the keys not in L2. And 2048 queries over keys in a row, as in
prefill. Beside each figure its floor: the keys' bytes at the speed of a copy, or the products at
the tensor cores' nominal speed. Answers are checked: the selected scores are the best of those that
the call returns. Phases of the fused kernel are recorded where the program that keeps clocks is at
hand: compiled ahead of time, or TileLang is installed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

import tl_topk
from bench.exact import Answer
from bench.machine import new_document
from bench.results import EXACT, FUSED_SUITE, RESULTS, Scoring
from bench.tables import console_table
from bench.targets import K, M
from bench.tile import cycles_per_us
from bench.timing import GraphTimer
from tl_topk.indexer.arguments import Arguments
from tl_topk.indexer.device_scores import blocks_of, compute_scores, ready, select_pages
from tl_topk.indexer.score_host import ARCH, score_kernel
from tl_topk.indexer.shapes import ScoreShape
from tl_topk.tile.compiler import Program
from tl_topk.tile.library import export, find
from tl_topk.tile.toolchain import missing_tool

__all__ = ["CASES", "Case", "main"]

TOP = 2048
DIM, PAGE, KEY_BYTES = 128, 64, 132
COPY_BYTES_PER_US = 4.3e6  # an H200 copying, as measured
TENSOR_FLOP_PER_US = 1979e6  # its nominal speed with float8
_FOOTPRINT = 260 << 20  # bytes of keys that the calls of a graph go round, larger than L2

#: What is timed, by the name of the way, and the backend that goes it.
_WAYS = {"fused": "pipelined", "separate": "dsmem", "as dispatched": "auto"}

#: Of ``indexer_clock.cuh``; a phase is called by the moment that ends it.
MOMENTS = (
    "begin", "work known", "first keys", "first scores", "last scores", "floor",
    "survivors passed on", "those of all blocks", "gathered", "threshold", "selected",
)  # fmt: skip

#: Microseconds for one query over so many keys; of others see :meth:`Case.target_us`.
_TARGETS = {64 * K: 8.0, 128 * K: 10.0, 256 * K: 14.0, 512 * K: 23.0, M: 42.0}
_PREFILL_FLOP_PER_US = 700e6
_MOST_FOR_MORE_QUERIES = 1.15  # times what one takes


@dataclass(frozen=True)
class Case:
    """Of each of ``sequences`` so many queries over as many keys; no sequences: keys in a row."""

    queries: int
    keys: int
    heads: int = 64
    sequences: int = 1

    @property
    def is_paged(self) -> bool:
        return self.sequences > 0

    @property
    def rows(self) -> int:
        return self.queries * max(self.sequences, 1)

    @property
    def scoring_shape(self) -> ScoreShape:
        if not self.is_paged:
            return ScoreShape.of_row(self.heads, True)
        return ScoreShape(True, self.heads, self.queries, True)

    @property
    def fused_shape(self) -> ScoreShape | None:
        return replace(self.scoring_shape, fused=True) if self.is_paged else None

    @property
    def timed_kernels(self) -> tuple[Program, ...]:
        """Where their clocks are read, of one sequence: that which selects too, and the other."""
        shape = self.fused_shape
        if shape is None or self.sequences != 1:
            return ()
        return score_kernel(shape, timed=True), score_kernel(self.scoring_shape, timed=True)

    @property
    def key_bytes(self) -> int:
        return max(self.sequences, 1) * self.keys * KEY_BYTES

    @property
    def flop(self) -> int:
        return 2 * self.rows * self.keys * self.heads * DIM

    @property
    def floor_us(self) -> float:
        """The larger of what reading the keys and what multiplying takes at the least."""
        return max(self.key_bytes / COPY_BYTES_PER_US, self.flop / TENSOR_FLOP_PER_US)

    @property
    def target_us(self) -> float | None:
        if not self.is_paged:
            return self.flop / _PREFILL_FLOP_PER_US if self.heads == 64 else None
        if self.queries > 1:
            return None  # a multiple of what one query takes
        if self.sequences == 1:
            return _TARGETS.get(self.keys)
        return 1.25 * self.key_bytes / COPY_BYTES_PER_US + 6


CASES = (  # those with targets first, in case there is not time for all
    *(Case(1, keys * K) for keys in (64, 128, 256, 512, 1024)),
    *(Case(2, keys * K) for keys in (64, 128, 256, 1024)),
    Case(2048, 64 * K, heads=64, sequences=0),
    *(Case(1, keys * K, sequences=count) for count in (4, 16, 64) for keys in (32, 128)),
    Case(2048, 64 * K, heads=32, sequences=0),
    *(Case(1, keys * K) for keys in (16, 32)),
)


def kernels() -> Iterator[Program]:
    """All that the cases launch, those with clocks too."""
    for case in CASES:
        yield score_kernel(case.scoring_shape)
        if case.fused_shape:
            yield score_kernel(case.fused_shape)
        yield from case.timed_kernels


def make_calls(case: Case) -> list[dict[str, Any]]:
    """Arguments of as many calls as keep the keys out of L2."""
    generator = torch.Generator(device="cuda").manual_seed(20260)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device="cuda")

    def call() -> dict[str, Any]:
        count = max(case.sequences, 1) * case.keys
        keys = torch.empty(count, DIM, dtype=torch.float8_e4m3fn, device="cuda")
        for first in range(0, count, M):  # float32 takes four times the memory
            part = keys[first : first + M]
            part.copy_(normal(*part.shape))
        scales = torch.rand(count, generator=generator, device="cuda") + 0.5
        q = normal(case.rows, case.heads, DIM).to(torch.float8_e4m3fn)
        weights = normal(case.rows, case.heads)
        if not case.is_paged:
            return {"q": q, "keys": keys, "weights": weights, "key_scales": scales}
        pages = count // PAGE
        parts = [keys.view(torch.uint8).view(pages, -1), scales.view(torch.uint8).view(pages, -1)]
        order = torch.randperm(pages, generator=generator, device="cuda")
        return {
            "q": q.view(case.sequences, case.queries, case.heads, DIM),
            "keys": torch.cat(parts, dim=1).view(pages, PAGE, 1, KEY_BYTES),
            "weights": weights,
            "block_table": order.int().view(case.sequences, -1),
            "context_lens": torch.full(
                (case.sequences,), case.keys, dtype=torch.int32, device="cuda"
            ),
            "next_n": case.queries,
        }

    slots = -(-_FOOTPRINT // case.key_bytes) if case.is_paged else 1
    return [call() for _ in range(slots)]


def whole(backend: str, call: dict[str, Any], out: Tensor) -> Answer:
    return Answer(tl_topk.indexer_topk(k=TOP, backend=backend, out=out, **call))


def scores_alone(arguments: Arguments, scores: Tensor, out: Tensor) -> Answer:
    compute_scores(arguments, scores)
    return Answer(out)


def one_after_the_other(arguments: Arguments, scores: Tensor, out: Tensor) -> Answer:
    """As "separate", but the selection is launched when the scores are there."""
    starts, lengths = compute_scores(arguments, scores)
    tl_topk.topk_indices(scores, TOP, lengths=lengths, row_starts=starts, backend="dsmem", out=out)
    return Answer(out)


def plain_arguments(call: dict[str, Any]) -> Arguments:
    """What a call with these arguments and no others is checked into."""
    absent = (
        "key_scales", "block_table", "context_lens", "row_starts", "row_ends", "offsets", "hint",
        "out",
    )  # fmt: skip
    plain = {"k": TOP, "next_n": 1, "compress_ratio": 1, "result": "positions", "order": "any"}
    return Arguments.checked(**{**dict.fromkeys(absent), **plain, **call})


def verdict(call: dict[str, Any], answer: Answer) -> str:
    """Compares values, so that whichever of equal scores is chosen is right."""
    _, scores = tl_topk.indexer_topk(k=TOP, backend="dsmem", return_scores=True, **call)
    chosen = scores.gather(1, answer.indices.long().clamp(min=0)).sort(dim=1).values
    best = scores.topk(TOP, dim=1).values.sort(dim=1).values
    distinct = answer.indices.sort(dim=1).values.diff(dim=1).min() > 0
    return EXACT if bool(distinct) and torch.equal(chosen, best) else "wrong"


class _DeviceArray:
    """Memory that a library of ours keeps on the device, for torch to look at."""

    def __init__(self, address: int, shape: tuple[int, ...]) -> None:
        self.__cuda_array_interface__ = {
            "shape": shape, "typestr": "<i8", "data": (address, False), "version": 3
        }  # fmt: skip


def phases_of(
    case: Case, calls: list[dict[str, Any]], outs: list[Tensor], fused: bool
) -> dict[str, float] | None:
    """Microseconds from moment to moment: of the fused kernel in the block that selects, None where
    it does not pass them all, as rows do that are read again; of the other the blocks' medians.
    """
    shape = case.fused_shape if fused else case.scoring_shape
    ready_made = all(find(kernel, ARCH) is not None for kernel in case.timed_kernels)
    if shape is None or not case.timed_kernels or (not ready_made and missing_tool()):
        return None
    passed = len(MOMENTS) if fused else MOMENTS.index("last scores") + 1
    spent = []
    for call, out in zip(calls, outs, strict=True):
        a = plain_arguments(call)
        scores = torch.empty(a.rows, a.width, device="cuda")
        for _ in range(2):  # the first time the kernel itself is on its way
            if fused:
                select_pages(a, scores, out, timed=True)
            else:
                compute_scores(a, scores, timed=True)
        clocks = ready(shape, a.device.index, timed=True)["clocks"]()
        taken = torch.as_tensor(_DeviceArray(clocks, (256, len(MOMENTS))), device="cuda").cpu()
        busy = min(-(-a.width // shape.tile), blocks_of(shape, a.device.index), len(taken))
        blocks = taken[busy - 1 : busy] if fused else taken[:busy]
        spent.append(blocks[:, :passed].diff())
    medians = torch.cat(spent).double().median(dim=0).values / cycles_per_us()
    if medians.min() < 0:  # a moment of an earlier launch
        return None
    names = MOMENTS[1:passed]
    return {name: round(us, 3) for name, us in zip(names, medians.tolist(), strict=True)}


def measure(case: Case, timer: GraphTimer) -> Iterator[Scoring]:
    calls = make_calls(case)

    def scoring(
        way: str, us: float, noise_us: float, answer: str, phases: dict[str, float] | None = None
    ) -> Scoring:
        return Scoring(
            way, case.queries, case.keys, case.heads, TOP, us, noise_us, answer, case.sequences,
            case.floor_us, case.target_us, phases,
        )  # fmt: skip

    outs = [torch.empty(case.rows, TOP, dtype=torch.int32, device="cuda") for _ in calls]
    for way, backend in _WAYS.items():
        if way == "fused" and not case.is_paged:
            continue  # it serves pages
        launches: list[Callable[[], Answer]] = [
            partial(whole, backend, *pair) for pair in zip(calls, outs, strict=True)
        ]
        timing, answers = timer.time(launches)
        answer = verdict(calls[0], answers[0])
        phases = phases_of(case, calls, outs, fused=True) if way == "fused" else None
        yield scoring(way, timing.us, timing.noise_us, answer, phases)
    matrix = torch.empty(case.rows, case.keys, device="cuda")
    of_parts = {"without overlap": one_after_the_other, "scoring alone": scores_alone}
    for way, function in of_parts.items():
        parts: list[Callable[[], Answer]] = [
            partial(function, plain_arguments(call), matrix, out)
            for call, out in zip(calls, outs, strict=True)
        ]
        timing, answers = timer.time(parts)
        alone = way == "scoring alone"
        answer = EXACT if alone else verdict(calls[0], answers[0])
        phases = phases_of(case, calls, outs, fused=False) if alone else None
        yield scoring(way, timing.us, timing.noise_us, answer, phases)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.indexer_topk",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--output", type=Path, default=RESULTS / f"{FUSED_SUITE}.json")
    parser.add_argument(
        "--compile", type=Path, metavar="FOLDER", help="only compile, for TL_TOPK_KERNELS"
    )
    options = parser.parse_args()
    if options.compile is not None:
        programs = {each.name: each for each in kernels()}
        for path in export(programs.values(), ARCH, options.compile):
            Console().print(path.name)
        return
    document = new_document(FUSED_SUITE, "python -m bench.indexer_topk", "cuda")
    timer = GraphTimer()
    with_one_query: dict[int, float] = {}
    for case in CASES:
        scorings = list(measure(case, timer))
        if case.sequences == case.queries == 1:
            with_one_query |= {s.keys: s.us for s in scorings if s.way == "as dispatched"}
        elif case.is_paged and case.queries > 1:
            target = _MOST_FOR_MORE_QUERIES * with_one_query[case.keys]
            scorings = [replace(scoring, target_us=target) for scoring in scorings]
        document.results += map(asdict, scorings)
        document.save(options.output)
        torch.cuda.empty_cache()
    document.complete = True
    document.save(options.output)
    Console().print(console_table(document))


if __name__ == "__main__":
    main()
