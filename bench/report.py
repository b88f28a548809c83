"""The tables of README, bench/FIGURES.md and bench/tilelang.md, and all figures: from
bench/results/*.json alone.
"""

from __future__ import annotations

import json
from pathlib import Path

from bench.figures import draw
from bench.published import PUBLISHED
from bench.readme import README, readme_with
from bench.recorded import (
    DOCUMENT,
    FIGURES_DIRECTORY,
    MANIFEST,
    document_with,
    documents,
    results_files,
)
from bench.results import sha256
from bench.tile_report import write_tile_report

__all__ = ["write_report"]


def write_report() -> list[Path]:
    """Writes what is out of date or not; returns the files."""
    figures = draw(documents(), FIGURES_DIRECTORY)
    inputs = {path.name: sha256(path) for path in [*results_files(), PUBLISHED]}
    MANIFEST.write_text(json.dumps(inputs, indent=1) + "\n")
    README.write_text(readme_with(README.read_text()))
    DOCUMENT.write_text(document_with(DOCUMENT.read_text()))
    return [*figures, *write_tile_report(), MANIFEST, README, DOCUMENT]
