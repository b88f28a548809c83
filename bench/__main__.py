"""The benchmarks' command line: ``python -m bench``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from time import monotonic

import click
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bench.compare import compare
from bench.machine import commit, machine
from bench.results import RESULTS, Document, load
from bench.runner import choose_contenders, make_timer, measure
from bench.suites import SUITES
from bench.tables import console_table

_LINE_EVERY_S = 10.0
_FILE_WIDTH = 160  # of tables that no terminal shows

Starting = Callable[[str], None]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Benchmarks of tl_topk: run them, compare runs, make tables and figures.

    \b
    python -m bench run short                  the cells of the table of targets, about a minute
    python -m bench run grid                   rows, lengths and k, several minutes
    python -m bench compare OLD.json NEW.json  exit status 1 where the new one is slower
    python -m bench report                     README's tables and bench/figures from the JSON
    python -m bench.host_overhead --help       what a call costs the CPU

    A run times every contender it can import (ours, torch.topk, other libraries), checks each
    answer in the same run, and keeps what it has if it is interrupted. Where git cannot
    tell the commit, $BENCH_COMMIT does.
    """


_SUITE_HELP = "\n".join(f"{suite.name:<9}{suite.about}" for suite in SUITES.values())


@main.command(help=f"Measure one suite and write its results as JSON.\n\n\b\n{_SUITE_HELP}")
@click.argument("name", metavar="SUITE", type=click.Choice(list(SUITES)))
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where the JSON goes.  [default: bench/results/SUITE.json]",
)
def run(name: str, output: Path | None) -> None:
    suite = SUITES[name]
    if suite.device == "cuda" and not torch.cuda.is_available():
        raise click.ClickException(f"suite {name} needs a GPU, and torch sees none")
    path = output or RESULTS / f"{name}.json"
    contenders, absent = choose_contenders(suite)
    for contender, reason in absent.items():
        click.echo(f"without {contender}: {reason}", err=True)
    document = Document(
        suite=name,
        command=f"python -m bench run {name}",
        commit=commit(),
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        machine=machine(suite.device),
        absent=absent,
    )
    total = len(suite.cases) * len(contenders)
    try:
        with _progress(total) as starting:
            for measurement in measure(suite, contenders, make_timer(suite), starting):
                document.results.append(measurement.as_dict())
                document.save(path)
        document.complete = True
    finally:
        document.save(path)
        console = Console(highlight=False)
        width = console.width if console.is_terminal else _FILE_WIDTH
        console.print(console_table(document), width=width)
        click.echo(f"{len(document.results)} of {total} measurements are in {path}", err=True)


@contextmanager
def _progress(total: int) -> Iterator[Starting]:
    """A bar with an estimate of what is left; lines now and then where stderr is no terminal."""
    console = Console(stderr=True, highlight=False)
    begun = monotonic()
    said = begun
    done = -1

    with Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task("", total=total)

        def starting(text: str) -> None:
            nonlocal said, done
            done += 1
            bar.update(task, completed=done, description=text)
            now = monotonic()
            if not console.is_terminal and now - said > _LINE_EVERY_S:
                said = now
                left = (now - begun) / max(done, 1) * (total - done)
                click.echo(f"{done} of {total}, about {left:.0f} s left; {text}", err=True)

        yield starting


_result_file = click.Path(path_type=Path, exists=True, dir_okay=False)


@main.command("compare")
@click.argument("old", type=_result_file)
@click.argument("new", type=_result_file)
@click.pass_context
def compare_runs(context: click.Context, old: Path, new: Path) -> None:
    """Compare two results; exit status 1 where ours became slower beyond the noise, or wrong.

    The noise is 3 % plus, from either run, how far its two timings of the same calls differ.
    """
    try:
        changes = compare(load(old), load(new))
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    for change in changes:
        if change.regressed or change.improved:
            word = "REGRESSED" if change.regressed else "improved "
            click.echo(
                f"{word} {change.name}: {change.old_us:.2f} -> {change.new_us:.2f} us"
                f" (noise {change.margin_us:.2f})"
            )
    regressed = sum(change.regressed for change in changes)
    improved = sum(change.improved for change in changes)
    click.echo(f"{len(changes)} compared: {regressed} regressed, {improved} improved")
    context.exit(1 if regressed else 0)


@main.command()
def report() -> None:
    """Make README's tables and bench/figures again, from bench/results/*.json alone."""
    from bench.report import write_report  # needs matplotlib, which measuring does not

    for path in write_report():
        click.echo(path)


if __name__ == "__main__":
    main(prog_name="python -m bench")
