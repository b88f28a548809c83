"""The parts of README that are made from results: the table of one call, and reliability's."""

from __future__ import annotations

from bench.marked import replaced
from bench.recorded import documents, section
from bench.reliability import reliability_section
from bench.results import RESULTS

__all__ = ["README", "readme_with", "speed_section"]

README = RESULTS.parents[1] / "README.md"


def speed_section() -> str:
    """The short suite, as far as it is recorded, and what its figure is drawn from."""
    recorded = documents()
    short, grid = recorded.get("short"), recorded.get("grid")
    if short is None:
        return ""
    made = section("short", short, level=3, folder="bench/")
    if grid is not None and grid.commit != short.commit:
        made += f" The figure is drawn from the grid, of commit {grid.commit}, with its times."
    return made


def readme_with(text: str) -> str:
    """README's text with the parts between markers made anew. Raises ValueError without them."""
    text = replaced(text, "speed", speed_section(), README.name)
    return replaced(text, "reliability", reliability_section(), README.name)
