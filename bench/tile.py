"""The TileLang kernels: as contenders, and where they spend their time.

    \b
    python -m bench run tilelang              beside dsmem and how TileLang's users select today
    python -m bench.tile [--output FILE.json] phases, by clocks inside the kernels

The phases are those of the block that selects: the last to come, or the first of its cluster. Each
is the median over replays, of the row whose block takes longest.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import torch
from torch import Tensor

import tl_topk
from bench.cases import Case
from bench.contenders import Contender, with_outputs
from bench.exact import Answer
from bench.inputs import Inputs, make_inputs
from bench.machine import new_document
from bench.phases import phases_of
from bench.results import OURS, RESULTS, Phases
from bench.targets import K, M
from bench.tilelang_example import LONGEST, example_program
from bench.timing import GraphTimer, Launch, timing_event
from tl_topk.problem import Problem
from tl_topk.tile.choice import CLUSTER, Choice
from tl_topk.tile.library import load
from tl_topk.tile.pipelined import program
from tl_topk.tile.plan import pipelined_choice, pipelined_plan
from tl_topk.tile.toolchain import architecture

__all__ = ["Example", "Pipelined", "cycles_per_us", "main", "tile_contenders"]

_SUITE = "tile_phases"
_CASES = tuple(Case(1, width) for width in (4 * K, 16 * K, 64 * K, 128 * K, 256 * K, M))
_NAMES = ("start", "sample", "floor", "filter", "gather", "count", "select")
_REPLAYS = 40
_LAUNCHES = 64
_USUAL = 0.9  # of launches, at the least, or the phases tell nothing


def _problem(case: Case) -> Problem:
    return Problem(
        case.rows, case.width, case.k, case.dtype, case.order, True, case.values, "cuda",
        torch.cuda.current_device(),
    )  # fmt: skip


def _arch() -> str:
    return architecture(10 * torch.cuda.get_device_capability()[0])


class Pipelined(Contender):
    """The backend, as it chooses or with its blocks made to meet in one way."""

    def __init__(self, cluster: int | None = None) -> None:
        how = {None: "", 1: ", no clusters"}.get(cluster, f", clusters of {cluster}")
        self.name = f"{OURS} pipelined{how}"
        self._cluster = cluster

    def unavailable(self) -> str:
        state = tl_topk.info()["backends"]["pipelined"]
        return "" if state == "available" else state

    def detail(self, case: Case) -> str:
        return pipelined_plan(_problem(case), self._cluster).reason

    def prepare(self, inputs: Inputs) -> list[Launch]:
        plan = pipelined_plan(_problem(inputs.case), self._cluster)

        def launch(scores: Tensor, answer: Answer) -> Answer:
            plan.run(scores, answer.indices, answer.values, inputs.lengths, inputs.row_starts)
            return answer

        return [partial(launch, *slot) for slot in with_outputs(inputs)]


class Example(Contender):
    """How TileLang's users select today, see :mod:`bench.tilelang_example`."""

    name = "TileLang example's scheme"

    def refusal(self, case: Case) -> str:
        plain = Case(case.rows, case.width, case.k, distribution=case.distribution)
        if case != plain:
            return "plain float32 rows only"
        return "its list of candidates would overflow" if case.width > LONGEST else ""

    def prepare(self, inputs: Inputs) -> list[Launch]:
        case = inputs.case
        module = load(example_program(case.k), _arch())
        module["prepare"]()
        kernel = module["launch"]

        def launch(scores: Tensor, answer: Answer) -> Answer:
            kernel(
                ctypes.c_void_p(scores.data_ptr()),
                case.width,
                ctypes.c_void_p(answer.indices.data_ptr()),
                case.rows,
                ctypes.c_void_p(torch.cuda.current_stream().cuda_stream),
            )
            return answer

        return [partial(launch, *slot) for slot in with_outputs(inputs)]


def tile_contenders() -> list[Contender]:
    return [Pipelined(), Pipelined(1), Pipelined(CLUSTER), Example()]


