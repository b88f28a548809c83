"""The table of :mod:`bench.distributed`: whole calls side by side, then the stages of ours."""

from __future__ import annotations

from typing import Any

from bench.cases import length_name
from bench.results import OURS, Document, is_right
from bench.tables import Table

__all__ = ["by_shape", "distributed_table"]


def by_shape(document: Document) -> dict[tuple[int, int, int], dict[str, dict[str, Any]]]:
    """By (rows, width, k) and contender."""
    shapes: dict[tuple[int, int, int], dict[str, dict[str, Any]]] = {}
    for result in document.results:
        shape = result["rows"], result["width"], result["k"]
        shapes.setdefault(shape, {})[result["contender"]] = result
    return shapes


def distributed_table(document: Document) -> Table:
    """A row a shape; the stages of "gather" in one cell: select + collective + merge."""
    shapes = by_shape(document)
    names = list(dict.fromkeys(name for found in shapes.values() for name in found))
    whole = [name for name in names if ": " not in name]
    return Table(
        ["case", *(f"{name}, us" for name in whole), f"{OURS} gather: stages, us"],
        [
            [
                f"{rows} x {length_name(width)}, k={k}",
                *(_time(found.get(name)) for name in whole),
                " + ".join(
                    _time(found.get(f"gather: {stage}"))
                    for stage in ("select", "collective", "merge")
                ),
            ]
            for (rows, width, k), found in shapes.items()
        ],
    )


def _time(result: dict[str, Any] | None) -> str:
    if result is None:
        return "-"
    wrong = result["answer"] and not is_right(result["answer"])
    return "wrong" if wrong else f"{result['us']:.1f}"
