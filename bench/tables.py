"""Results as tables: for the terminal after a run, and as Markdown for documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from rich.table import Table as ConsoleTable

from bench.cases import Case, length_name
from bench.published import best_peer, founding
from bench.results import (
    ENGINES_SUITE,
    FLOORS_SUITE,
    FUSED_SUITE,
    HINT_SUITE,
    HOST_SUITE,
    OURS,
    PHASES_SUITE,
    Document,
    Measurement,
    Scoring,
    is_right,
)
from bench.targets import HOSTILE_FACTOR, TARGETS

__all__ = ["Table", "by_case", "console_table", "markdown", "source", "source_line", "table_of"]

_TORCH = "torch.topk"


#: By case and contender.
Measured: TypeAlias = dict[Case, dict[str, Measurement]]


@dataclass(frozen=True)
class Table:
    header: list[str]
    rows: list[list[str]]


def by_case(measurements: Iterable[Measurement]) -> Measured:
    """Case by case, the contenders' measurements."""
    cases: Measured = {}
    for measurement in measurements:
        cases.setdefault(measurement.case, {})[measurement.contender] = measurement
    return cases


def table_of(document: Document) -> Table:
    """The suite's own table, or a row a case with everybody's times."""
    if document.suite in _OWN_TABLES:
        return _OWN_TABLES[document.suite](document)
    measured = by_case(document.measurements())
    columns = [*_times(measured), *_EXTRA_COLUMNS.get(document.suite, [_GAIN])]
    many_ks = len({case.k for case in measured}) > 1
    return Table(
        ["case", *(column.header for column in columns)],
        [
            [
                str(case) if many_ks else _without_k(case),
                *(column.cell(case, measured) for column in columns),
            ]
            for case in measured
        ],
    )


def _without_k(case: Case) -> str:
    return str(case).replace(f", k={case.k}", "")


def _host_table(document: Document) -> Table:
    """What calls cost, then what they cost more than others; bold where it is too much."""
    rows = [
        [f"`{result['call']}`", f"{result['median_ns']:.0f}", f"{result['p99_ns']:.0f}"]
        for result in document.calls()
    ]
    for kept in document.promises():
        over, allowed = kept["over_ns"], kept["allowed_ns"]
        text = f"{over:+} ± {kept['noise_ns']}"
        what = f"{kept['promise']}, at most {allowed:+}"
        rows.append([what, text if over <= allowed else f"**{text}**", ""])
    return Table(["call", "median ns", "99th percentile ns"], rows)


def _engines_table(document: Document) -> Table:
    """A row a way of each problem, and its time by that of the problem's first way."""
    first: dict[str, float] = {}
    rows = []
    for result in document.results:
        us = result["us"]
        by_first = us / first.setdefault(result["problem"], us)
        rows.append(
            [result["problem"], result["way"], _us(us, result["answer"]), f"{by_first:.2f}"]
        )
    return Table(["problem", "way", "us", "by its first way"], rows)


def _phases_table(document: Document) -> Table:
    launches = document.phases()
    names = list(dict.fromkeys(name for launch in launches for name in launch.us))
    return Table(
        ["case", *(f"{name}, us" for name in names), "whole launch, us"],
        [
            [
                str(launch.case),
                *(f"{launch.us[name]:.2f}" if name in launch.us else "-" for name in names),
                f"{launch.launch_us:.2f}",
            ]
            for launch in launches
        ],
    )


def _floors_table(document: Document) -> Table:
    """A row a size and state, what is done across."""
    names = list(document.results[1]["us"])
    return Table(
        ["rows x length", "process has used", *(f"{name}, us" for name in names), "target, us"],
        [
            [
                f"{result['rows']} x {length_name(result['width'])}",
                result["state"],
                *(f"{result['us'][n]:.2f}" if n in result["us"] else "-" for n in names),
                _bound(result["target_us"], result["us"]["selected"]),
            ]
            for result in document.results
        ],
    )


def _fused_table(document: Document) -> Table:
    """A row a problem, the ways across, and what fusing gains and hides."""
    problems: dict[str, dict[str, Scoring]] = {}
    for s in document.scorings():
        problems.setdefault(s.problem, {})[s.way] = s
    ways = list(dict.fromkeys(s.way for s in document.scorings()))
    return Table(
        [
            "problem", *(f"{way}, us" for way in ways), "separate / fused",
            "selection hidden", "floor, us", "target, us",
        ],
        [
            [
                problem,
                *(_fused_us(by_way[way]) if way in by_way else "-" for way in ways),
                _gain_of_fusing(by_way),
                _hidden(by_way),
                *(_known(us) for us in _floor_and_target(by_way)),
            ]
            for problem, by_way in problems.items()
        ],
    )  # fmt: skip


