"""The benchmarks' command line: ``python -m bench``."""

from __future__ import annotations

import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import torch

from bench.cases import Case
from bench.compare import compare
from bench.contenders import TorchTopK
from bench.distributions import find_distribution
from bench.peers import find_peers
from bench.results import RESULTS, load
from bench.session import CannotResumeError, run_suite
from bench.suites import SUITES, Suite
from bench.targets import K, M


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Benchmarks of tl_topk: run them, compare runs, make tables and figures.

    \b
    python -m bench run short                  the cells of the table of targets, about a minute
    python -m bench run grid                   rows, lengths and k, several minutes
    python -m bench case --rows 4 --width 1M   one case of your own
    python -m bench peers                      who else could take part here
    python -m bench compare OLD.json NEW.json  exit status 1 where the new one is slower
    python -m bench report                     all tables in documents, and figures, from the JSON
    python -m bench.host_overhead --help       what a call costs the CPU
    python -m bench.phases --help              where a launch spends its time
    python -m bench.floors --help              what stands in the way of a launch

    A run times every contender it can import (ours, torch.topk, other libraries), checks each
    answer in the same run, and keeps what it has if it is interrupted. Where git cannot
    tell the commit, $BENCH_COMMIT does.
    """


_SUITE_HELP = "\n".join(f"{suite.name:<9}{suite.about}" for suite in SUITES.values())

_resume_option = click.option(
    "--resume", is_flag=True, help="Measure only what the file lacks; same commit and machine."
)
_seconds_option = click.option(
    "--seconds", type=click.FloatRange(min=0), default=0, metavar="S",
    help="Begin nothing more after S seconds; --resume goes on.",
)  # fmt: skip


@main.command(
    help="Measure one suite and write its results as JSON. Exit status 1 if an answer of ours is"
    f" wrong.\n\n\b\n{_SUITE_HELP}"
)
@click.argument("name", metavar="SUITE", type=click.Choice(list(SUITES)))
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where the JSON goes.  [default: bench/results/SUITE.json]",
)
@_resume_option
@_seconds_option
@click.pass_context
def run(
    context: click.Context, name: str, output: Path | None, resume: bool, seconds: float
) -> None:
    path = output or RESULTS / f"{name}.json"
    command = f"python -m bench run {name}"
    _run(context, SUITES[name], command, path, resume=resume, seconds=seconds)


_UNITS = {"": 1, "K": K, "M": M}


def _length(_context: click.Context, param: click.Parameter, value: str | None) -> Any:
    """65536, 64K or 1M; of --lengths also the words that a case knows."""
    words = ("mixed", "causal") if param.name == "lengths" else ()
    if value is None or value in words:
        return value
    digits, unit = (value[:-1], value[-1].upper()) if value[-1:].isalpha() else (value, "")
    if not digits.isdecimal() or unit not in _UNITS or int(digits) == 0:
        expected = " or ".join(["a length such as 4096, 64K or 1M", *words])
        raise click.BadParameter(f"expected {expected}, got {value!r}")
    return int(digits) * _UNITS[unit]


def _known_distribution(_context: click.Context, _param: click.Parameter, name: str) -> str:
    try:
        find_distribution(name)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return name


@main.command(
    "case",
    help="Measure one case of your own. Lengths may be written 64K or 1M; the distribution"
    ' "steps 35 %" is of consecutive decoding steps whose selections overlap that far.',
)
@click.option("--rows", type=click.IntRange(min=1), default=1, show_default=True)
@click.option(
    "--width", default="64K", show_default=True, callback=_length, help="Scores in a row."
)
@click.option("-k", "--k", type=click.IntRange(min=1), default=2048, show_default=True)
@click.option("--dtype", type=click.Choice(["float32", "float16", "bfloat16"]), default="float32")
@click.option("--distribution", default="normal", show_default=True, callback=_known_distribution)
@click.option(
    "--entropy", type=click.IntRange(1, 32), default=32, help="Leading bits of a score to keep."
)
@click.option("--lengths", callback=_length, help="Of the rows: a length, mixed or causal.")
@click.option("--row-starts", is_flag=True, help="Rows start elsewhere than at their first score.")
@click.option("--order", type=click.Choice(["any", "index", "value"]), default="any")
@click.option("--values", is_flag=True, help="Values besides indices.")
@click.option("--device", type=click.Choice(["cuda", "cpu"]), default="cuda", show_default=True)
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="JSON, if wanted.")
@click.pass_context
def one_case(
    context: click.Context, /, device: str, output: Path | None, **description: Any
) -> None:
    case = Case(**description)
    words = [
        f"--{field.name.replace('_', '-')}" + ("" if value is True else f"={value}")
        for field in fields(case)
        if (value := getattr(case, field.name)) != field.default
    ]
    command = shlex.join(["python", "-m", "bench", "case", *words, f"--device={device}"])
    _run(context, Suite("case", str(case), device, (case,)), command, output)


def _run(
    context: click.Context, suite: Suite, command: str, path: Path | None, **options: Any
) -> None:
    if suite.device == "cuda" and not torch.cuda.is_available():
        raise click.ClickException(f"suite {suite.name} needs a GPU, and torch sees none")
    try:
        right = run_suite(suite, command, path, **options)
    except CannotResumeError as error:
        raise click.UsageError(f"{path} cannot be gone on with: {error}") from error
    context.exit(0 if right else 1)


@main.command()
def peers() -> None:
    """Name every other implementation that is known, and why it cannot be used here."""
    for peer in [TorchTopK(), *find_peers()]:
        click.echo(f"{peer.name:<26}{peer.unavailable() or 'available'}")


_result_file = click.Path(path_type=Path, exists=True, dir_okay=False)


@main.command("compare")
@click.argument("old", type=_result_file)
@click.argument("new", type=_result_file)
@click.pass_context
def compare_runs(context: click.Context, old: Path, new: Path) -> None:
    """Compare two results; exit status 1 where ours became slower beyond the noise, or wrong.

    The noise is 3 %, which runs on different days differ by, plus what either run measured of its
    own: how far the medians of its two series lie apart, or what their scatter allows.
    """
    try:
        found = compare(load(old), load(new))
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    for warning in found.warnings:
        click.echo(f"note: {warning}", err=True)
    for change in found.regressed:
        click.echo(f"REGRESSED {change}")
    for change in found.improved:
        click.echo(f"improved  {change}")
    for name in found.missing:
        click.echo(f"missing   {name}")
    click.echo(
        f"{len(found.changes)} compared: {len(found.regressed)} regressed,"
        f" {len(found.improved)} improved, {len(found.missing)} missing from the new one"
    )
    context.exit(1 if found.regressed else 0)


@main.command()
def report() -> None:
    """Make the tables of README, bench/FIGURES.md and bench/tilelang.md and all of bench/figures
    again, from bench/results/*.json alone.
    """
    from bench.report import write_report  # needs matplotlib, which measuring does not

    for path in write_report():
        click.echo(path)


if __name__ == "__main__":
    main(prog_name="python -m bench")
