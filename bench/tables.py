"""Results as tables: for the terminal after a run, and as Markdown for the README."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rich.table import Table as ConsoleTable

from bench.cases import Case, length_name
from bench.published import best_peer, founding
from bench.results import OURS, Document, Measurement, is_right
from bench.targets import HOSTILE_FACTOR, TARGETS

__all__ = ["Table", "by_case", "console_table", "markdown", "source_line", "table_of"]

_TORCH = "torch.topk"


@dataclass(frozen=True)
class Table:
    header: list[str]
    rows: list[list[str]]


def by_case(measurements: Iterable[Measurement]) -> dict[Case, dict[str, Measurement]]:
    """Case by case, the contenders' measurements."""
    cases: dict[Case, dict[str, Measurement]] = {}
    for measurement in measurements:
        cases.setdefault(measurement.case, {})[measurement.contender] = measurement
    return cases


def table_of(document: Document) -> Table:
    """The suite's own table, or the plain one."""
    if document.suite == "host":
        return _host_table(document)
    builders: dict[str, Callable[[Document], Table]] = {"seed": _seed_table}
    return builders.get(document.suite, _case_table)(document)


def _host_table(document: Document) -> Table:
    return Table(
        ["call", "median ns", "99th percentile ns"],
        [
            [f"`{result['call']}`", f"{result['median_ns']:.0f}", f"{result['p99_ns']:.0f}"]
            for result in document.results
        ],
    )


def _case_table(document: Document) -> Table:
    """A row a case: ours, the others, our gain over torch, and what there is to compare with."""
    cases = by_case(document.measurements())
    names = _contenders(document)
    targets = {case: _target(case, document) for case in cases}
    best = {case: _best_peer(case, document) for case in cases}
    header = ["case", *(f"{name}, us" for name in names)]
    if _TORCH in names:
        header.append(f"times {_TORCH}")
    if any(targets.values()):
        header.append("target, us")
    if any(best.values()):
        header += ["best peer, measured earlier, us", "which"]
    rows = []
    for case, measured in cases.items():
        row = [_case_name(case, document), *(_time(measured.get(name)) for name in names)]
        if _TORCH in names:
            row.append(_gain(measured))
        if any(targets.values()):
            row.append(targets[case])
        if any(best.values()):
            row += best[case] or ("", "")
        rows.append(row)
    return Table(header, rows)


def _contenders(document: Document) -> list[str]:
    """Those with a time, ours first, in the order of the run."""
    timed = [m.contender for m in document.measurements() if m.us is not None]
    return sorted(dict.fromkeys(timed), key=lambda name: not name.startswith(OURS))


def _case_name(case: Case, document: Document) -> str:
    every = {m.case.k for m in document.measurements()}
    name = str(case)
    return name.replace(f", k={case.k}", "") if len(every) == 1 else name


def _time(measurement: Measurement | None) -> str:
    if measurement is None or measurement.us is None:
        return "-"
    digits = 2 if measurement.us < 100 else 0
    time = f"{measurement.us:.{digits}f}"
    return time if is_right(measurement.answer) else f"{time} wrong"


def _gain(measured: dict[str, Measurement]) -> str:
    ours = next((m for name, m in measured.items() if name.startswith(OURS)), None)
    torch = measured.get(_TORCH)
    if ours is None or torch is None or not ours.us or not torch.us or not is_right(ours.answer):
        return "-"
    return f"{torch.us / ours.us:.1f}"


def _target(case: Case, document: Document) -> str:
    us = TARGETS.get(case.rows, {}).get(case.width)
    plain = Case(case.rows, case.width)
    if us is None or document.suite not in ("short", "hostile", "grid"):
        return ""
    if document.suite == "hostile":
        return f"{us if case == plain else HOSTILE_FACTOR * us:g}"
    return f"{us:g}" if case == plain else ""


def _best_peer(case: Case, document: Document) -> tuple[str, str] | None:
    """Its time and name."""
    peer = best_peer(case.rows, case.width, case.k)
    if document.suite not in ("short", "grid") or peer is None:
        return None
    return f"{peer[1]:g}", peer[0]


def _seed_table(document: Document) -> Table:
    """The founding table: lengths down, what this run measured, then what was published."""
    cases = by_case(document.measurements())
    names = _contenders(document)
    published = founding()
    rows = [
        [
            length_name(case.width),
            *(_time(measured.get(name)) for name in names),
            _gain(measured),
            *(f"{series[case.width]:g}" if case.width in series else "-"
              for series in published.values()),
        ]
        for case, measured in cases.items()
    ]  # fmt: skip
    return Table(
        [
            "length",
            *(f"{name}, us" for name in names),
            f"times {_TORCH}",
            *(f"published (GB300): {name}, us" for name in published),
        ],
        rows,
    )


def console_table(document: Document) -> ConsoleTable:
    """For people, after a run."""
    table = table_of(document)
    shown = ConsoleTable(title=f"{document.suite}, {source_line(document)}", title_justify="left")
    for i, name in enumerate(table.header):
        shown.add_column(name, justify="right" if i else "left")
    for row in table.rows:
        shown.add_row(*row)
    return shown


def markdown(table: Table) -> str:
    rule = ["---"] + ["---:"] * (len(table.header) - 1)
    return "\n".join(f"| {' | '.join(row)} |" for row in [table.header, rule, *table.rows])


def source_line(document: Document) -> str:
    """Machine, versions, commit and date, in one line."""
    facts = document.machine
    parts = [facts.get("gpu") or f"{facts['cpu']}, {facts['cores']} cores"]
    if "gpu" in facts:
        parts += [f"driver {facts['driver']}", f"CUDA {facts['cuda']}"]
    parts += [f"torch {facts['torch']}", f"commit {document.commit}", document.date]
    return ", ".join(parts) + ("" if document.complete else ", interrupted")