def _fused_us(scoring: Scoring) -> str:
    us = _us(scoring.us, scoring.answer)
    missed = scoring.target_us is not None and scoring.us > scoring.target_us
    return f"**{us}**" if missed and scoring.way == "as dispatched" else us


def _floor_and_target(by_way: dict[str, Scoring]) -> tuple[float | None, float | None]:
    any_way = next(iter(by_way.values()))
    return any_way.floor_us, any_way.target_us


def _known(us: float | None) -> str:
    return "-" if us is None else f"{us:.1f}"


def _hidden(by_way: dict[str, Scoring]) -> str:
    """The share of the time that selecting adds to scoring which the dispatched way takes away."""
    ways = [by_way.get(way) for way in ("scoring alone", "without overlap", "as dispatched")]
    if not all(s is not None and is_right(s.answer) for s in ways):
        return "-"
    alone, apart, taken = (s.us for s in ways if s is not None)
    return f"{(apart - taken) / (apart - alone):.0%}" if apart > max(alone, taken) else "-"


def _gain_of_fusing(by_way: dict[str, Scoring]) -> str:
    both = [by_way[way] for way in ("separate", "fused") if way in by_way]
    if len(both) < 2 or not all(is_right(s.answer) for s in both):
        return "-"
    return f"{both[0].us / both[1].us:.2f}"


def _ablation_table(document: Document) -> Table:
    """The whole kernel, then without one part each: times, and shared memory in the last column."""
    measured = by_case(document.measurements())
    names = dict.fromkeys(m.contender for m in document.measurements())
    names.pop(_TORCH, None)
    many_ks = len({case.k for case in measured}) > 1
    rows = []
    for name in names:
        mine = [by_name.get(name) for by_name in measured.values()]
        shared = [m.shared_bytes for m in mine if m is not None and m.shared_bytes is not None]
        rows.append([name, *(_time(m) for m in mine), _kilobytes(shared)])
    headers = [str(case) if many_ks else _without_k(case) for case in measured]
    return Table(["", *(f"{name}, us" for name in headers), "shared memory a block, KB"], rows)


def _kilobytes(sizes: list[int]) -> str:
    if not sizes:
        return "-"
    ends = dict.fromkeys(round(size / 1024) for size in (min(sizes), max(sizes)))
    return " to ".join(map(str, ends))


def _hostile_table(document: Document) -> Table:
    """Our times: distributions down, shapes across, below them what is allowed; bold: above it."""
    measured = by_case(document.measurements())
    shapes = dict.fromkeys((case.rows, case.width) for case in measured)
    kinds = dict.fromkeys((case.distribution, case.entropy) for case in measured)
    targets = {shape: TARGETS.get(shape[0], {}).get(shape[1]) for shape in shapes}
    limits = {shape: us * HOSTILE_FACTOR if us else None for shape, us in targets.items()}

    def time(shape: tuple[int, int], kind: tuple[str, int]) -> str:
        case = Case(*shape, distribution=kind[0], entropy=kind[1])
        ours, limit = _ours(measured.get(case, {})), limits[shape]
        above = ours is not None and limit is not None and (ours.us or 0) > limit
        return f"**{_time(ours)}**" if above else _time(ours)

    rows = [
        [name if entropy == 32 else f"{name}, leading {entropy} bits"]
        + [time(shape, (name, entropy)) for shape in shapes]
        for name, entropy in kinds
    ]
    for name, bounds in (("target, normal", targets), ("at most", limits)):
        rows.append([f"*{name}*", *(f"*{us:g}*" if us else "-" for us in bounds.values())])
    return Table(["distribution", *(Case(*shape).shape for shape in shapes)], rows)


@dataclass(frozen=True)
class _Column:
    header: str
    cell: Callable[[Case, Measured], str]


def _times(measured: Measured) -> list[_Column]:
    """A column for each contender that has a time, ours first."""
    timed = [m.contender for ms in measured.values() for m in ms.values() if m.us is not None]
    names = sorted(dict.fromkeys(timed), key=lambda name: not name.startswith(OURS))
    return [_Column(f"{name}, us", _time_of(name)) for name in names]


def _time_of(contender: str) -> Callable[[Case, Measured], str]:
    return lambda case, measured: _time(measured[case].get(contender))


def _time(measurement: Measurement | None) -> str:
    if measurement is None or measurement.us is None:
        return "-"
    return _us(measurement.us, measurement.answer)


