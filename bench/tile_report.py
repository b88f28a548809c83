"""The tables and figures of bench/tilelang.md, made from bench/results/*.json and nothing else.

python -m bench.tile_report
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from bench.cases import length_name
from bench.marked import replaced
from bench.plotting import COLOURS, GREY, HATCHES, STYLE, length_axis, line_style, time_axis, titled
from bench.results import PHASES_SUITE, RESULTS, Document, is_right, load
from bench.tables import Table, markdown, source, table_of

__all__ = ["DOCUMENT", "document_with", "write_tile_report"]

DOCUMENT = RESULTS.parent / "tilelang.md"
_FIGURES = RESULTS.parent / "figures"
_SUITES = ("tilelang", "tile_phases", PHASES_SUITE, "tile_host")

#: The phases of both kinds of kernel under common names.
_STEPS = {
    "first load": ("read", "sample"),
    "floor": ("floor",),
    "filter": ("filter",),
    "meet": ("count", "exchange", "gather"),
    "select": ("cut", "emit", "select"),
}


def _documents() -> dict[str, Document]:
    paths = [RESULTS / f"{suite}.json" for suite in _SUITES]
    return {path.stem: load(path) for path in paths if path.exists()}


def _latency(document: Document) -> Figure:
    figure, panel = plt.subplots(figsize=(6, 3.6))
    single = [m for m in document.measurements() if m.case.rows == 1 and is_right(m.answer)]
    for number, name in enumerate(dict.fromkeys(m.contender for m in single)):
        mine = {m.case.width: m.us for m in single if m.contender == name and m.us is not None}
        panel.plot(list(mine), list(mine.values()), label=name, **line_style(number))
    length_axis(panel, (m.case.width for m in single))
    time_axis(panel)
    panel.set(xlabel="length of the row", ylabel="microseconds")
    figure.legend(loc="outside lower center", ncols=3, fontsize=7, frameon=False, borderpad=1.2)
    return titled(figure, "One row, k = 2048, normal float32", [document])


def _steps(documents: dict[str, Document]) -> dict[int, dict[str, dict[str, float]]]:
    """By length and kernel: microseconds of each step, and of the whole launch as "launch"."""
    found: dict[int, dict[str, dict[str, float]]] = {}
    for suite in ("tile_phases", PHASES_SUITE):
        for result in documents[suite].results:
            case, us = result["case"], result["us"]
            if case["rows"] != 1:
                continue
            cluster = result.get("cluster")
            name = (
                "dsmem"
                if cluster is None
                else f"pipelined, cluster of {cluster}"
                if cluster > 1
                else "pipelined"
            )
            steps = {
                step: sum(us.get(phase, 0.0) for phase in phases) for step, phases in _STEPS.items()
            }
            found.setdefault(case["width"], {})[name] = steps | {"launch": result["launch_us"]}
    return {width: kernels for width, kernels in sorted(found.items()) if "dsmem" in kernels}


def _phase_figure(documents: dict[str, Document]) -> Figure:
    widths = _steps(documents)
    bars = [
        (f"{length_name(width)}  {name}", steps)
        for width, kernels in widths.items()
        for name, steps in sorted(kernels.items())
    ][::-1]
    labels = [label for label, _ in bars]
    figure, panel = plt.subplots(figsize=(7.5, 0.3 * len(bars) + 1.6))
    begin = [0.0] * len(bars)
    for i, step in enumerate(_STEPS):
        spent = [steps[step] for _, steps in bars]
        panel.barh(labels, spent, left=begin, label=step, color=COLOURS[i], hatch=HATCHES[i],
                   edgecolor="white")  # fmt: skip
        begin = [a + b for a, b in zip(begin, spent, strict=True)]
    around = [max(steps["launch"] - end, 0) for (_, steps), end in zip(bars, begin, strict=True)]
    panel.barh(labels, around, left=begin, label="launch and drain", color="white",
               edgecolor=GREY)  # fmt: skip
    panel.grid(axis="y", visible=False)
    panel.set_xlabel("microseconds")
    figure.legend(loc="outside lower center", ncols=6, frameon=False, fontsize=8, borderpad=2)
    used = [documents["tile_phases"], documents[PHASES_SUITE]]
    return titled(figure, "Where a launch spends its time, one row, k = 2048", used)


def _phase_table(documents: dict[str, Document]) -> Table:
    rows = [
        [
            length_name(width),
            name,
            *(f"{steps[step]:.2f}" for step in _STEPS),
            f"{max(0.0, steps['launch'] - sum(steps[step] for step in _STEPS)):.2f}",
            f"{steps['launch']:.2f}",
        ]
        for width, kernels in _steps(documents).items()
        for name, steps in sorted(kernels.items())
    ]
    return Table(["length", "kernel", *_STEPS, "launch and drain", "whole, us"], rows)


def _source(document: Document) -> str:
    return source(document.suite, document, "results/")


def _parts(documents: dict[str, Document]) -> dict[str, str]:
    """What goes between the markers, by their name."""
    parts = {}
    if "tilelang" in documents:
        shown = documents["tilelang"]
        parts["latency"] = "\n\n".join(
            ["![Latency](figures/tilelang.svg)", markdown(table_of(shown)), _source(shown)]
        )
    if "tile_phases" in documents and PHASES_SUITE in documents:
        parts["phases"] = "\n\n".join(
            [
                "![Phases](figures/tile_phases.svg)",
                markdown(_phase_table(documents)),
                _source(documents["tile_phases"]),
                _source(documents[PHASES_SUITE]),
            ]
        )
    if "tile_host" in documents:
        shown = documents["tile_host"]
        rows = [[f"`{r['call']}`", f"{r['median_ns']}", f"{r['p99_ns']}"] for r in shown.results]
        table = Table(["call", "median ns", "99th percentile ns"], rows)
        parts["host"] = "\n\n".join([markdown(table), _source(shown)])
    return parts


def document_with(text: str) -> str:
    """The document's text with all parts between markers made anew.

    Raises:
        ValueError: a marker is missing.
    """
    for name, part in _parts(_documents()).items():
        text = replaced(text, name, part, DOCUMENT.name)
    return text


def _save(figure: Figure, name: str) -> Path:
    path = _FIGURES / f"{name}.svg"
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return path


def write_tile_report() -> list[Path]:
    """Writes the document and its figures; returns the files."""
    documents = _documents()
    written = []
    with plt.rc_context(STYLE):
        if "tilelang" in documents:
            written.append(_save(_latency(documents["tilelang"]), "tilelang"))
        if "tile_phases" in documents and PHASES_SUITE in documents:
            written.append(_save(_phase_figure(documents), "tile_phases"))
    DOCUMENT.write_text(document_with(DOCUMENT.read_text()))
    return [*written, DOCUMENT]


if __name__ == "__main__":
    for path in write_tile_report():
        print(path)
