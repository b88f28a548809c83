"""What engines see: the cost of mapping and a whole decoding step, or what a hint could gain.

    python -m bench.engines [--output FILE.json]

    cmake -S . -B build -DTL_TOPK_BENCH=ON && cmake --build build
    python -m bench.engines --hint [--output FILE.json]

Mapping: ``TopKPlan.run`` and ``run_mapped`` on the same rotated scores. Page tables are not
rotated, as the kernel that scores a step's keys has just read them. The step is that of
tests/examples/decode_step.py in bfloat16, with ``topk_paged`` and with ``torch.topk``, a mask
before and the mapping after it; its queries and caches are rotated. Hint: ``topk_indices`` without
one, with one that holds 40 % of the answer, as consecutive steps do, and with one that holds the
worst elements; and a variant of the kernel (bench/native) that is told the k-th score beforehand,
which is the most that a hint could tell, and costs nothing, which a hint does not.
"""

from __future__ import annotations

import argparse
import runpy
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

import tl_topk
from bench.cases import Case, length_name
from bench.contenders import our_plan
from bench.exact import Answer, judge
from bench.inputs import Inputs, make_inputs
from bench.machine import new_document
from bench.results import ENGINES_SUITE, EXACT, HINT_SUITE, RESULTS, command_line
from bench.tables import console_table
from bench.timing import GraphTimer, Launch
from bench.variants import BUILD, Variant, load_variant

__all__ = ["Call", "main"]

_EXAMPLE = Path(__file__).parents[1] / "tests" / "examples" / "decode_step.py"

_K = 1024
_MAPPED = (Case(1, 64 * _K), Case(1, 256 * _K), Case(4, 64 * _K), Case(64, 64 * _K))
_STEPS = ((1, 64 * _K), (4, 64 * _K))  # requests, tokens of each
_STEP_K = 2048
_STEP_SLOTS = 4  # caches in turn, each larger than L2

_HINTED = tuple(Case(1, width * _K) for width in (64, 128, 256))
_OVERLAP = 0.4  # of a step's selection with the next one's
_CEILING_RANK = 16  # bins saturate at the score of rank k / 16

PLAIN = "indices"


@dataclass(frozen=True)
class Call:
    """One way of one problem.

    Attributes:
        problem: what is selected from.
        way: of doing it.
        us: microseconds.
        noise_us: how far two timings of the same calls differ.
        answer: a verdict as a measurement's.
    """

    problem: str
    way: str
    us: float
    noise_us: float
    answer: str


