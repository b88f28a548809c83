"""``tl-topk explain``."""

from __future__ import annotations

from typing import Any

import click
from rich.console import JustifyMethod
from rich.table import Table

from tl_topk.cli.common import json_option, print_json, show
from tl_topk.dispatch.decision import IN_WORDS
from tl_topk.explain import Explanation
from tl_topk.explain import explain as ask
from tl_topk.problem import DTYPES, KEY_FORMATS, ORDERS

__all__ = ["explain"]


@click.command()
@click.option("--rows", type=int, required=True, help="Of scores; with --heads, of queries.")
@click.option("--length", type=int, required=True, help="Of a row.")
@click.option("--k", "-k", type=int, required=True)
@click.option("--dtype", type=click.Choice(DTYPES), default="float32", show_default=True)
@click.option("--order", type=click.Choice(ORDERS), default="any", show_default=True)
@click.option("--values", is_flag=True, help="Values are wanted besides indices.")
@click.option("--heads", type=int, help="Of the indexer that makes the scores first.")
@click.option("--dim", type=int, default=128, show_default=True, help="Of a head.")
@click.option("--next-n", type=int, default=1, show_default=True, help="Queries of a sequence.")
@click.option("--paged", is_flag=True, help="The keys lie on pages.")
@click.option("--key-format", type=click.Choice(KEY_FORMATS), default="float8", show_default=True)
@click.option("--policy", help="rule, model, measured, fixed:BACKEND or MODULE:FUNCTION.")
@click.option("--device", help="cpu, cuda, cuda:1, or a GPU that need not be here, such as h200.")
@json_option
def explain(rows: int, length: int, k: int, as_json: bool, **options: Any) -> None:
    """Say which kernel would serve a problem, who comes next, and why. Needs no GPU."""
    answer = ask(rows, length, k, **options)
    if as_json:
        print_json(dict(answer))
    else:
        _show(answer)


def _show(answer: Explanation) -> None:
    """Those that can serve the problem as a table, and below it why the others cannot."""
    table = Table()
    for heading in ("candidate", "launch", "estimate", "basis", ""):
        justify: JustifyMethod = "right" if heading == "estimate" else "left"
        table.add_column(heading, justify=justify, no_wrap=True)
    refused = []
    for place, candidate in enumerate(answer["candidates"]):
        words, us = IN_WORDS.get(candidate["kernel"]), candidate["estimate_us"]
        if candidate["refusal"]:
            refused.append(f"not {words or candidate['backend']}: {candidate['refusal']}")
            continue
        table.add_row(
            words or candidate["name"],
            _launch(candidate["config"]),
            "-" if us is None else f"{us:.1f} us",
            candidate["basis"],
            "chosen" if place == 0 else "",
        )
    show(f"backend {answer['backend']}: {answer['reason']}", table, *refused)


def _launch(config: dict[str, Any] | None) -> str:
    if config is None or not config["grid_blocks"]:
        return "-"
    blocks, per_row = config["grid_blocks"], config["blocks_per_row"]
    return f"{blocks} blocks" + (f", {per_row} a row" if per_row < blocks else "")
