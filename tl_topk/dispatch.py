"""One place decides which backend runs, and says why.

A *policy* is a pure function from a :class:`Problem` to a :class:`Decision`. It is asked once per
problem, when the plan is made; a cached call never consults it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tl_topk.backends import BACKENDS
from tl_topk.problem import Problem, one_of

__all__ = ["AUTO", "Decision", "Policy", "check_backend", "decide", "fixed", "require", "rule"]

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Decision:
    """The backend that serves a problem, and why, in one sentence."""

    backend: str
    reason: str


Policy: TypeAlias = Callable[[Problem], Decision]


def rule(problem: Problem) -> Decision:
    """The default policy: scores that lie ready are selected where they lie."""
    candidates = [b for b in BACKENDS.values() if b.device_type == problem.device_type]
    if not candidates:
        kinds = tuple(dict.fromkeys(b.device_type for b in BACKENDS.values()))
        raise ValueError(f"scores: expected on {one_of(kinds)}, got on {problem.device!r}")
    failures = []
    for backend in candidates:
        missing = backend.unavailable()
        if missing is None:
            return Decision(backend.name, f"the scores lie ready on {problem.device}")
        failures.append(f"{backend.name}: {missing}")
    raise RuntimeError(f"scores: no backend can serve {problem.device!r}: {'; '.join(failures)}")


def check_backend(name: object) -> None:
    """Raises ValueError unless ``name`` is that of a backend or ``"auto"``."""
    if not isinstance(name, str) or name not in (AUTO, *BACKENDS):
        raise ValueError(f"backend: expected {one_of((AUTO, *BACKENDS))}, got {name!r}")


def fixed(name: str) -> Policy:
    """The policy that always picks backend ``name``, and refuses what it cannot serve."""
    check_backend(name)
    backend = BACKENDS[name]

    def policy(problem: Problem) -> Decision:
        require(name)
        if backend.device_type != problem.device_type:
            able = [b.name for b in BACKENDS.values() if b.device_type == problem.device_type]
            raise ValueError(
                f"backend: expected {one_of((AUTO, *able))} for scores on {problem.device!r},"
                f" got {name!r}, which needs them on {backend.device_type!r}"
            )
        return Decision(name, f"backend={name!r} was asked for")

    return policy


def require(name: str) -> None:
    """Raises ValueError unless backend ``name`` can run here."""
    missing = BACKENDS[name].unavailable()
    if missing is not None:
        raise ValueError(f"backend: {name!r} cannot run here: {missing}")


def decide(problem: Problem, backend: str = AUTO) -> Decision:
    """Which backend serves ``problem``: the one named, or with ``"auto"`` the policy's choice.

    Raises ValueError when ``backend`` is unknown or cannot serve the problem, and RuntimeError when
    nothing on this machine can.
    """
    policy = rule if backend == AUTO else fixed(backend)
    return policy(problem)
