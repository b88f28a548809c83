"""Figures of recorded contests: where fusing pays, and what choices cost."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from bench.cases import length_name
from bench.contest import Contest
from bench.plotting import GREY, line_style, titled
from bench.regret_tables import WITHIN, regrets
from bench.results import READY_SUITE, SCORED_SUITE, Document
from tl_topk.dispatch import model, rule

__all__ = ["intensity", "regret"]


def intensity(documents: dict[str, Document]) -> Figure | None:
    """Scores first by one kernel: a panel for heads x queries of a sequence."""
    document = documents.get(SCORED_SUITE)
    if document is None or not document.results:
        return None
    contests = [Contest.from_dict(result) for result in document.results]
    kinds = sorted({(c.question.scored.heads, c.question.scored.queries)
                    for c in contests if c.question.scored is not None})  # fmt: skip
    heads, queries = sorted({h for h, _ in kinds}), sorted({n for _, n in kinds})
    widths = sorted({c.question.width for c in contests})
    size = max(2.3 * len(heads) + 1.2, 5.8), max(1.7 * len(queries) + 1.2, 3.6)
    figure, panels = plt.subplots(
        len(queries), len(heads), figsize=size,
        sharex=True, sharey=True, squeeze=False,
    )  # fmt: skip
    image = None
    for panels_of_row, asked in zip(panels, queries, strict=True):
        for panel, head in zip(panels_of_row, heads, strict=True):
            gains = {
                (c.question.rows // asked, c.question.width):
                    c.us["dsmem after scores"] / c.us["fused"]
                for c in contests
                if c.question.scored is not None
                and (c.question.scored.heads, c.question.scored.queries) == (head, asked)
                and not c.wrong
            }  # fmt: skip
            sequences = sorted({
                c.question.rows // c.question.scored.queries
                for c in contests if c.question.scored is not None
            })  # fmt: skip
            grid = np.full((len(sequences), len(widths)), np.nan)
            for (rows, width), gain in gains.items():
                grid[sequences.index(rows), widths.index(width)] = gain
            image = panel.imshow(
                grid, norm=LogNorm(0.5, 2), cmap="PuOr", aspect="auto", origin="lower"
            )
            for (y, x), gain in np.ndenumerate(grid):
                if not np.isnan(gain):
                    # Bold and underlined by a frame where fusing pays, without colour too.
                    weight = "bold" if gain > 1 else "normal"
                    panel.text(x, y, f"{gain:.2f}", ha="center", va="center", fontsize=6.5,
                               weight=weight, color="white" if abs(np.log2(gain)) > 0.7
                               else "black")  # fmt: skip
            panel.set_xticks(range(len(widths)), [length_name(width) for width in widths])
            panel.set_yticks(range(len(sequences)), [str(n) for n in sequences])
            panel.grid(visible=False)
            queries_of_it = f"{asked} quer{'ies' if asked > 1 else 'y'} a sequence"
            panel.set_title(f"{head} heads, {queries_of_it}", fontsize=8)
    for panel in panels[-1]:
        panel.set_xlabel("keys")
    for panel in panels[:, 0]:
        panel.set_ylabel("sequences")
    assert image is not None
    bar = figure.colorbar(image, ax=panels, shrink=0.8, ticks=[0.5, 0.7, 1, 1.4, 2])
    bar.ax.set_yticklabels(["0.5", "0.7", "1", "1.4", "2"])
    bar.ax.minorticks_off()
    bar.set_label("scores first / fused; fusing pays above 1", fontsize=8)
    return titled(figure, "Where it pays to select while scoring", [document])


def regret(documents: dict[str, Document]) -> Figure | None:
    """The share of problems over what the choice costs more than the best candidate."""
    shown = [documents[name] for name in (READY_SUITE, SCORED_SUITE) if name in documents]
    shown = [document for document in shown if document.results]
    if not shown:
        return None
    figure, panel = plt.subplots(figsize=(5.2, 3.2))
    number = 0
    for document in shown:
        # For scores that lie ready the rule answers as the model does.
        for policy in (model,) if document.suite == READY_SUITE else (model, rule):
            ratios = np.sort([each.ratio for each in regrets(document, policy)])
            share = np.arange(1, len(ratios) + 1) / len(ratios) * 100
            what = "ready scores" if document.suite == READY_SUITE else "scores made first"
            style = line_style(number, bold=policy is model)
            style["markevery"] = max(len(ratios) // 8, 1)
            panel.step((ratios - 1) * 100, share, where="post", label=f"{policy.__name__}, {what}",
                       **style)  # fmt: skip
            number += 1
    panel.axvline((WITHIN - 1) * 100, color=GREY, linewidth=1, linestyle=":")
    panel.axhline(95, color=GREY, linewidth=1, linestyle=":")
    panel.set_xlim(-1, 35)
    panel.set_ylim(50, 101)
    panel.set_xlabel("% above the best candidate")
    panel.set_ylabel("% of problems")
    panel.legend(frameon=False, fontsize=8)
    return titled(figure, "What the dispatcher's choices cost", shown)