def _us(us: float, answer: str) -> str:
    time = f"{us:.{2 if us < 100 else 0}f}"
    return time if is_right(answer) else f"{time} wrong"


def _ours(measurements: dict[str, Measurement]) -> Measurement | None:
    return next((m for name, m in measurements.items() if name.startswith(OURS)), None)


def _ratio(above: Measurement | None, below: Measurement | None, digits: int) -> str:
    if above is None or below is None or not above.us or not below.us:
        return "-"
    both_right = is_right(above.answer) and is_right(below.answer)
    return f"{above.us / below.us:.{digits}f}" if both_right else "-"


def _bound(us: float, ours: float | None) -> str:
    """What our time is held against; bold where it is above."""
    return f"**{us:g}**" if ours is not None and ours > us else f"{us:g}"


def _our_time(measured: dict[str, Measurement]) -> float | None:
    ours = _ours(measured)
    return None if ours is None else ours.us


def _target(case: Case, measured: Measured) -> str:
    us = TARGETS.get(case.rows, {}).get(case.width)
    if us is None or case != Case(case.rows, case.width):
        return "-"
    return _bound(us, _our_time(measured[case]))


def _published(series: dict[int, float]) -> Callable[[Case, Measured], str]:
    return lambda case, _: f"{series[case.width]:g}" if case.width in series else "-"


def _peer(case: Case, measured: Measured) -> tuple[str, str]:
    """The best one's time, measured elsewhere, and its name."""
    peer = best_peer(case.rows, case.width, case.k)
    return (_bound(peer[1], _our_time(measured[case])), peer[0]) if peer else ("-", "-")


_GAIN = _Column(
    f"{_TORCH} / ours", lambda case, all_: _ratio(all_[case].get(_TORCH), _ours(all_[case]), 1)
)
_TARGET = _Column("target, us", _target)
_PEER = _Column("best peer, measured earlier, us", lambda case, all_: _peer(case, all_)[0])
_PEER_NAME = _Column("which", lambda case, all_: _peer(case, all_)[1])
_PLAIN = _Column(
    "ours / plain ours",
    lambda case, all_: _ratio(
        _ours(all_[case]), _ours(all_.get(Case(case.rows, case.width), {})), 2
    ),
)

#: By suite, what stands right of the times. Figures of others come last, named as such.
_EXTRA_COLUMNS = {
    "short": [_GAIN, _TARGET, _PEER, _PEER_NAME],
    "grid": [_GAIN, _TARGET, _PEER, _PEER_NAME],
    "options": [_GAIN, _PLAIN],
    "seed": [
        _GAIN,
        *(
            _Column(f"published (GB300): {name}, us", _published(series))
            for name, series in founding().items()
        ),
    ],
}


#: Suites whose tables are no rows of cases with everybody's times.
_OWN_TABLES: dict[str, Callable[[Document], Table]] = {
    HOST_SUITE: _host_table,
    PHASES_SUITE: _phases_table,
    FLOORS_SUITE: _floors_table,
    FUSED_SUITE: _fused_table,
    ENGINES_SUITE: _engines_table,
    HINT_SUITE: _engines_table,
    "hostile": _hostile_table,
    "ablation": _ablation_table,
}


def console_table(document: Document) -> ConsoleTable:
    """For people, after a run."""
    table = table_of(document)
    shown = ConsoleTable(title=f"{document.suite}, {source_line(document)}", title_justify="left")
    for i, name in enumerate(table.header):
        shown.add_column(name, justify="right" if i else "left")
    for row in table.rows:
        shown.add_row(*row)
    return shown


def markdown(table: Table, *, numbers: bool = True) -> str:
    """With numbers, all columns but the first are lined up on the right."""
    rule = ["---"] + ["---:" if numbers else "---"] * (len(table.header) - 1)
    return "\n".join(f"| {' | '.join(row)} |" for row in [table.header, rule, *table.rows])


def source(name: str, document: Document, folder: str) -> str:
    """A link to the record ``name`` in ``folder``, its command and its origin."""
    path = f"{folder}{name}.json"
    return f"[{path}]({path}): `{document.command}`, {source_line(document)}."


def source_line(document: Document) -> str:
    """Machine, versions, commit and date, in one line."""
    facts = document.machine
    parts = [facts.get("gpu") or f"{facts['cpu']}, {facts['cores']} cores"]
    if "gpu" in facts:
        parts += [f"driver {facts['driver']}", f"CUDA {facts['cuda']}"]
    parts += [f"torch {facts['torch']}", f"commit {document.commit}", document.date]
    return ", ".join(parts) + ("" if document.complete else ", interrupted")
