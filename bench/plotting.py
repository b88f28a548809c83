"""What all figures share: colours, axes, and where their data comes from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import matplotlib as mpl

mpl.use("Agg")  # no display is needed

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from bench.cases import length_name
from bench.results import Document
from bench.tables import source_line

__all__ = [
    "COLOURS", "DASHES", "GREY", "HATCHES", "MUTED", "STYLE",
    "length_axis", "line_style", "time_axis", "titled",
]  # fmt: skip

# Okabe and Ito's colours, which the colour-blind can tell apart; markers, dashes and hatches serve
# print without any.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
HATCHES = ("", "//", "..", "\\\\", "xx")
GREY = "#555555"
MUTED = "#BBBBBB"
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.")

STYLE: Any = {
    "figure.constrained_layout.use": True,
    "figure.dpi": 150,
    "font.size": 9,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.6,
    "svg.hashsalt": "tl_topk",
}


def line_style(number: int, *, bold: bool = False) -> dict[str, Any]:
    """How the line of that number looks: different from all others without colour too."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "marker": _MARKERS[number % len(_MARKERS)],
        "linestyle": DASHES[number // len(COLOURS) % len(DASHES)],
        "markersize": 4,
        "linewidth": 2 if bold else 1.2,
    }


def length_axis(panel: Axes, lengths: Iterable[int]) -> None:
    """Logarithmic, named as tables name lengths: 4K, 16K, 64K ..."""
    shown = sorted(set(lengths))
    panel.set_xscale("log", base=2)
    every = 2 if len(shown) > 5 else 1
    ticks = [length for length in shown if (length.bit_length() - 1) % every == 0]
    panel.set_xticks(ticks, [length_name(length) for length in ticks])
    panel.minorticks_off()


def time_axis(panel: Axes) -> None:
    """Logarithmic, with numbers that people read: 1, 2, 5, 10 ..."""
    panel.set_yscale("log")
    panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.yaxis.set_major_formatter("{x:g}")
    panel.yaxis.set_minor_locator(NullLocator())


def titled(figure: Figure, title: str, documents: Sequence[Document]) -> Figure:
    """With what the data was measured with in small print."""
    figure.suptitle(title, fontsize=11)
    sources = "\n".join(dict.fromkeys(source_line(document) for document in documents))
    figure.supxlabel(sources, x=0.995, ha="right", fontsize=5, color=GREY)
    return figure
