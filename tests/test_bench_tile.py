"""What bench/tilelang.md shows is what has been recorded."""

from __future__ import annotations

import pytest

from bench import tile_report
from bench.results import RESULTS


def test_the_document_shows_what_is_recorded() -> None:
    text = tile_report.DOCUMENT.read_text()
    assert tile_report.document_with(text) == text, "run make report"
    for suite in ("tilelang", "tile_phases", "tile_host"):
        assert f"(results/{suite}.json)" in text
        assert (RESULTS / f"{suite}.json").is_file()


def test_a_document_without_markers() -> None:
    with pytest.raises(ValueError, match=r"^tilelang.md lacks the markers .*latency"):
        tile_report.document_with("# Something else")
