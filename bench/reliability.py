"""README's table of what shows that answers are right, made from recorded results."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from bench.results import RESULTS, Document, load
from bench.tables import Table, markdown

__all__ = ["FILES", "reliability_section", "reliability_table"]

#: Files of results, in the table's order; those that are there are shown.
FILES = (
    "check_dsmem",
    "check_pipelined",
    "check_cpu",
    "sanitizer",
    "sanitizer_mapped",
    "sanitizer_float32",
    "sanitizer_grid",
    "endurance",
    "tests_gpu",
    "tests_gpu_alone",
    "tests_adversaries",
    "tests_graphs",
    "tests_exhaustive",
    "coverage",
    "mutation_native",
    "mutation_python",
)
_KERNELS = "kernels of the library that racecheck's tests launch"
_BACKENDS = {"dsmem": "GPU, `dsmem`", "pipelined": "GPU, `pipelined`", "cpu": "CPU"}

#: What is shown, and the figure.
Shown = tuple[str, str]


def _check(results: list[dict[str, Any]]) -> Iterable[Shown]:
    for result in results:
        wrong = "no difference" if result["finding"] is None else f"**{result['finding']}**"
        yield (
            f"random and adversarial rows, {_BACKENDS[result['backend']]}",
            f"{result['rows']:,} rows of {result['elements'] / 1e9:.1f}G scores in"
            f" {result['launches']:,} launches: {wrong}",
        )


def _sanitizer(results: list[dict[str, Any]]) -> Iterable[Shown]:
    for result in results:
        if "tool" not in result:
            continue
        found = "nothing" if result["clean"] else f"**{result['findings']} findings**"
        for what in ("failed", "cut off"):
            found += f", **{result[what]} {what}**" if result.get(what) else ""
        found += f", {result['skipped']} others skipped" if result.get("skipped") else ""
        found += f", {result['left']} not reached" if result.get("left") else ""
        yield f"compute-sanitizer {result['tool']}", f"{result['tests']} tests: {found}"
    for result in results:
        if "kernels" in result and result.get("left") == 0:  # a profiler cut off says little
            yield _KERNELS, f"{result['launched']} of {result['kernels']}"


def _endurance(results: list[dict[str, Any]]) -> Iterable[Shown]:
    for result in results:
        if result["passed"]:
            figure = f"{result['count']:,}: no wrong answer, no hang"
            if "lost_bytes" in result:
                lost = result["lost_bytes"] / 2**20
                figure += f", {lost:.0f} MiB less memory free" if lost else ", no memory lost"
        else:
            figure = f"**failed: {result.get('note') or result.get('problem', result)}**"
        yield result["what"], figure


def _tests(results: list[dict[str, Any]]) -> Iterable[Shown]:
    for result in results:
        figure = f"{result['passed']:,} passed, {result['failed']} failed"
        figure += f", {result['skipped']} skipped" if result.get("skipped") else ""
        yield result["what"], figure if result["failed"] == 0 else f"**{figure}**"


def _coverage(results: list[dict[str, Any]]) -> Iterable[Shown]:
    for result in results:
        yield (
            f"lines that the CPU's tests run, {result['language']}",
            f"{result['percent']:.1f} % of {result['lines']:,}",
        )


def _unchecked(result: dict[str, Any]) -> str:
    left = result.get("not_checked", 0) + result.get("no_tests", 0)
    return f", {left} not checked" if left else ""


def _mutation(results: list[dict[str, Any]]) -> Iterable[Shown]:
    for result in results:
        yield (
            f"small changes to {result['what']} that tests notice ({result['tool']})",
            f"{result['killed']} of {result['killed'] + result['survived']}{_unchecked(result)}",
        )


_ROWS: dict[str, Callable[[list[dict[str, Any]]], Iterable[Shown]]] = {
    "check": _check,
    "sanitizer": _sanitizer,
    "endurance": _endurance,
    "tests": _tests,
    "coverage": _coverage,
    "mutation": _mutation,
}


def reliability_table(documents: dict[str, Document]) -> Table:
    """A row for each figure, with the command that made it, its date and machine."""
    rows = []
    for name, document in documents.items():
        machine = document.machine.get("gpu") or f"{document.machine['cores']} CPU cores"
        command = f"[`{document.command.strip()}`](bench/results/{name}.json)"
        command += "" if document.complete else ", stopped"
        part = re.search(r"--keyword '?([^'-]+)", document.command)
        for what, figure in _ROWS[document.suite](document.results):
            if part and what == _KERNELS:
                continue  # of all tests alone it says what they leave out
            of = f", `{part[1].strip()}` tests" if part else ""
            rows.append([what + of, figure, command, document.date[:10], machine, document.commit])
    return Table(["what", "figure", "command and record", "date", "machine", "commit"], rows)


def reliability_section(folder: Path = RESULTS) -> str:
    """The table, of all records that are there; empty where there are none."""
    paths = {name: folder / f"{name}.json" for name in FILES}
    documents = {name: load(path) for name, path in paths.items() if path.exists()}
    if not documents:
        return ""
    return markdown(reliability_table(documents), numbers=False)
