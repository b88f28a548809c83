"""Figures from results: PNG and SVG, made without a display, told apart without colour too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from bench import distributed_figures, regret_figures
from bench.cases import Case, length_name
from bench.figures_inside import crossover, host, phases
from bench.plotting import GREY, STYLE, length_axis, line_style, time_axis, titled
from bench.published import best_peer, read_floor
from bench.results import OURS, Document, Measurement, is_right
from bench.tables import by_case

__all__ = ["FIGURES", "draw"]

_K = 2048
_ROWS = (1, 4, 16, 64)  # a panel each

#: By rows and length.
Gains: TypeAlias = dict[tuple[int, int], float]


def latency(documents: dict[str, Document]) -> Figure | None:
    """Microseconds over the length, one panel for each number of rows."""
    document = _over_shapes(documents)
    if document is None:
        return None
    measured = [m for m in document.measurements() if _is_plain(m.case)]
    all_rows = [rows for rows in _ROWS if any(m.case.rows == rows for m in measured)]
    names = sorted(
        {m.contender for m in measured if m.us is not None},
        key=lambda name: (not _is_ours(name), name),
    )
    across = min(2, len(all_rows))
    down = -(-len(all_rows) // across)
    figure, panels = plt.subplots(
        down, across, figsize=(3.6 * across + 0.6, 2.7 * down + 1.3), sharex=True, sharey=True,
        squeeze=False,
    )  # fmt: skip
    for panel in panels.flat[len(all_rows) :]:
        panel.set_visible(False)
    copy_speed = float(document.machine.get("copy_tb_per_s", 0))
    for panel, rows in zip(panels.flat, all_rows, strict=False):
        here = [m for m in measured if m.case.rows == rows]
        for i, name in enumerate(names):
            right = {m.case.width: m.us for m in here if m.contender == name and _counts(m)}
            style = line_style(i, bold=_is_ours(name))
            panel.plot(list(right), list(right.values()), label=name, zorder=5 - i / 10, **style)
        _reference_lines(panel, rows, sorted({m.case.width for m in here}), copy_speed)
        panel.set_title(f"{rows} row{'s' * (rows > 1)}", fontsize=9)
    length_axis(panels[0][0], {m.case.width for m in measured})
    time_axis(panels[0][0])
    for panel in panels[-1]:
        panel.set_xlabel("scores in a row")
    for panel in panels[:, 0]:
        panel.set_ylabel("microseconds a call")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=2 if len(labels) < 8 else 3,
        frameon=False, fontsize=8,
    )  # fmt: skip
    return titled(figure, f"Exact top {_K} of float32 rows", [document])


def _reference_lines(panel: Axes, rows: int, widths: Sequence[int], copy_tb_per_s: float) -> None:
    """The best of others, and what the memory allows."""
    best = {width: best_peer(rows, width, _K) for width in widths}
    known = {width: peer[1] for width, peer in best.items() if peer is not None}
    panel.plot(
        list(known), list(known.values()), label="best peer, measured earlier",
        linestyle="none", marker="x", color="black", zorder=6,
    )  # fmt: skip
    floor = read_floor()
    measured = {width: floor[rows * width] for width in widths if rows * width in floor}
    panel.plot(
        list(measured), list(measured.values()), linestyle="--", color=GREY,
        label="floor: reading once, measured earlier",
    )  # fmt: skip
    # What a launch itself takes hides the bytes of short rows.
    bytes_us = {width: Case(rows, width).bytes / max(copy_tb_per_s, 1e-9) / 1e6 for width in widths}
    shown = {width: us for width, us in bytes_us.items() if copy_tb_per_s and us > 1}
    panel.plot(
        list(shown), list(shown.values()), label="floor: bytes at a device copy's speed",
        linestyle=":", color=GREY,
    )  # fmt: skip


def speedup(documents: dict[str, Document]) -> Figure | None:
    """How many times faster than others, over rows and length."""
    document = _over_shapes(documents)
    if document is None:
        return None
    over_torch: Gains = {}
    over_peers: Gains = {}
    over_earlier: Gains = {}
    for case, measured in by_case(document.measurements()).items():
        if not _is_plain(case):
            continue
        us = {m.contender: m.us for m in measured.values() if m.us and is_right(m.answer)}
        ours = [us.pop(name) for name in list(us) if _is_ours(name)]
        if not ours:
            continue
        cell = case.rows, case.width
        if "torch.topk" in us:
            over_torch[cell] = us.pop("torch.topk") / ours[0]
        if us:
            over_peers[cell] = min(us.values()) / ours[0]
        if peer := best_peer(*cell, _K):
            over_earlier[cell] = peer[1] / ours[0]
    maps = {
        "torch.topk, in the same run": over_torch,
        "the best peer, in the same run": over_peers,
        "the best peer, measured earlier": over_earlier,
    }
    maps = {name: gains for name, gains in maps.items() if gains}
    if not maps:
        return None
    cells = [cell for gains in maps.values() for cell in gains]
    all_rows = sorted({rows for rows, _ in cells})
    widths = sorted({width for _, width in cells})
    figure, panels = plt.subplots(
        len(maps),
        1,
        figsize=(0.6 * len(widths) + 2, len(maps) * (0.27 * len(all_rows) + 0.9) + 0.6),
        squeeze=False,
        sharex=True,
    )
    for panel, (name, gains) in zip(panels[:, 0], maps.items(), strict=True):
        _heat_map(figure, panel, gains, all_rows, widths)
        panel.set_title(f"than {name}", fontsize=9)
        panel.set_ylabel("rows")
    panels[-1][0].set_xlabel("scores in a row")
    return titled(figure, f"Times faster, k = {_K}, float32", [document])


def _heat_map(
    figure: Figure,
    panel: Axes,
    gains: Gains,
    all_rows: Sequence[int],
    widths: Sequence[int],
) -> None:
    grid = np.array([[gains.get((rows, width), np.nan) for width in widths] for rows in all_rows])
    low, high = min(gains.values()), max(gains.values())
    scale = LogNorm(low / 1.01, high * 1.01)
    image = panel.imshow(grid, cmap="cividis", norm=scale, aspect="auto", origin="lower")
    painted = image.to_rgba(grid)
    for (y, x), gain in np.ndenumerate(grid):
        if np.isfinite(gain):
            panel.text(x, y, f"{gain:.1f}", ha="center", va="center", fontsize=8,
                       color=_readable_on(painted[y, x].tolist()),
                       fontweight="bold" if gain < 1 else "normal")  # fmt: skip
    panel.set_xticks(range(len(widths)), [length_name(width) for width in widths], fontsize=8)
    panel.set_yticks(range(len(all_rows)), [str(rows) for rows in all_rows])
    panel.grid(False)
    colours = figure.colorbar(image, pad=0.02)
    colours.ax.yaxis.set_major_formatter("{x:g}")
    colours.ax.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
    colours.ax.minorticks_off()


def _readable_on(rgba: Sequence[float]) -> str:
    """Black or white, whichever stands out more against a colour."""
    linear = [part**2.2 for part in rgba[:3]]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "black" if luminance > 0.18 else "white"


FIGURES: dict[str, Callable[[dict[str, Document]], Figure | None]] = {
    "latency": latency,
    "speedup": speedup,
    "crossover": crossover,
    "intensity": regret_figures.intensity,
    "regret": regret_figures.regret,
    "phases": phases,
    "host": host,
    "distributed": distributed_figures.measured,
    "scaling": distributed_figures.projected,
}


def draw(documents: dict[str, Document], directory: Path) -> list[Path]:
    """Every figure that the results suffice for; the files written."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name, make in FIGURES.items():
        with plt.rc_context(STYLE):
            figure = make(documents)
            if figure is None:
                continue
            for kind, metadata in (("png", {}), ("svg", {"Date": None})):
                path = directory / f"{name}.{kind}"
                figure.savefig(path, metadata=metadata)
                written.append(path)
            plt.close(figure)
    return written


def _over_shapes(documents: dict[str, Document]) -> Document | None:
    """The grid, or what else covers rows and lengths."""
    for name in ("grid", "short"):
        document = documents.get(name)
        if document is not None and any(_is_plain(m.case) for m in document.measurements()):
            return document
    return None


def _is_ours(name: str) -> bool:
    return name.startswith(OURS)


def _counts(m: Measurement) -> bool:
    """A wrong answer's time is no time."""
    return m.us is not None and is_right(m.answer)


def _is_plain(case: Case) -> bool:
    return case == Case(case.rows, case.width, _K)
