"""What is measured, as data: a case says everything about its input and about the question."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, TypeAlias

__all__ = ["Case", "Lengths", "as_dict", "from_dict", "length_name"]

#: One length for every row, or "mixed": 0 to the width, evenly spread and in random order, or
#: "causal": row r sees what lies before it, as in prefill; None passes no lengths at all.
Lengths: TypeAlias = int | Literal["mixed", "causal"] | None


@dataclass(frozen=True)
class Case:
    """One problem. Only what differs from the plain one need be said.

    Attributes:
        rows: rows of scores in one call.
        width: elements a row can hold.
        k: how many are selected of each.
        dtype: of the scores.
        distribution: a name of :data:`bench.distributions.DISTRIBUTIONS`.
        entropy: leading bits of each float32 score that are kept, 32 for all of them: with fewer
            bits there are fewer distinct values and more ties.
        lengths: how much of each row counts.
        row_starts: whether rows start elsewhere than at their first element.
        order: of the result's slots.
        values: whether values are asked for besides indices.
    """

    rows: int
    width: int
    k: int = 2048
    dtype: str = "float32"
    distribution: str = "normal"
    entropy: int = 32
    lengths: Lengths = None
    row_starts: bool = False
    order: str = "any"
    values: bool = False

    @property
    def element_bytes(self) -> int:
        return 4 if self.dtype == "float32" else 2

    @property
    def bytes(self) -> int:
        """Of the scores of one call."""
        return self.rows * self.width * self.element_bytes

    @property
    def shape(self) -> str:
        return f"{self.rows} x {length_name(self.width)}"

    def __str__(self) -> str:
        """The shape, then what is not plain."""
        words = [self.shape, f"k={self.k}"]
        for field in fields(self)[3:]:
            value = getattr(self, field.name)
            if value == field.default:
                continue
            named = field.name in ("entropy", "lengths", "order")
            words.append(
                f"{field.name}={value}" if named else field.name if value is True else str(value)
            )
        return ", ".join(words)


def length_name(length: int) -> str:
    """65536 as 64K, 1048576 as 1M, 120000 as it is."""
    for unit, size in (("M", 2**20), ("K", 2**10)):
        if length % size == 0:
            return f"{length // size}{unit}"
    return str(length)


def as_dict(case: Case) -> dict[str, Any]:
    """For JSON: in full, so that a later default changes no recorded case."""
    return asdict(case)


def from_dict(data: dict[str, Any]) -> Case:
    return Case(**data)
