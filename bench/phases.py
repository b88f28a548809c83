"""Where a launch spends its time, by clocks inside the kernel.

    \b
    cmake -S . -B build -DTL_TOPK_BENCH=ON && cmake --build build
    python -m bench.phases [--output FILE.json]

Launches follow one another in a CUDA graph, on inputs that do not lie in L2, as everywhere in these
benchmarks, and add their clocks up. A row is done when its leading block is: shown is, among those,
the block that takes longest, each phase the median over replays. The marks cost a little
themselves. What the launch takes is measured with the library as users have it.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import torch
from torch import Tensor

from bench.cases import Case
from bench.contenders import Ours
from bench.exact import judge
from bench.inputs import Inputs, make_inputs
from bench.machine import new_document
from bench.results import PHASES_SUITE, RESULTS, Phases, is_right
from bench.session import print_document
from bench.targets import K, M
from bench.timing import GraphTimer, Launch
from bench.variants import BUILD, Variant, load_variant

__all__ = ["main", "phases_of"]

CASES = (
    *(Case(1, width) for width in (4 * K, 16 * K, 64 * K, 256 * K, M)),
    *(Case(rows, 64 * K) for rows in (4, 16, 64)),
)
_REPLAYS = 40
_LAUNCHES = 64  # in a graph, at the most


def phases_of(names: Sequence[str], clocks: Tensor, cycles_per_us: float) -> dict[str, float]:
    """Microseconds by phase of the block that takes longest.

    Args:
        names: of the marks; the first is where the block began.
        clocks: int64 (replays, blocks, marks), cycles since then, of blocks that lead their row.
        cycles_per_us: cycles in a microsecond, of as many launches as the clocks sum up.

    Raises:
        ValueError: a block that has not passed every mark in order, as on the slow path.
    """
    spent = clocks.diff(dim=-1)
    if (spent < 0).any() or (clocks[..., -1] == 0).any():
        raise ValueError("some blocks passed no or other marks: only the usual path has them")
    longest = spent.sum(dim=-1).argmax(dim=1)
    chosen = spent[torch.arange(len(spent)), longest]
    return {
        name: statistics.median(chosen[:, i].tolist()) / cycles_per_us
        for i, name in enumerate(names[1:])
    }


def _clocks(module: Any, inputs: Inputs, launches: Sequence[Launch]) -> Tensor:
    """Of the blocks that lead their rows, summed over the launches (replays, rows, marks)."""
    case = inputs.case
    blocks = Variant(PHASES_SUITE, module).blocks(case)
    taken = torch.empty(_REPLAYS, blocks, len(module.phases().split(",")), dtype=torch.int64)
    for launch in launches[:2]:
        launch()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        answers = [launch() for launch in launches]
    module.take_clocks(taken[0])  # of the first calls
    for clocks in taken:
        graph.replay()
        module.take_clocks(clocks)
    if not is_right(verdict := judge(inputs, answers)):
        raise RuntimeError(f"{case}: {verdict}")
    return taken[:, :: blocks // case.rows]


def measure(case: Case, module: Any, timer: GraphTimer) -> Phases:
    inputs = make_inputs(case, "cuda")
    launches = Variant(PHASES_SUITE, module).prepare(inputs)[:_LAUNCHES]
    clocks = _clocks(module, inputs, launches)
    spent = phases_of(module.phases().split(","), clocks, module.clock_mhz() * len(launches))
    timing, _ = timer.time(Ours("dsmem", "cuda").prepare(inputs))
    rounded = {name: round(us, 3) for name, us in spent.items()}
    return Phases(case, rounded, round(timing.us, 3))


@click.command(help=__doc__, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=RESULTS / f"{PHASES_SUITE}.json",
    help="Where the JSON goes.  [default: bench/results/phases.json]",
)
def main(output: Path) -> None:
    if not torch.cuda.is_available():
        raise click.ClickException("phases need a GPU, and torch sees none")
    try:
        module = load_variant(BUILD / "libtl_topk_phases.so")
    except FileNotFoundError as error:
        raise click.ClickException(str(error)) from error
    document = new_document(PHASES_SUITE, "python -m bench.phases", "cuda")
    timer = GraphTimer()
    for case in CASES:
        try:
            document.results.append(measure(case, module, timer).as_dict())
        except ValueError as error:
            document.absent[str(case)] = str(error)
            click.echo(f"without {case}: {error}", err=True)
        document.save(output)
    document.complete = True
    document.save(output)
    print_document(document)
    click.echo(f"written to {output}", err=True)


if __name__ == "__main__":
    main(prog_name="python -m bench.phases")
