"""Problems on which every candidate of the dispatcher is timed, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from bench.cases import length_name
from bench.targets import K, M

__all__ = ["READY", "SCORED", "Contest", "Question", "Scored"]

_MOST_BYTES = 1 << 30  # of the scores of one call


@dataclass(frozen=True)
class Scored:
    """Where the scores come from: float8 keys of 128 on pages.

    Attributes:
        heads: of the indexer.
        next_n: queries of a sequence, as the call counts them.
        shared: how many sequences of the call are one with the same keys: eight queries are asked
            as two times four, for no call takes more.
    """

    heads: int
    next_n: int
    shared: int = 1

    @property
    def queries(self) -> int:
        """Of the same keys."""
        return self.next_n * self.shared


@dataclass(frozen=True)
class Question:
    """One problem; indices alone are asked for.

    Attributes:
        rows: of scores; ``sequences * queries`` where they are made first.
        width: elements a row can hold.
        k: how many are selected.
        dtype: of the scores.
        length: how much of every row counts; None passes no lengths.
        scored: None where the scores lie ready.
    """

    rows: int
    width: int
    k: int = 2048
    dtype: str = "float32"
    length: int | None = None
    scored: Scored | None = None

    @property
    def bytes(self) -> int:
        """Of the scores of one call."""
        return self.rows * self.width * (4 if self.dtype == "float32" else 2)

    def __str__(self) -> str:
        words = [f"{self.rows} x {length_name(self.width)}", f"k={self.k}"]
        if self.dtype != "float32":
            words.append(self.dtype)
        if self.length is not None:
            words.append(f"length={length_name(self.length)}")
        if self.scored is not None:
            words.append(f"{self.scored.heads} heads, next_n={self.scored.next_n}")
            if self.scored.shared > 1:
                words.append(f"{self.scored.shared} of the same keys")
        return ", ".join(words)


@dataclass(frozen=True)
class Contest:
    """A question with the time of each candidate.

    Attributes:
        us: microseconds by candidate, the median of interleaved graph replays.
        noise_us: how far each may be off, see :func:`bench.timing.noise_of`.
        wrong: candidates whose answer was not exact.
    """

    question: Question
    us: dict[str, float]
    noise_us: dict[str, float]
    wrong: tuple[str, ...] = ()

    @property
    def best(self) -> str:
        """The fastest candidate."""
        return min(self.us, key=lambda name: self.us[name])

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Contest:
        question = dict(data["question"])
        if question["scored"] is not None:
            question["scored"] = Scored(**question["scored"])
        return Contest(
            Question(**question), data["us"], data["noise_us"], tuple(data.get("wrong", ()))
        )


def _ready() -> Iterator[Question]:
    widths = [2**i * K for i in range(2, 11)]
    for k in (2048, 512, 1024):
        for rows in (2**i for i in range(9)):
            yield from (Question(rows, width, k) for width in widths)
    for rows in (1, 3, 6, 12, 24, 48, 96):  # between the powers of two
        yield from (Question(rows, width) for width in (10_000, 40_000, 120_000, 500_000))
    for rows in (1, 4, 16, 64):  # short rows
        yield from (Question(rows, width, 512) for width in (K, 1500, 2 * K, 3000))
    for rows in (1, 16, 64):
        for width in (16 * K, 64 * K, 256 * K, M):
            yield Question(rows, width, dtype="bfloat16")
    for rows in (1, 4, 16, 64):  # a captured graph of an engine: rows far from full
        yield from (Question(rows, M, length=length) for length in (4 * K, 16 * K, 64 * K))


def _scored() -> Iterator[Question]:
    """The crossover study; by heads, so that a run that ends early has seen all shapes."""
    for heads in (64, 8, 32, 16):  # the extremes first
        for scored in (Scored(heads, 1), Scored(heads, 2), Scored(heads, 4), Scored(heads, 4, 2)):
            for sequences in (1, 4, 16, 64) if scored.shared == 1 else (1, 4):
                for width in (8 * K, 32 * K, 128 * K, 512 * K, M):
                    if sequences * width <= 8 * M:
                        yield Question(sequences * scored.queries, width, scored=scored)


READY = tuple(question for question in _ready() if question.bytes <= _MOST_BYTES)
SCORED = tuple(_scored())
