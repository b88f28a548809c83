"""Whether one run is slower than another by more than their noise."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from bench.results import (
    FUSED_SUITE,
    HOST_SUITE,
    OURS,
    PHASES_SUITE,
    Document,
    is_our_call,
    is_right,
)

__all__ = ["Change", "Comparison", "compare"]

#: Runs on different days differ this much with no change of code.
_TOLERATED = 0.03

Outcome: TypeAlias = Literal["same", "faster", "slower", "broken"]


@dataclass(frozen=True)
class Change:
    """A contender on a case that both runs have.

    Attributes:
        name: contender and case.
        old_us, new_us: microseconds; the new one is None where there is no time any more.
        margin_us: a difference up to here says nothing.
        outcome: "slower" and "faster" beyond the margin, "broken" where the answer is no longer
            right or the call no longer works.
        ours: regressions are ours alone; peers may do as they please.
    """

    name: str
    old_us: float
    new_us: float | None
    margin_us: float
    outcome: Outcome
    ours: bool

    @property
    def regressed(self) -> bool:
        return self.ours and self.outcome in ("slower", "broken")

    def __str__(self) -> str:
        new = "none" if self.new_us is None else f"{self.new_us:.2f}"
        return f"{self.name}: {self.old_us:.2f} -> {new} us (noise {self.margin_us:.2f})"


@dataclass(frozen=True)
class Comparison:
    """Two runs side by side.

    Attributes:
        changes: of all that both have, in the new run's order.
        missing: what of ours only the old one has: not compared, and worth knowing.
        warnings: why the comparison may mislead.
    """

    changes: list[Change]
    missing: list[str]
    warnings: list[str]

    @property
    def regressed(self) -> list[Change]:
        return [change for change in self.changes if change.regressed]

    @property
    def improved(self) -> list[Change]:
        return [change for change in self.changes if change.ours and change.outcome == "faster"]


def compare(old: Document, new: Document) -> Comparison:
    """Raises ValueError if the two have nothing in common."""
    before, after = _figures(old), _figures(new)
    timed = {name: figure for name, figure in before.items() if figure.us is not None}
    changes = [
        _change(name, timed[name], figure) for name, figure in after.items() if name in timed
    ]
    if not changes:
        raise ValueError("the two runs have no measurement in common")
    missing = [name for name, figure in timed.items() if figure.ours and name not in after]
    return Comparison(changes, missing, list(_warnings(old, new)))


@dataclass(frozen=True)
class _Figure:
    us: float | None
    noise_us: float
    right: bool
    ours: bool


def _figures(document: Document) -> dict[str, _Figure]:
    kinds = {
        HOST_SUITE: _host_figures,
        FUSED_SUITE: _fused_figures,
        PHASES_SUITE: _phases_figures,
    }
    return kinds.get(document.suite, _case_figures)(document)


def _case_figures(document: Document) -> dict[str, _Figure]:
    return {
        f"{m.contender}: {m.case}": _Figure(
            m.us, m.noise_us, is_right(m.answer), m.contender.startswith(OURS)
        )
        for m in document.measurements()
    }


def _host_figures(document: Document) -> dict[str, _Figure]:
    return {
        result["call"]: _Figure(
            result["median_ns"] / 1e3,
            result.get("noise_ns", 0) / 1e3,  # recorded since it is measured
            True,
            is_our_call(result["call"]),
        )
        for result in document.calls()
    }


def _fused_figures(document: Document) -> dict[str, _Figure]:
    return {
        str(way): _Figure(way.us, way.noise_us, is_right(way.answer), True)
        for way in document.scorings()
    }


def _phases_figures(document: Document) -> dict[str, _Figure]:
    """Whole launches: what a phase takes depends on where its marks are."""
    return {
        f"launch: {launch.case}": _Figure(launch.launch_us, 0, True, True)
        for launch in document.phases()
    }


def _change(name: str, old: _Figure, new: _Figure) -> Change:
    old_us = old.us or 0.0
    margin = _TOLERATED * old_us + old.noise_us + new.noise_us
    outcome: Outcome = "same"
    if new.us is None or (old.right and not new.right):
        outcome = "broken"
    elif new.us - old_us > margin:
        outcome = "slower"
    elif old_us - new.us > margin:
        outcome = "faster"
    return Change(name, old_us, new.us, margin, outcome, new.ours)


def _warnings(old: Document, new: Document) -> Iterable[str]:
    for fact in ("gpu", "cpu", "driver", "torch"):
        before, after = old.machine.get(fact), new.machine.get(fact)
        if before != after:
            yield f"not the same {fact}: {before} and {after}"
    for document, which in ((old, "old"), (new, "new")):
        if not document.complete:
            yield f"the {which} run was interrupted"