def _measure(case: Case, cluster: int, timer: GraphTimer) -> Phases:
    inputs = make_inputs(case, "cuda")
    choice = pipelined_choice(_problem(case), cluster)
    module = load(program(replace(choice.which, timed=True)), _arch())
    module["prepare"]()
    plan = pipelined_plan(_problem(case), cluster)
    slots = with_outputs(inputs)[:_LAUNCHES]
    blocks = case.rows * choice.blocks_per_row
    clocks = torch.zeros(len(slots), blocks, len(_NAMES), dtype=torch.int64, device="cuda")
    workspace = torch.zeros(max(plan.workspace_bytes, 16), dtype=torch.uint8, device="cuda")
    launches = [
        partial(_launch, module["launch"], case, choice, scores, answer, clocks[i], workspace)
        for i, (scores, answer) in enumerate(slots)
    ]
    for launch in launches[:2]:
        launch()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for launch in launches:
            launch()
    taken = []
    for _ in range(_REPLAYS):
        clocks.zero_()
        graph.replay()
        taken.append(clocks.cpu())
    every = torch.cat(taken)  # (launches, blocks, marks)
    # The one block of a row that came to its end.
    chosen = every[every[..., -1] > 0].reshape(len(every), case.rows, len(_NAMES))
    usual = (chosen > 0).all(dim=-1).all(dim=-1)  # few floors let pass more than a list can hold
    if usual.sum() < _USUAL * len(usual):
        raise RuntimeError(f"{case}: only {int(usual.sum())} of {len(usual)} took the usual path")
    chosen = chosen[usual]
    spent = phases_of(_NAMES, chosen - chosen[..., :1], cycles_per_us())
    timing, _ = timer.time(Pipelined(cluster).prepare(inputs))
    return Phases(case, {n: round(us, 3) for n, us in spent.items()}, round(timing.us, 3))


def cycles_per_us() -> float:
    """By a kernel that waits for a number of cycles."""
    wait: Any = torch.cuda._sleep
    cycles = 20_000_000
    begin, end = timing_event(), timing_event()
    for _ in range(2):
        begin.record()
        wait(cycles)
        end.record()
    end.synchronize()
    return cycles / (begin.elapsed_time(end) * 1e3)


def _launch(
    kernel: Any, case: Case, choice: Choice, scores: Tensor, answer: Answer, clocks: Tensor,
    workspace: Tensor,
) -> Answer:  # fmt: skip
    pointer = ctypes.c_void_p
    kernel(
        pointer(scores.data_ptr()), scores.numel() // 4, 0, case.width, case.width,
        None, 0, None, 0, pointer(answer.indices.data_ptr()), case.k,
        pointer(clocks.data_ptr()), 0, 0, pointer(workspace.data_ptr()),
        pointer(workspace.data_ptr() + -(-8 * case.rows // 16) * 16), choice.room, case.k,
        choice.blocks_per_row, 0, 1, case.rows * choice.blocks_per_row,
        pointer(torch.cuda.current_stream().cuda_stream),
    )  # fmt: skip
    return answer


@click.command(help=__doc__, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=RESULTS / f"{_SUITE}.json",
    help=f"Where the JSON goes.  [default: bench/results/{_SUITE}.json]",
)
def main(output: Path) -> None:
    if not torch.cuda.is_available():
        raise click.ClickException("phases need a GPU, and torch sees none")
    document = new_document(_SUITE, "python -m bench.tile", "cuda")
    timer = GraphTimer()
    for case in _CASES:
        for cluster in (1, CLUSTER):
            phases = _measure(case, cluster, timer)
            document.results.append(phases.as_dict() | {"cluster": cluster})
            document.save(output)
            click.echo(f"{case}, cluster {cluster}: {phases.us}, {phases.launch_us} us in all")
    document.complete = True
    document.save(output)
    click.echo(f"written to {output}", err=True)


if __name__ == "__main__":
    main(prog_name="python -m bench.tile")
