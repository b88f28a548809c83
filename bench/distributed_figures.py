"""Figures of the distributed top-k: measured on two GPUs, and projected to more."""

from __future__ import annotations

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from bench.cases import length_name
from bench.distributed_tables import by_shape
from bench.results import Document, is_right

__all__ = ["measured", "projected"]

_K = 2048
_STYLES = ("o-", "s-", "^--", "D--", "x:")


def measured(documents: dict[str, Document]) -> Figure | None:
    """Microseconds over the length of the whole row, one panel for each number of rows."""
    document = documents.get("distributed")
    if document is None:
        return None
    shapes = {shape: found for shape, found in by_shape(document).items() if shape[2] == _K}
    all_rows = sorted({rows for rows, _, _ in shapes})
    if not all_rows:
        return None
    names = list(dict.fromkeys(name for found in shapes.values() for name in found))
    figure, panels = plt.subplots(
        1, len(all_rows), figsize=(3 * len(all_rows) + 1, 4), sharey=True, squeeze=False
    )
    for panel, rows in zip(panels[0], all_rows, strict=True):
        here = {width: found for (r, width, _), found in shapes.items() if r == rows}
        whole = [name for name in names if ": " not in name]
        for name, style in zip(whole, _STYLES, strict=False):
            points = {
                width: found[name]["us"]
                for width, found in here.items()
                if name in found and (not found[name]["answer"] or is_right(found[name]["answer"]))
            }
            panel.plot(sorted(points), [points[w] for w in sorted(points)], style, label=name)
        panel.set(title=f"{rows} row{'s' * (rows > 1)}", xlabel="scores in a whole row")
        panel.set_xscale("log", base=2)
        panel.set_xticks(sorted(here), [length_name(width) for width in sorted(here)])
        panel.xaxis.set_minor_locator(NullLocator())
        panel.set_yscale("log")
        panel.yaxis.set_major_formatter("{x:g}")
    panels[0][0].set_ylabel("microseconds a call")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle(f"Exact top {_K} of float32 rows divided over two GPUs", fontsize=11)
    return figure


def projected(documents: dict[str, Document]) -> Figure | None:
    """Microseconds over the number of ranks, one line for each context."""
    document = documents.get("scaling")
    if document is None or not document.results:
        return None
    all_rows = sorted({result["rows"] for result in document.results})
    figure, panels = plt.subplots(
        1, len(all_rows), figsize=(4 * len(all_rows) + 1, 4), sharey=True, squeeze=False
    )
    for panel, rows in zip(panels[0], all_rows, strict=True):
        here = [result for result in document.results if result["rows"] == rows]
        contexts = sorted({result["context"] for result in here})
        for context, style in zip(contexts, _STYLES, strict=False):
            points = {r["ranks"]: r["us"] for r in here if r["context"] == context}
            panel.plot(list(points), list(points.values()), style, label=length_name(context))
        ranks = sorted({result["ranks"] for result in here})
        panel.set(title=f"{rows} row{'s' * (rows > 1)}", xlabel="ranks")
        panel.set_xscale("log", base=2)
        panel.set_xticks(ranks, [str(count) for count in ranks])
        panel.set_yscale("log")
        panel.yaxis.set_major_formatter("{x:g}")
    panels[0][0].set_ylabel("microseconds a step, projected")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False,
                  title="scores in a whole row")  # fmt: skip
    figure.suptitle("Select measured; collectives from two GPUs, and assumed beyond", fontsize=11)
    return figure
