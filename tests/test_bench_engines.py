"""The engines' benchmark without a GPU: its table, and that it goes into README."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

# Where pytest was not started as a module, or there is no checkout, bench is not importable.
pytest.importorskip("bench", reason="run as python -m pytest in a checkout")

from bench import engines
from bench.results import ENGINES_SUITE, Document, load
from bench.tables import markdown, table_of


def test_table(tmp_path: Path) -> None:
    calls = [
        engines.Call("1 x 64K, k=2048", "indices", 5.0, 0.1, "exact"),
        engines.Call("1 x 64K, k=2048", "slots, page 64", 5.2, 0.1, "exact"),
        engines.Call("hint, 1 x 64K, k=2048", "floor from a sample", 5.0, 0.1, "wrong: all"),
    ]
    document = Document(ENGINES_SUITE, "python -m bench.engines", "abc", "2026", {"cpu": "x"})
    document.results = [asdict(call) for call in calls]
    document.save(tmp_path / "engines.json")
    text = markdown(table_of(load(tmp_path / "engines.json")))
    assert "| 1 x 64K, k=2048 | slots, page 64 | 5.20 | 1.04 |" in text
    assert "| floor from a sample | 5.00 wrong | 1.00 |" in text


def test_the_example_is_where_it_is_looked_for() -> None:
    assert engines._EXAMPLE.exists()
