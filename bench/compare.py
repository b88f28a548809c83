"""Whether one run is slower than another by more than their noise."""

from __future__ import annotations

from dataclasses import dataclass

from bench.results import HOST_SUITE, OURS, Document, Measurement, is_right

__all__ = ["Change", "compare"]

#: Runs on different days differ this much with no change of code.
_TOLERATED = 0.03


@dataclass(frozen=True)
class Change:
    """A contender on a case that both runs have.

    Attributes:
        margin_us: a difference up to here says nothing.
        regressed: it is ours, and slower beyond the margin or no longer right.
    """

    name: str
    old_us: float
    new_us: float
    margin_us: float
    regressed: bool

    @property
    def improved(self) -> bool:
        return self.old_us - self.new_us > self.margin_us


def compare(old: Document, new: Document) -> list[Change]:
    """What both have measured, in the new one's order. Raises ValueError if there is nothing."""
    before, after = (
        (_host if document.suite == HOST_SUITE else _timed)(document) for document in (old, new)
    )
    common = [name for name in after if name in before]
    if not common:
        raise ValueError("the two runs have no measurement in common")
    return [_change(name, before[name], after[name]) for name in common]


@dataclass(frozen=True)
class _Figure:
    us: float
    noise_us: float
    right: bool
    ours: bool


def _timed(document: Document) -> dict[str, _Figure]:
    return {
        f"{m.contender}: {m.case}": _figure(m, m.us)
        for m in document.measurements()
        if m.us is not None
    }


def _figure(m: Measurement, us: float) -> _Figure:
    return _Figure(us, m.noise_us, is_right(m.answer), m.contender.startswith(OURS))


def _host(document: Document) -> dict[str, _Figure]:
    return {
        result["call"]: _Figure(
            result["median_ns"] / 1e3,
            0,
            True,
            result["call"].startswith(("plan", "topk")),
        )
        for result in document.results
    }


def _change(name: str, old: _Figure, new: _Figure) -> Change:
    margin = _TOLERATED * old.us + old.noise_us + new.noise_us
    slower = new.us - old.us > margin
    broken = old.right and not new.right
    return Change(name, old.us, new.us, margin, new.ours and (slower or broken))
