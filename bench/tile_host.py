"""What a call of a TileLang kernel costs the CPU: TileLang's own call, and ours of the same kernel.

    python -m bench.tile_host [--output FILE.json]

One row that a block selects from alone, so that the GPU is done before the next call; the ways take
turns in one process. A sample is one call by the clock, less what an empty call costs by it.
TileLang compiles the kernel once more, for it launches only what it has compiled itself.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import torch

import tl_topk
from bench.host_overhead import python_series, take_turns
from bench.machine import new_document
from bench.results import RESULTS
from bench.timing import noise_of
from tl_topk.problem import Problem
from tl_topk.tile.pipelined import program, specialise
from tl_topk.tile.plan import pipelined_plan
from tl_topk.tile.toolchain import architecture, header_folder

__all__ = ["main"]

_SUITE = "tile_host"
_WIDTH, _K = 4096, 2048
THEIRS = "TileLang's own call"
PLAN = "plan.run(scores, indices)"
FUNCTION = "topk_indices(out=, backend='pipelined')"


def their_call(scores: torch.Tensor, indices: torch.Tensor) -> Callable[[], object]:
    """The selector as a TileLang JIT kernel, called with all that it takes."""
    import tilelang

    which = program(specialise("float32", _K))
    arch = architecture(10 * torch.cuda.get_device_capability()[0])
    kernel = tilelang.compile(
        which.trace(),
        target={"kind": "cuda", "arch": arch},
        pass_configs=dict(which.passes),
        compile_flags=[f"-I{header_folder()}"],
    )
    # Vectors of one length, which TileLang compares: nothing else but the scores is looked at.
    none = torch.zeros(_K, dtype=torch.int32, device=scores.device)
    lists = torch.zeros(_K, dtype=torch.int64, device=scores.device)
    vectors, chosen = scores.view(torch.int32).view(-1, 4), indices.view(-1)

    def call() -> None:
        kernel(
            vectors, 0, _WIDTH, _WIDTH, none, 0, none, 0, chosen, _K, none, _K, none, lists,
            0, 0, _K, 1, 0, 1, 1,
        )  # fmt: skip

    return call


def measure() -> list[dict[str, Any]]:
    scores = torch.randn(1, _WIDTH, device="cuda")
    indices = torch.empty(1, _K, device="cuda", dtype=torch.int32)
    device = torch.cuda.current_device()
    problem = Problem(1, _WIDTH, _K, "float32", "any", True, False, "cuda", device)
    plan = pipelined_plan(problem)
    expected = scores.topk(_K, sorted=False).indices.sort().values
    ways: dict[str, Callable[[], object]] = {
        THEIRS: their_call(scores, indices),
        PLAN: lambda: plan.run(scores, indices),
        FUNCTION: lambda: tl_topk.topk_indices(scores, _K, out=indices, backend="pipelined"),
    }
    for name, way in ways.items():
        indices.fill_(-1)
        way()
        if not torch.equal(indices.long().sort().values, expected):
            raise RuntimeError(f"{name} gave another answer")
    ways["nothing"] = lambda: None
    times = take_turns(
        {name: python_series(way, torch.cuda.synchronize) for name, way in ways.items()}
    )
    clock = statistics.median(times.pop("nothing"))
    return [
        {
            "call": name,
            "median_ns": round(statistics.median(series) - clock),
            "p99_ns": round(statistics.quantiles(series, n=100)[98] - clock),
            "noise_ns": round(noise_of(series[: len(series) // 2], series[len(series) // 2 :])),
            "calls": len(series),
        }
        for name, series in times.items()
    ]


@click.command(help=__doc__, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=RESULTS / f"{_SUITE}.json",
    help=f"Where the JSON goes.  [default: bench/results/{_SUITE}.json]",
)
def main(output: Path) -> None:
    if not torch.cuda.is_available():
        raise click.ClickException("kernels need a GPU, and torch sees none")
    document = new_document(_SUITE, "python -m bench.tile_host", "cuda")
    document.results += measure()
    document.complete = True
    document.save(output)
    for result in document.results:
        click.echo(f"{result['call']}: {result['median_ns']} ns")
    click.echo(f"written to {output}", err=True)


if __name__ == "__main__":
    main(prog_name="python -m bench.tile_host")
