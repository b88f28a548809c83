"""Markdown documents of which parts are made, each between a pair of comments."""

from __future__ import annotations

import re

__all__ = ["anchor", "marks", "replaced"]


def marks(part: str) -> tuple[str, str]:
    """The comments around the part of that name."""
    return f"<!-- {part}: begin (made by make report) -->", f"<!-- {part}: end -->"


def replaced(text: str, part: str, made: str, document: str) -> str:
    """``text`` with ``made`` between the part's comments. Raises ValueError without them.

    Args:
        text: of the whole document.
        part: its name.
        made: what is to stand there.
        document: its name, for the error.
    """
    begin, end = marks(part)
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{document} lacks the markers {begin} and {end}")
    return f"{before}{begin}\n{made}{chr(10) if made else ''}{end}{after}"


def anchor(heading: str) -> str:
    """What GitHub calls a heading's place in links."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
