"""The policies: pure functions from a problem to a decision."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache

from tl_topk.backends import BACKENDS
from tl_topk.dispatch.calibration import measured_times
from tl_topk.dispatch.candidates import candidates, check_served
from tl_topk.dispatch.decision import IN_WORDS, Candidate, Decision, Policy
from tl_topk.problem import Problem, one_of

__all__ = ["POLICIES", "fixed", "measured", "model", "policy_named", "rule"]

_FIXED = "fixed:"


def rule(problem: Problem) -> Decision:
    """The plain rule: behind compute the kernel that overlaps, for ready scores the one that
    exchanges over distributed shared memory.
    """
    able = _able(problem)
    if problem.device_type == "cpu":
        return _decision(able[0], able, f"{_what(problem)} on {problem.device}")
    wanted = "dsmem" if problem.scoring is None else "pipelined"
    chosen = next((c for c in able if c.backend == wanted and not c.refusal), able[0])
    if chosen.backend != wanted:
        return _decision(chosen, able, f"{wanted!r} cannot serve this and {chosen.backend!r} can")
    if problem.scoring is None:
        return _decision(chosen, able, f"the scores lie ready on {problem.device}")
    return _decision(chosen, able, "scoring is compute that the selection can hide behind")


def model(problem: Problem) -> Decision:
    """The least estimated time, by a cost model of bytes, FLOPs, barriers and launches."""
    able = _able(problem)
    # How many blocks share a row is the native library's choice, and part of what is estimated.
    choices = sorted((c for c in able if c.is_native_choice), key=_time)
    if _is_guess(choices[0]):
        native = next((c for c in choices if not (c.refusal or _is_guess(c))), choices[0])
        choices = [native, *(c for c in choices if c is not native)]
    return _decision(choices[0], able, _by_estimate(problem, choices))


def measured(problem: Problem) -> Decision:
    """The least time that ``tl-topk calibrate`` has measured on this GPU for a problem like it;
    where it has measured none, the answer of :func:`model`.
    """
    times, why_none = measured_times(problem)
    able = tuple(
        replace(c, estimate_us=times[c.name], basis="measured")
        if c.name in times and not c.refusal
        else c
        for c in _able(problem)
    )
    timed = [c for c in able if c.basis == "measured"]
    if not timed:
        decision = model(problem)
        why_none = why_none or "none of those that were can serve this"
        return replace(decision, reason=f"{decision.reason} (not measured: {why_none})")
    chosen = min(timed, key=_time)
    blocks = 0
    if not chosen.is_native_choice and chosen.config is not None:
        blocks = chosen.config.blocks_per_row
    reason = f"{_named(chosen)} was measured to be fastest on this GPU, {_us(chosen)}"
    return replace(_decision(chosen, able, reason), blocks_per_row=blocks)


@cache
def fixed(name: str) -> Policy:
    """The policy that always picks backend ``name``, and refuses what it cannot serve.

    Raises ValueError where there is no such backend.
    """
    if name not in BACKENDS:
        raise ValueError(f"backend: expected {one_of(tuple(BACKENDS))}, got {name!r}")

    def policy(problem: Problem) -> Decision:
        check_served(problem, name)
        able = _able(problem)
        chosen = next(c for c in able if c.backend == name and c.is_native_choice)
        return _decision(chosen, able, f"backend={name!r} was asked for")

    policy.__name__ = policy.__qualname__ = f"fixed({name!r})"
    return policy


POLICIES: dict[str, Policy] = {"rule": rule, "model": model, "measured": measured}


def policy_named(name: object, argument: str = "policy") -> Policy:
    """The policy ``name``: one of :data:`POLICIES`, ``"fixed:BACKEND"``, ``"MODULE:FUNCTION"``, or
    a callable, which is its own policy.

    Raises ValueError or TypeError, beginning with ``argument``, for anything else.
    """
    if callable(name):
        if name.__hash__ is None:  # plans are kept by it
            raise TypeError(f"{argument}: expected a hashable callable, got {name!r}")
        return name
    allowed = f"{', '.join(map(repr, POLICIES))}, 'fixed:BACKEND', 'MODULE:FUNCTION'"
    if not isinstance(name, str):
        raise TypeError(f"{argument}: expected {allowed} or a callable, got {type(name).__name__}")
    if name in POLICIES:
        return POLICIES[name]
    if name.startswith(_FIXED) and name.removeprefix(_FIXED) in BACKENDS:
        return fixed(name.removeprefix(_FIXED))
    if name.startswith(_FIXED):
        every = one_of(tuple(_FIXED + backend for backend in BACKENDS))
        raise ValueError(f"{argument}: expected {every}, got {name!r}")
    module, colon, function = name.partition(":")
    if not (colon and module and function):
        raise ValueError(f"{argument}: expected {allowed} or a callable, got {name!r}")
    try:
        found: Callable[[Problem], Decision] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{argument}: {name!r} cannot be imported: {error}") from None
    if not callable(found):
        raise TypeError(f"{argument}: expected {name!r} to be callable, got {type(found).__name__}")
    return found


def _able(problem: Problem) -> tuple[Candidate, ...]:
    """All candidates of a problem that at least one can serve; first those that can."""
    kinds = tuple(dict.fromkeys(backend.device_type for backend in BACKENDS.values()))
    if problem.device_type not in kinds:
        raise ValueError(f"scores: expected on {one_of(kinds)}, got on {problem.device!r}")
    everyone = candidates(problem)
    able = tuple(c for c in everyone if not c.refusal)
    if not able:
        failures = "; ".join(
            f"{c.backend}: {c.refusal}"
            for c in everyone
            if BACKENDS[c.backend].device_type == problem.device_type
        )
        raise RuntimeError(f"scores: no backend can serve {problem.device!r}: {failures}")
    return able + tuple(c for c in everyone if c.refusal)


def _decision(chosen: Candidate, everyone: Iterable[Candidate], reason: str) -> Decision:
    others = sorted((c for c in everyone if c is not chosen), key=_rank)
    return Decision(
        chosen.backend,
        reason,
        kernel=chosen.kernel,
        config=chosen.config,
        estimate_us=chosen.estimate_us,
        candidates=(chosen, *others),
    )


def _time(candidate: Candidate) -> float:
    us = candidate.estimate_us
    return float("inf") if us is None or candidate.refusal else us


def _is_guess(candidate: Candidate) -> bool:
    """Is it a kernel of TileLang's whose time is known from another GPU alone? The native way is
    the slower one at worst; this one may be slower by any factor.
    """
    return candidate.backend == "pipelined" and candidate.basis == "derived"


def _rank(candidate: Candidate) -> tuple[bool, float]:
    return bool(candidate.refusal), _time(candidate)


def _what(problem: Problem) -> str:
    return "the scores lie ready" if problem.scoring is None else "queries and keys lie"


def _named(candidate: Candidate) -> str:
    scope = "" if candidate.config is None else f" with {candidate.config}"
    kernel = "" if candidate.kernel in IN_WORDS else f" ({candidate.kernel})"
    return f"{_quoted(candidate)}{kernel}{scope}"


def _quoted(candidate: Candidate) -> str:
    return repr(IN_WORDS.get(candidate.kernel, candidate.backend))


def _us(candidate: Candidate) -> str:
    return "unknown" if candidate.estimate_us is None else f"{candidate.estimate_us:.1f} us"


def _by_estimate(problem: Problem, choices: list[Candidate]) -> str:
    first = choices[0]
    if len([c for c in choices if not c.refusal]) == 1:
        return f"{_named(first)} alone can serve {problem.device!r}"
    unknown = [_quoted(c) for c in choices if not c.refusal and c.estimate_us is None]
    if unknown:
        text = f"{_named(first)}, as nothing like this was measured of {' and '.join(unknown)}"
    elif _is_guess(choices[1]) and _time(choices[1]) < _time(first):
        text = f"{_named(first)} is estimated at {_us(first)}, {_quoted(choices[1])} at less"
        text += f", {_us(choices[1])}, but has never been measured there"
    else:
        text = f"{_named(first)} has the least estimate of the backends, {_us(first)}"
        text += f", {_quoted(choices[1])} next with {_us(choices[1])}"
    if first.basis == "derived" and problem.gpu is not None:
        text += (
            f"; derived from another GPU's constants, nothing was measured on {problem.gpu.name}"
        )
    return text