def mapping_calls(case: Case, timer: GraphTimer) -> Iterator[Call]:
    inputs = make_inputs(case, "cuda")
    plan = our_plan(case, "cuda")
    offsets = torch.arange(case.rows, device="cuda", dtype=torch.int32) * case.width
    tables = {size: _page_table(case, size) for size in (1, 64)}

    def expected(indices: Tensor, way: str) -> Tensor:
        if way.startswith("slots"):
            size = 1 if way.endswith("page 1") else 64
            pages = tables[size].long().gather(1, indices // size)
            return pages * size + indices % size
        return indices + (offsets.unsqueeze(1) if way.startswith("ragged") else 0)

    ways: dict[str, Callable[[Tensor, Tensor, Tensor], None]] = {
        PLAIN: lambda scores, out, _: plan.run(scores, out),
        "slots, page 64": lambda scores, out, _: plan.run_mapped(
            scores, slots=out, page_table=tables[64], page_size=64
        ),
        "slots, page 1": lambda scores, out, _: plan.run_mapped(
            scores, slots=out, page_table=tables[1]
        ),
        "slots and indices, page 64": lambda scores, out, indices: plan.run_mapped(
            scores, indices, out, page_table=tables[64], page_size=64
        ),
        "ragged": lambda scores, out, _: plan.run_mapped(scores, ragged=out, offsets=offsets),
    }
    for way, call in ways.items():
        timing, answers = timer.time(_launches(inputs, call))
        best = inputs.scores[: len(answers)].topk(case.k).indices
        right = all(
            torch.equal(a.indices.sort(1).values.long(), expected(row, way).sort(1).values)
            for a, row in zip(answers, best, strict=True)
        )
        verdict = EXACT if right else "wrong"
        yield Call(str(case), way, round(timing.us, 3), round(timing.noise_us, 3), verdict)


def _page_table(case: Case, page_size: int) -> Tensor:
    pages = -(-case.width // page_size)
    order = torch.randperm(case.rows * pages, device="cuda")
    return order.to(torch.int32).view(case.rows, pages)


def _launches(inputs: Inputs, call: Callable[[Tensor, Tensor, Tensor], None]) -> list[Launch]:
    shape = (inputs.case.rows, inputs.case.k)

    def launch(scores: Tensor, out: Tensor, spare: Tensor) -> Answer:
        call(scores, out, spare)
        return Answer(out)

    def empty() -> Tensor:
        return torch.empty(shape, dtype=torch.int32, device="cuda")

    return [partial(launch, scores, empty(), empty()) for scores in inputs.scores]


def step_calls(requests: int, tokens: int, timer: GraphTimer) -> Iterator[Call]:
    example = runpy.run_path(str(_EXAMPLE))
    decoders = [
        example["Decoder"]([tokens - 1] * requests, 1, "cuda", torch.bfloat16)
        for _ in range(_STEP_SLOTS)
    ]
    for decoder in decoders:
        decoder.advance()
    problem = f"decoding step, {requests} x {length_name(tokens)} tokens, k={_STEP_K}"
    slots: dict[str, list[Tensor]] = {}
    for way, select in (
        ("topk_paged", example["select_ours"]),
        ("torch.topk", example["select_torch"]),
    ):

        def whole(decoder: Any, select: Any) -> Answer:
            return Answer(
                example["decode_step"](decoder.queries, decoder.cache, _STEP_K, select)[1]
            )

        def selection(decoder: Any, scores: Tensor, select: Any) -> Answer:
            cache = decoder.cache
            return Answer(select(scores, _STEP_K, cache.page_table, cache.lengths))

        timing, answers = timer.time([partial(whole, d, select) for d in decoders])
        slots[way] = [answer.indices.sort(dim=1).values.long() for answer in answers]
        same = all(map(torch.equal, slots[way], slots["topk_paged"]))
        verdict = EXACT if same else "another set than topk_paged's"
        yield Call(
            problem, f"whole, {way}", round(timing.us, 3), round(timing.noise_us, 3), verdict
        )
        scores = [example["indexer_scores"](d.queries, d.cache) for d in decoders]
        timing, _ = timer.time(
            [partial(selection, d, s, select) for d, s in zip(decoders, scores, strict=True)]
        )
        yield Call(
            problem, f"selection, {way}", round(timing.us, 3), round(timing.noise_us, 3), verdict
        )


def hint_calls(case: Case, timer: GraphTimer) -> Iterator[Call]:
    """One row in many places: all launches are told the same floor."""
    inputs = make_inputs(case, "cuda")
    inputs = replace(inputs, scores=inputs.scores[:1].repeat(inputs.slots, 1, 1))
    problem = f"hint, {case}"
    for way, hint in _hints(inputs.scores[0], case.k).items():

        def select(scores: Tensor, out: Tensor, _: Tensor, hint: Tensor | None = hint) -> None:
            tl_topk.topk_indices(scores, case.k, hint=hint, out=out)

        timing, answers = timer.time(_launches(inputs, select))
        verdict = judge(inputs, answers)
        yield Call(problem, way, round(timing.us, 3), round(timing.noise_us, 3), verdict)
    best = inputs.scores[0, 0].topk(case.k).values
    below = torch.nextafter(best[-1], torch.full_like(best[-1], -torch.inf))
    known = load_variant(BUILD / "libtl_topk_known_floor.so")
    known.know_floor(below.item(), best[case.k // _CEILING_RANK].item())
    plain = load_variant(BUILD / "libtl_topk_plain.so")
    for way, module in (("floor from a sample", plain), ("floor known beforehand", known)):
        timing, answers = timer.time(Variant(way, module).prepare(inputs))
        verdict = judge(inputs, answers)
        yield Call(problem, way, round(timing.us, 3), round(timing.noise_us, 3), verdict)


def _hints(scores: Tensor, k: int) -> dict[str, Tensor | None]:
    """For each row of scores (rows, width); the first way is what the others are compared with."""
    best, worst = scores.topk(k).indices, scores.topk(k, largest=False).indices
    kept = round(_OVERLAP * k)
    others = torch.randint_like(best[:, kept:], scores.shape[1])
    return {
        "without a hint": None,
        f"{_OVERLAP:.0%} of the answer as a hint": torch.cat([best[:, :kept], others], 1).int(),
        "the worst elements as a hint": worst.int(),
    }


def _called(timer: GraphTimer) -> Iterator[Iterator[Call]]:
    for case in _MAPPED:
        yield mapping_calls(case, timer)
    for requests, tokens in _STEPS:
        yield step_calls(requests, tokens, timer)


def _hinted(timer: GraphTimer) -> Iterator[Iterator[Call]]:
    for case in _HINTED:
        yield hint_calls(case, timer)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.engines",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--hint", action="store_true", help="what a hint could gain")
    parser.add_argument("--output", type=Path, help="default: beside the other results")
    options = parser.parse_args()
    suite = HINT_SUITE if options.hint else ENGINES_SUITE
    output: Path = options.output or RESULTS / f"{suite}.json"
    if not torch.cuda.is_available():
        parser.error("torch sees no GPU")
    document = new_document(suite, command_line("bench.engines"), "cuda")
    timer = GraphTimer()
    for calls in _hinted(timer) if options.hint else _called(timer):
        document.results += [asdict(call) for call in calls]
        document.save(output)
    document.complete = True
    document.save(output)
    Console(highlight=False).print(console_table(document))


if __name__ == "__main__":
    main()
