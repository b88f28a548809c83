"""What the commands share: options, and how results are printed."""

from __future__ import annotations

import json
import math

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tl_topk.backends import BACKENDS
from tl_topk.dispatch import AUTO

__all__ = ["backend_option", "facts", "json_option", "note", "print_json", "progress", "show"]

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")

backend_option = click.option(
    "--backend", type=click.Choice((AUTO, *BACKENDS)), default=AUTO, show_default=True
)

_STDERR = Console(stderr=True, highlight=False)


def print_json(data: object) -> None:
    """One line of JSON on stdout; numbers that JSON does not have as the strings Python reads."""
    click.echo(json.dumps(_jsonable(data), allow_nan=False))


def _jsonable(data: object) -> object:
    if isinstance(data, dict):
        return {name: _jsonable(value) for name, value in data.items()}
    if isinstance(data, list):
        return [_jsonable(value) for value in data]
    if isinstance(data, float) and not math.isfinite(data):
        return str(data)
    return data


def show(*parts: object) -> None:
    """Text and tables for people, on stdout."""
    console = Console(highlight=False)
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, str), markup=False)


def note(text: str) -> None:
    """For people, beside the result: on stderr."""
    _STDERR.print(text, soft_wrap=True, markup=False)


def facts(title: str, rows: dict[str, object]) -> Table:
    """A table of names and what they stand for."""
    table = Table(title=title, title_justify="left", show_header=False)
    for name, value in rows.items():
        table.add_row(name, str(value))
    return table


def progress(unit: str) -> Progress:
    """A bar on stderr that leaves no trace; none where stderr is no terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
        console=_STDERR,
        transient=True,
        disable=not _STDERR.is_terminal,
    )
