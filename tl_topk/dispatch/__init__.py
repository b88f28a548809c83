"""One place decides which kernel runs, and says why.

A *policy* is a pure function from a :class:`Problem` to a :class:`Decision`. It is asked once per
problem, when the plan is made; a cached call never consults it. Decisions use shapes, never the
lengths on the device: nothing is read back, and a captured graph stays well served because the
kernels themselves adapt to the lengths they find.

    devices      facts of GPUs
    costs        what each candidate takes, by constants fitted to measurements
    candidates   who could serve a problem, and who not and why
    policies     rule, model, measured, fixed
    calibration  the table behind ``measured``
    current      which policy decides where a call names none
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import TypeAlias

from tl_topk.backends import BACKENDS, Backend
from tl_topk.dispatch.candidates import check_served
from tl_topk.dispatch.current import (
    current_policy,
    scoped_policy,
    set_policy,
    use_policy,
    watch,
)
from tl_topk.dispatch.decision import Candidate, Config, Decision, Policy
from tl_topk.dispatch.devices import gpu_of
from tl_topk.dispatch.policies import POLICIES, fixed, measured, model, policy_named, rule
from tl_topk.problem import Problem, one_of

__all__ = [
    "AUTO", "POLICIES", "Candidate", "Choice", "Config", "Decision", "Policy", "check_backend",
    "chosen", "current_policy", "decide", "fixed", "measured", "model", "on_this_machine",
    "policy_named", "require", "rule", "scoped_policy", "set_policy", "use_policy", "watch",
]  # fmt: skip

AUTO = "auto"

#: What a call asks for: ``"auto"``, a backend's name, or a policy.
Choice: TypeAlias = "str | Policy"

_log = logging.getLogger("tl_topk")
_MOST_REPORTED = 4096
_reported: dict[tuple[Problem, Decision], None] = {}
_reporting = threading.Lock()


def check_backend(name: object) -> None:
    """Raises ValueError unless ``name`` is that of a backend or ``"auto"``, or is a policy."""
    if callable(name):
        return
    if not isinstance(name, str) or name not in (AUTO, *BACKENDS):
        raise ValueError(f"backend: expected {one_of((AUTO, *BACKENDS))}, got {name!r}")


def chosen(backend: str, policy: Policy | str) -> Choice:
    """What a call asks for that names ``policy``; naming a backend as well is refused."""
    if backend != AUTO:
        check_backend(backend)
        raise ValueError(f"policy: expected None with backend={backend!r}, got {policy!r}")
    return policy_named(policy)


def require(name: str) -> None:
    """Raises ValueError unless backend ``name`` can run here."""
    missing = BACKENDS[name].unavailable()
    if missing is not None:
        raise ValueError(f"backend: {name!r} cannot run here: {missing}")


def on_this_machine(problem: Problem) -> Problem:
    """``problem`` with the facts that policies ask for: of its GPU, and of what cannot run here.

    One that names a GPU's facts already speaks of that GPU, and is left as it is.
    """
    if problem.gpu is not None:
        return problem
    missing = ((name, _missing(backend, problem)) for name, backend in BACKENDS.items())
    absent = tuple((name, why) for name, why in missing if why is not None)
    on_gpu = problem.device_type == "cuda" and "dsmem" not in dict(absent)
    return replace(problem, gpu=gpu_of(problem.device_id) if on_gpu else None, absent=absent)


def _missing(backend: Backend, problem: Problem) -> str | None:
    why = backend.unavailable()
    if why is None and backend.device_type == problem.device_type:
        why = backend.lacks(problem)
    return why


def decide(problem: Problem, choice: Choice = AUTO) -> Decision:
    """Which backend serves ``problem``: the one named, or by the policy given; with ``"auto"`` by
    the current policy.

    Raises ValueError when the choice is unknown or cannot serve the problem, TypeError when a
    policy answers with something else than a decision, and RuntimeError when nothing on this
    machine can serve it.
    """
    check_backend(choice)
    if not isinstance(choice, str):
        policy = choice
    else:
        policy = current_policy() if choice == AUTO else fixed(choice)
    problem = on_this_machine(problem)
    decision = policy(problem)
    _check(decision, problem, policy)
    _report(problem, decision)
    return decision


def _check(decision: object, problem: Problem, policy: Policy) -> None:
    """Policies may be anybody's: none is trusted."""
    name = getattr(policy, "__name__", repr(policy))
    if not isinstance(decision, Decision):
        raise TypeError(
            f"policy: expected {name} to return a Decision, got {type(decision).__name__}"
        )
    if decision.backend not in BACKENDS:
        backends = one_of(tuple(BACKENDS))
        raise ValueError(
            f"policy: expected {name} to name backend {backends}, got {decision.backend!r}"
        )
    check_served(problem, decision.backend)
    if decision.blocks_per_row != 0 and (decision.backend != "dsmem" or problem.scoring):
        raise ValueError(
            f"policy: expected {name} to ask for blocks_per_row=0 with backend"
            f" {decision.backend!r}, got {decision.blocks_per_row}"
        )


def _report(problem: Problem, decision: Decision) -> None:
    if not _log.isEnabledFor(logging.DEBUG):
        return
    key = (problem, decision)
    with _reporting:
        if key in _reported:
            return
        if len(_reported) >= _MOST_REPORTED:
            del _reported[next(iter(_reported))]
        _reported[key] = None
    _log.debug("%s: %s", _in_words(problem), f"backend {decision.backend}, {decision.reason}")


def _in_words(problem: Problem) -> str:
    text = f"the best {problem.k} of {problem.rows} x {problem.width} {problem.dtype}"
    scoring = problem.scoring
    if scoring is not None:
        text += f", scores of {scoring.heads} heads x {scoring.dim}, {scoring.next_n} a sequence"
    return f"{text} on {problem.device}"
