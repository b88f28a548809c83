"""Figures that others published or that were measured elsewhere: shown beside ours, never mixed."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["PUBLISHED", "best_peer", "founding", "read_floor"]

PUBLISHED = Path(__file__).parent / "data" / "published.json"


@cache
def _data() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(PUBLISHED.read_text())
    return data


def best_peer(rows: int, width: int, k: int) -> tuple[str, float] | None:
    """The fastest right one of a cell, and its microseconds on an H200."""
    for cell in _data()["peers"]["cells"]:
        if (cell["rows"], cell["width"], cell["k"]) == (rows, width, k):
            right = {name: us for name, us in cell["us"].items() if name not in cell["wrong"]}
            name = min(right, key=lambda peer: right[peer])
            return name, float(right[name])
    return None


def founding() -> dict[str, dict[int, float]]:
    """The founding table's microseconds by series and length, as published."""
    return {
        series["name"]: {int(width): float(us) for width, us in series["us"].items()}
        for series in _data()["founding"]["series"]
    }


def read_floor() -> dict[int, float]:
    """Microseconds to read one row of so many float32 once, with the whole GPU."""
    return {int(width): float(us) for width, us in _data()["read_floor"]["us"].items()}
