"""Numbers and flags that callers pass: each comes back as a plain one, or an error names it."""

from __future__ import annotations

import operator
from typing import Any

__all__ = ["checked_flag", "checked_integer"]


def checked_integer(name: str, value: Any, least: int, most: int) -> int:
    """``value`` as an int between ``least`` and ``most``; True and False count as none."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: expected an integer, got {type(value).__name__}") from None
    # A boolean tensor of one element has an index as well.
    if isinstance(value, bool) or str(getattr(value, "dtype", "")).endswith("bool"):
        raise TypeError(f"{name}: expected an integer, got bool")
    if not least <= number <= most:
        raise ValueError(f"{name}: expected {least} to {most}, got {number}")
    return number


def checked_flag(name: str, value: Any) -> bool:
    """``value`` as a bool. A number that equals one will do, NumPy's too, but no array: its truth
    may be anything and, on a GPU, takes its time.
    """
    if hasattr(value, "__len__") or not (value.__hash__ and value in (True, False)):
        raise TypeError(f"{name}: expected True or False, got {value!r}")
    return bool(value)
