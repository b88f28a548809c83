"""Figures of what lies inside and around a launch: its phases, its fusion, its cost on the CPU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.plotting import (
    COLOURS,
    DASHES,
    GREY,
    HATCHES,
    MUTED,
    length_axis,
    line_style,
    time_axis,
    titled,
)
from bench.results import (
    FUSED_SUITE,
    HOST_SUITE,
    PHASES_SUITE,
    Document,
    Scoring,
    is_our_call,
    is_right,
)

__all__ = ["crossings", "crossover", "host", "phases"]

_READABLE_US = 0.35  # a bar as long has room for a number
_PADDING = 1.0  # of legends above the small print


def host(documents: dict[str, Document]) -> Figure | None:
    """What each call costs the CPU."""
    document = documents.get(HOST_SUITE)
    if document is None or not document.results:
        return None
    calls = document.calls()[::-1]
    figure, panel = plt.subplots(figsize=(8, 0.25 * len(calls) + 1.4))
    median = [result["median_ns"] / 1e3 for result in calls]
    tail = [max(result["p99_ns"], result["median_ns"]) / 1e3 for result in calls]
    ours = [is_our_call(result["call"]) for result in calls]
    # Slow outliers, such as a garbage collection, would squeeze the bars: they are in the numbers.
    end = 1.6 * max(median)
    panel.barh(
        [result["call"] for result in calls],
        median,
        color=[COLOURS[0] if is_ours else MUTED for is_ours in ours],
        hatch=["" if is_ours else "//" for is_ours in ours],
        edgecolor="white",
    )
    panel.plot(tail, range(len(calls)), linestyle="none", marker="|", color="black", markersize=7)
    panel.hlines(range(len(calls)), median, np.minimum(tail, end), color="black", linewidth=0.8)
    panel.set(xlim=(0, end), ylim=(-0.7, len(calls) + 0.4))
    numbers = [f"{us:6.1f} {last:6.1f}" for us, last in zip(median, tail, strict=True)]
    right = panel.secondary_yaxis("right")
    right.set_yticks(range(len(calls) + 1), [*numbers, "median   99 %"], family="monospace")
    right.tick_params(length=0, labelsize=7)
    right.spines["right"].set_visible(False)
    panel.grid(axis="y", visible=False)
    panel.set_xlabel("microseconds of the CPU a call: median, and 99th percentile (|)")
    return titled(figure, "What a call costs the CPU (ours in solid blue)", [document])


def phases(documents: dict[str, Document]) -> Figure | None:
    """The time of each phase inside a launch, and what the launch takes around them."""
    document = documents.get(PHASES_SUITE)
    if document is None or not document.results:
        return None
    launches = document.phases()[::-1]
    names = list(dict.fromkeys(name for launch in reversed(launches) for name in launch.us))
    labels = [launch.case.shape for launch in launches]
    figure, panel = plt.subplots(figsize=(7.5, 0.42 * len(launches) + 1.7))
    begin = np.zeros(len(launches))
    for i, name in enumerate(names):
        spent = np.array([launch.us.get(name, 0.0) for launch in launches])
        panel.barh(labels, spent, left=begin, label=name, color=COLOURS[i % len(COLOURS)],
                   hatch=HATCHES[i % len(HATCHES)], edgecolor="white")  # fmt: skip
        _name_bars(panel, begin.tolist(), spent.tolist())
        begin += spent
    around = (np.array([launch.launch_us for launch in launches]) - begin).clip(0)
    panel.barh(labels, around, left=begin, label="launch and drain", color="white",
               edgecolor=GREY, linewidth=0.8)  # fmt: skip
    _name_bars(panel, begin.tolist(), around.tolist())
    panel.grid(axis="y", visible=False)
    panel.set_xlabel("microseconds")
    figure.legend(loc="outside lower center", borderpad=_PADDING, ncols=4, frameon=False)
    ks = sorted({launch.case.k for launch in launches})
    title = f"Where a launch spends its time, k = {', '.join(map(str, ks))}"
    return titled(figure, title, [document])


def _name_bars(panel: Axes, begins: Sequence[float], lengths: Sequence[float]) -> None:
    """The time in each bar that has room for it."""
    for y, (begin, length) in enumerate(zip(begins, lengths, strict=True)):
        if length >= _READABLE_US:
            text = panel.text(begin + length / 2, y, f"{length:.1f}", ha="center", va="center",
                              fontsize=7)  # fmt: skip
            text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.8})


def crossover(documents: dict[str, Document]) -> Figure | None:
    """Fused scoring and selection against one after the other, over the keys."""
    document = documents.get(FUSED_SUITE)
    if document is None or not document.results:
        return None
    right = [s for s in document.scorings() if is_right(s.answer) and s.sequences == 1]
    if not right:
        return None
    kinds = sorted({(s.heads, s.k) for s in right})
    figure, panels = plt.subplots(
        2, len(kinds), figsize=(3.6 * len(kinds) + 1, 5.6), sharex=True, sharey="row",
        squeeze=False, height_ratios=(3, 2),
    )  # fmt: skip
    for (above, below), (heads, k) in zip(panels.T, kinds, strict=True):
        here = [s for s in right if (s.heads, s.k) == (heads, k)]
        _times_of_ways(above, here)
        _gains_of_fusing(below, here)
        above.set_title(f"{heads} heads, k = {k}")
        below.set_xlabel("keys")
    length_axis(panels[0][0], {s.keys for s in right})
    time_axis(panels[0][0])
    panels[0][0].set_ylabel("microseconds")
    panels[1][0].set_ylabel("separate / fused")
    handles: dict[str, Artist] = {}
    for panel in panels.flat:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(
        list(handles.values()), list(handles), loc="outside lower center", borderpad=_PADDING,
        ncols=2, frameon=False,
    )  # fmt: skip
    return titled(figure, "Scores and selection in one kernel, or one after the other", [document])


def _times_of_ways(panel: Axes, scorings: Sequence[Scoring]) -> None:
    """A line for each way (colour and marker) and number of queries (dashes)."""
    same = {"as dispatched"}  # as one of the others
    ways = sorted({s.way for s in scorings} - same, key=_place)
    for number, way in enumerate(ways):
        for dash, queries in enumerate(sorted({s.queries for s in scorings})):
            us = {s.keys: s.us for s in scorings if (s.way, s.queries) == (way, queries)}
            if not us:
                continue
            style = line_style(number, bold=way == "fused") | {"linestyle": DASHES[dash % 3]}
            panel.plot(
                *zip(*sorted(us.items()), strict=True), label=_line_name(way, queries), **style
            )


def _gains_of_fusing(panel: Axes, scorings: Sequence[Scoring]) -> None:
    """How much longer one after the other takes; above 1 fusing pays."""
    panel.axhline(1, color=GREY, linewidth=1.5, alpha=0.5)
    even = []
    for number, queries in enumerate(sorted({s.queries for s in scorings})):
        us = {(s.way, s.keys): s.us for s in scorings if s.queries == queries}
        gains = {
            keys: us["separate", keys] / us["fused", keys]
            for keys in sorted({s.keys for s in scorings})
            if ("separate", keys) in us and ("fused", keys) in us
        }
        panel.plot(
            list(gains), list(gains.values()), label=_line_name("gain", queries), color="black",
            linestyle=DASHES[number % 3], marker=".", linewidth=1.2,
        )  # fmt: skip
        for keys in crossings(gains):
            panel.plot(keys, 1, marker="o", markersize=7, color="black", fillstyle="none")
            even.append(f"even at {keys / 1024:.0f}K, {_count(queries)}")
    panel.text(0.02, 0.97, "\n".join(even), transform=panel.transAxes, va="top", fontsize=7)


def crossings(gains: dict[int, float]) -> list[float]:
    """Where a gain crosses 1, by straight lines between the points over the keys' logarithm."""
    found = []
    for (left, before), (right, after) in pairwise(sorted(gains.items())):
        if (before - 1) * (after - 1) < 0:
            part = (1 - before) / (after - before)
            found.append(2 ** (math.log2(left) + part * (math.log2(right) - math.log2(left))))
    return found


def _place(way: str) -> tuple[int, str]:
    known = ("fused", "separate", "scoring alone")
    return known.index(way) if way in known else len(known), way


def _line_name(way: str, queries: int) -> str:
    return f"{way}, {_count(queries)}"


def _count(queries: int) -> str:
    return f"{queries} quer{'ies' if queries > 1 else 'y'}"
