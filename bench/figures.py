"""Figures from results: PNG and SVG, made without a display, told apart without colour too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from bench import distributed_figures
from bench.cases import Case, length_name
from bench.published import best_peer, read_floor
from bench.results import HOST_SUITE, OURS, Document, Measurement, is_right
from bench.tables import by_case, source_line

__all__ = ["FIGURES", "draw"]

# Okabe and Ito's colours, which the colour-blind can tell apart; markers serve print without any.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_STYLE: Any = {
    "figure.constrained_layout.use": True,
    "figure.dpi": 150,
    "font.size": 9,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "tl_topk",
}
_K = 2048


def latency(documents: dict[str, Document]) -> Figure | None:
    """Microseconds over the length, one panel for each number of rows."""
    document = documents.get("grid") or documents.get("short")
    if document is None:
        return None
    measured = [m for m in document.measurements() if _is_plain(m.case)]
    all_rows = [rows for rows in (1, 4, 16, 64) if any(m.case.rows == rows for m in measured)]
    if not all_rows:
        return None
    names = sorted({m.contender for m in measured}, key=lambda name: (not _is_ours(name), name))
    figure, panels = plt.subplots(
        1, len(all_rows), figsize=(3 * len(all_rows) + 1, 4), sharey=True, squeeze=False
    )
    for panel, rows in zip(panels[0], all_rows, strict=True):
        here = [m for m in measured if m.case.rows == rows]
        for i, name in enumerate(names):
            _latency_line(panel, [m for m in here if m.contender == name], name, i)
        copy_speed = float(document.machine.get("copy_tb_per_s", 0))
        _reference_lines(panel, rows, sorted({m.case.width for m in here}), copy_speed)
        panel.set(title=f"{rows} row{'s' * (rows > 1)}", xlabel="scores in a row")
        _length_axis(panel, sorted({m.case.width for m in here}))
    panels[0][0].set_yscale("log")
    panels[0][0].yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panels[0][0].yaxis.set_major_formatter("{x:g}")
    panels[0][0].yaxis.set_minor_locator(NullLocator())
    panels[0][0].set_ylabel("microseconds a call")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    return _titled(figure, f"Exact top {_K} of float32 rows", document)


def _latency_line(panel: Axes, points: Sequence[Measurement], name: str, number: int) -> None:
    right = {m.case.width: m.us for m in points if m.us is not None and is_right(m.answer)}
    panel.plot(
        list(right),
        list(right.values()),
        label=name,
        color=_COLOURS[number % len(_COLOURS)],
        marker=_MARKERS[number % len(_MARKERS)],
        markersize=4,
        linewidth=2 if _is_ours(name) else 1.2,
    )


def _reference_lines(panel: Axes, rows: int, widths: Sequence[int], copy_tb_per_s: float) -> None:
    """The best of others, and what the memory allows."""
    best = {width: best_peer(rows, width, _K) for width in widths}
    known = {width: peer[1] for width, peer in best.items() if peer is not None}
    panel.plot(
        list(known), list(known.values()), label="best peer, measured earlier", linestyle="none",
        marker="x", color="#555555",
    )  # fmt: skip
    floor = read_floor() if rows == 1 else {}
    measured = {width: us for width, us in floor.items() if width in widths}
    panel.plot(
        list(measured), list(measured.values()), label="reading the row once, measured earlier",
        linestyle="--", color="#555555",
    )  # fmt: skip
    if copy_tb_per_s:
        bytes_us = {width: Case(rows, width).bytes / copy_tb_per_s / 1e6 for width in widths}
        shown = {width: us for width, us in bytes_us.items() if us > 1}  # less is all latency
        panel.plot(
            list(shown), list(shown.values()), label="its bytes at a device copy's speed",
            linestyle=":", color="#555555",
        )  # fmt: skip


def speedup(documents: dict[str, Document]) -> Figure | None:
    """How many times faster than torch.topk, over rows and length."""
    document = documents.get("grid") or documents.get("short")
    if document is None:
        return None
    gains: dict[tuple[int, int], float] = {}
    for case, measured in by_case(document.measurements()).items():
        ours = next((m.us for name, m in measured.items() if _is_ours(name)), None)
        other = measured.get("torch.topk")
        if _is_plain(case) and ours and other is not None and other.us:
            gains[case.rows, case.width] = other.us / ours
    if not gains:
        return None
    all_rows = sorted({rows for rows, _ in gains})
    widths = sorted({width for _, width in gains})
    grid = np.array([[gains.get((rows, width), np.nan) for width in widths] for rows in all_rows])
    figure, panel = plt.subplots(figsize=(0.75 * len(widths) + 2, 0.45 * len(all_rows) + 1.8))
    scale = LogNorm(float(np.nanmin(grid)), float(np.nanmax(grid)) * 1.01)
    image = panel.imshow(grid, cmap="cividis", norm=scale, aspect="auto", origin="lower")
    for (y, x), gain in np.ndenumerate(grid):
        if np.isfinite(gain):
            dark = scale(gain) < 0.55
            panel.text(x, y, f"{gain:.1f}", ha="center", va="center", fontsize=8,
                       color="white" if dark else "black")  # fmt: skip
    panel.set_xticks(range(len(widths)), [length_name(width) for width in widths])
    panel.set_yticks(range(len(all_rows)), [str(rows) for rows in all_rows])
    panel.set(xlabel="scores in a row", ylabel="rows")
    panel.grid(False)
    colours = figure.colorbar(image, label="times faster than torch.topk", pad=0.02)
    colours.ax.yaxis.set_major_formatter("{x:g}")
    colours.ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    colours.ax.minorticks_off()
    return _titled(figure, f"Times faster than torch.topk, k = {_K}, float32", document)


def host(documents: dict[str, Document]) -> Figure | None:
    """What each call costs the CPU."""
    document = documents.get(HOST_SUITE)
    if document is None or not document.results:
        return None
    calls = document.results[::-1]
    figure, panel = plt.subplots(figsize=(7, 0.33 * len(calls) + 1.4))
    median = [result["median_ns"] / 1e3 for result in calls]
    tail = [max(0.0, (r["p99_ns"] - r["median_ns"]) / 1e3) for r in calls]
    ours = [result["call"].startswith(("plan", "topk")) for result in calls]
    panel.barh(
        [result["call"] for result in calls],
        median,
        color=[_COLOURS[0] if is_ours else "#BBBBBB" for is_ours in ours],
        hatch=["" if is_ours else "//" for is_ours in ours],
        edgecolor="white",
    )
    panel.errorbar(median, range(len(calls)), xerr=[[0.0] * len(tail), tail], fmt="none",
                   ecolor="black", capsize=3, linewidth=0.8)  # fmt: skip
    # Slow outliers, such as a garbage collection, would squeeze the bars: they are in the table.
    panel.set_xlim(0, 1.6 * max(median))
    panel.grid(axis="y", visible=False)
    panel.set_xlabel("microseconds of the CPU a call: median, and 99th percentile")
    return _titled(figure, "What a call costs the CPU (ours in blue)", document)


def phases(documents: dict[str, Document]) -> Figure | None:
    """The time of each phase inside a launch: results of {"case": NAME, "us": {PHASE: TIME}}."""
    document = documents.get("phases")
    if document is None or not document.results:
        return None
    launches = document.results[::-1]
    figure, panel = plt.subplots(figsize=(8, 0.45 * len(launches) + 1.8))
    begin = np.zeros(len(launches))
    for i, name in enumerate(launches[0]["us"]):
        spent = np.array([launch["us"][name] for launch in launches])
        hatch = ("", "//", "..", "xx")[i // len(_COLOURS) % 4]
        panel.barh([launch["case"] for launch in launches], spent, left=begin, label=name,
                   color=_COLOURS[i % len(_COLOURS)], hatch=hatch, edgecolor="white")  # fmt: skip
        begin += spent
    panel.grid(axis="y", visible=False)
    panel.set_xlabel("microseconds since the launch's first instruction")
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    return _titled(figure, "Where a launch spends its time", document)


FIGURES: dict[str, Callable[[dict[str, Document]], Figure | None]] = {
    "latency": latency,
    "speedup": speedup,
    "host": host,
    "phases": phases,
    "distributed": lambda documents: _sourced(
        distributed_figures.measured(documents), documents.get("distributed")
    ),
    "scaling": lambda documents: _sourced(
        distributed_figures.projected(documents), documents.get("scaling")
    ),
}


def draw(documents: dict[str, Document], directory: Path) -> list[Path]:
    """Every figure that the results suffice for; the files written."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name, make in FIGURES.items():
        with plt.rc_context(_STYLE):
            figure = make(documents)
            if figure is None:
                continue
            for kind, metadata in (("png", {}), ("svg", {"Date": None})):
                path = directory / f"{name}.{kind}"
                figure.savefig(path, metadata=metadata)
                written.append(path)
            plt.close(figure)
    return written


def _is_ours(name: str) -> bool:
    return name.startswith(OURS)


def _is_plain(case: Case) -> bool:
    return case == Case(case.rows, case.width, _K)


def _length_axis(panel: Axes, widths: Sequence[int]) -> None:
    panel.set_xscale("log", base=2)
    shown = [width for width in widths if width & (width - 1) == 0][::2]
    panel.set_xticks(shown, [length_name(width) for width in shown])
    panel.minorticks_off()


def _titled(figure: Figure, title: str, document: Document) -> Figure:
    figure.suptitle(title, fontsize=11)
    _sourced(figure, document)
    return figure


def _sourced(figure: Figure | None, document: Document | None) -> Figure | None:
    """With a line that says where its numbers come from."""
    if figure is None or document is None:
        return None
    figure.supxlabel(source_line(document), x=0.995, ha="right", fontsize=5, color="#555555")
    return figure
