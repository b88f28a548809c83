"""One run of a suite, from nothing (or what an earlier run has kept) to its JSON and a table."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from types import FrameType

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bench.machine import new_document
from bench.results import OURS, Document, is_right, load
from bench.runner import choose_contenders, make_timer, measure
from bench.suites import Suite
from bench.tables import console_table

__all__ = ["CannotResumeError", "print_document", "run_suite"]

_LINE_EVERY_S = 10.0
_FILE_WIDTH = 160  # of tables that no terminal shows

#: What makes two runs one: they may end in the same file.
_SAME_MACHINE = ("gpu", "driver", "cpu", "torch")

Starting = Callable[[str], None]


class CannotResumeError(Exception):
    """The file holds something else."""


def run_suite(
    suite: Suite, command: str, path: Path | None, *, resume: bool = False, seconds: float = 0
) -> bool:
    """Measures, keeping every result at once, and prints a table whatever happens.

    Args:
        suite: what to measure.
        command: what was typed, to be recorded.
        path: where the JSON goes; None keeps nothing.
        resume: whether what ``path`` already holds is gone on with.
        seconds: after which no further measurement is begun; 0 for no limit.

    Returns:
        Whether all of our answers are right.

    Raises:
        CannotResumeError: another commit, machine or suite has measured what ``path`` holds.
    """
    contenders, absent = choose_contenders(suite)
    for contender, reason in absent.items():
        click.echo(f"without {contender}: {reason}", err=True)
    document = new_document(suite.name, command, suite.device)
    document.absent = absent
    if resume and path is not None and path.exists():
        document = _gone_on_with(load(path), document)
    total = len(suite.cases) * len(contenders)
    end = monotonic() + seconds if seconds else float("inf")
    done = {(m.case, m.contender) for m in document.measurements()}
    try:
        with _ended_like_ctrl_c(), _progress(len(done), total) as starting:
            for measurement in measure(suite, contenders, make_timer(suite), starting, done):
                document.results.append(measurement.as_dict())
                if path is not None:
                    document.save(path)
                if monotonic() > end:
                    break
            else:
                document.complete = True
    finally:
        if path is not None:
            document.save(path)
        _print(document, total, path)
    wrong = [
        f"{m.contender}: {m.case}: {m.answer}"
        for m in document.measurements()
        if m.contender.startswith(OURS) and m.us is not None and not is_right(m.answer)
    ]
    for line in wrong:
        click.echo(line, err=True)
    return not wrong


def _gone_on_with(before: Document, now: Document) -> Document:
    """What was measured before, to be completed now."""
    if before.suite != now.suite:
        raise CannotResumeError(f"it holds suite {before.suite}, not {now.suite}")
    if before.commit != now.commit:
        raise CannotResumeError(f"it was measured at commit {before.commit}, this is {now.commit}")
    for fact in _SAME_MACHINE:
        if before.machine.get(fact) != now.machine.get(fact):
            raise CannotResumeError(
                f"it was measured with {fact} {before.machine.get(fact)},"
                f" this is {now.machine.get(fact)}"
            )
    before.complete = False
    before.absent = now.absent
    return before


def _print(document: Document, total: int, path: Path | None) -> None:
    print_document(document)
    where = "" if path is None else f" are in {path}"
    left = "" if document.complete or path is None else "; --resume measures the rest"
    click.echo(f"{len(document.results)} of {total} measurements{where}{left}", err=True)


def print_document(document: Document) -> None:
    """As a table, on stdout."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _FILE_WIDTH
    console.print(console_table(document))


@contextmanager
def _ended_like_ctrl_c() -> Iterator[None]:
    """So that ``timeout`` and job systems, too, leave a whole file and a table."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _progress(already: int, total: int) -> Iterator[Starting]:
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
        task = bar.add_task("", total=total - already)

        def starting(text: str) -> None:
            nonlocal said, done
            done += 1
            bar.update(task, completed=done, description=text)
            now = monotonic()
            if not console.is_terminal and now - said > _LINE_EVERY_S:
                said = now
                left = (now - begun) / max(done, 1) * (total - already - done)
                click.echo(
                    f"{already + done} of {total}, about {left:.0f} s left; {text}", err=True
                )

        yield starting
