"""The table of :mod:`bench.distributed`: whole calls side by side, then the stages of ours."""

from __future__ import annotations

from typing import Any

from bench.cases import length_name
from bench.results import OURS, Document, is_right
from bench.tables import Table

__all__ = ["by_shape", "counts", "distributed_table", "whole_calls"]


def by_shape(document: Document) -> dict[tuple[int, int, int], dict[str, dict[str, Any]]]:
    """By (rows, width, k) and contender."""
    shapes: dict[tuple[int, int, int], dict[str, dict[str, Any]]] = {}
    for result in document.results:
        shape = result["rows"], result["width"], result["k"]
        shapes.setdefault(shape, {})[result["contender"]] = result
    return shapes


def whole_calls(document: Document) -> list[str]:
    """The contenders that are whole calls, not stages of one."""
    names = dict.fromkeys(result["contender"] for result in document.results)
    return [name for name in names if ": " not in name]


def counts(result: dict[str, Any]) -> bool:
    """A wrong answer's time is no time; stages and one GPU alone have no answer to be judged."""
    return not result["answer"] or is_right(result["answer"])


def distributed_table(document: Document) -> Table:
    """A row a shape; the stages of "gather" in one cell: select + collective + merge."""
    whole = whole_calls(document)
    return Table(
        ["case", *(f"{name}, us" for name in whole), f"{OURS} gather: select + collective + merge"],
        [
            [
                f"{rows} x {length_name(width)}, k={k}",
                *(_time(found.get(name)) for name in whole),
                " + ".join(
                    _time(found.get(f"gather: {stage}"))
                    for stage in ("select", "collective", "merge")
                ),
            ]
            for (rows, width, k), found in by_shape(document).items()
        ],
    )


def _time(result: dict[str, Any] | None) -> str:
    if result is None:
        return "-"
    return f"{result['us']:.1f}" if counts(result) else "wrong"
