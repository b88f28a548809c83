"""Figures of the distributed top-k: measured on two GPUs, and projected to more."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from bench.cases import length_name
from bench.distributed_tables import by_shape, counts, whole_calls
from bench.plotting import length_axis, line_style, time_axis, titled
from bench.results import OURS, Document

__all__ = ["measured", "projected"]

_K = 2048
_BELOW: Any = {"loc": "outside lower center", "frameon": False}


def measured(documents: dict[str, Document]) -> Figure | None:
    """Microseconds over the length of the whole row, one panel for each number of rows."""
    document = documents.get("distributed")
    if document is None:
        return None
    shapes = {shape: found for shape, found in by_shape(document).items() if shape[2] == _K}
    all_rows = sorted({rows for rows, _, _ in shapes})
    if not all_rows:
        return None
    figure, panels = _panels(all_rows, 3)
    for panel, rows in zip(panels, all_rows, strict=True):
        here = {width: found for (r, width, _), found in shapes.items() if r == rows}
        for number, name in enumerate(whole_calls(document)):
            points = {
                width: found[name]["us"]
                for width, found in sorted(here.items())
                if name in found and counts(found[name])
            }
            bold = name.startswith(f"{OURS} gather")
            style = line_style(number, bold=bold)
            panel.plot(list(points), list(points.values()), label=name, **style)
        panel.set_xlabel("scores in a whole row")
        length_axis(panel, here)
    panels[0].set_ylabel("microseconds a call")
    figure.legend(*panels[0].get_legend_handles_labels(), ncols=3, **_BELOW)
    return titled(figure, f"Exact top {_K} of float32 rows divided over two GPUs", [document])


def projected(documents: dict[str, Document]) -> Figure | None:
    """Microseconds over the number of ranks, one line for each context."""
    document = documents.get("scaling")
    if document is None or not document.results:
        return None
    all_rows = sorted({result["rows"] for result in document.results})
    figure, panels = _panels(all_rows, 4)
    for panel, rows in zip(panels, all_rows, strict=True):
        here = [result for result in document.results if result["rows"] == rows]
        for number, context in enumerate(sorted({result["context"] for result in here})):
            points = {r["ranks"]: r["us"] for r in here if r["context"] == context}
            label = f"{length_name(context)} scores in a whole row"
            panel.plot(list(points), list(points.values()), label=label, **line_style(number))
        ranks = sorted({result["ranks"] for result in here})
        panel.set_xlabel("ranks")
        panel.set_xscale("log", base=2)
        panel.set_xticks(ranks, [str(count) for count in ranks])
    panels[0].set_ylabel("microseconds a step")
    figure.legend(*panels[0].get_legend_handles_labels(), ncols=2, **_BELOW)
    title = "Projected: collectives as measured on two GPUs, beyond them as assumed"
    return titled(figure, title, [document])


def _panels(all_rows: list[int], width: int) -> tuple[Figure, list[Any]]:
    """One for each number of rows, side by side."""
    size = (width * len(all_rows) + 1, 4)
    figure, panels = plt.subplots(1, len(all_rows), figsize=size, sharey=True, squeeze=False)
    for panel, rows in zip(panels[0], all_rows, strict=True):
        panel.set_title(f"{rows} row{'s' * (rows > 1)}")
    time_axis(panels[0][0])
    return figure, list(panels[0])
