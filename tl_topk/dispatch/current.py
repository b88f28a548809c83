"""Which policy decides where a call names none: of the process, or of a ``with`` block around it.

The outermost is ``TL_TOPK_POLICY``, read when the first decision is due, or else ``"model"``.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tl_topk.dispatch.decision import Policy
from tl_topk.dispatch.policies import model, policy_named

__all__ = ["VARIABLE", "current_policy", "scoped_policy", "set_policy", "use_policy", "watch"]

VARIABLE = "TL_TOPK_POLICY"

_scoped: ContextVar[Policy | None] = ContextVar("tl_topk_policy", default=None)
_lock = threading.RLock()
_process: Policy | None = None
_open_blocks = 0

#: Told of every change: whether calls that name no policy may use what was decided before.
_watchers: list[Callable[[bool], None]] = []
#: Told when the process-wide policy is another one.
_forgetters: list[Callable[[], None]] = []


def watch(any_blocks: Callable[[bool], None], forget: Callable[[], None]) -> None:
    """For caches of decisions: ``any_blocks(True)`` when the first ``with`` block of the process is
    entered, ``any_blocks(False)`` when the last is left; ``forget()`` at :func:`set_policy`.
    """
    _watchers.append(any_blocks)
    _forgetters.append(forget)


def scoped_policy() -> Policy | None:
    """The policy of the ``with`` block that this code runs in, if there is any."""
    return _scoped.get()


def current_policy() -> Policy:
    """The policy of calls that name none."""
    policy = _scoped.get() or _process
    if policy is None:
        with _lock:
            named = os.environ.get(VARIABLE)
            policy = policy_named(named, VARIABLE) if named else model
            _set(policy)
    return policy


def _set(policy: Policy | None) -> None:
    global _process
    _process = policy


def set_policy(policy: Policy | str | None) -> None:
    """Sets the policy of all calls of this process that name none; plans are decided anew.

    Args:
        policy: ``"rule"``, ``"model"``, ``"measured"``, ``"fixed:BACKEND"``, ``"MODULE:FUNCTION"``
            or any function from a :class:`Problem` to a :class:`Decision`, by which plans are kept:
            always pass the same one. None brings back that of ``TL_TOPK_POLICY``, or ``"model"``.

    Raises:
        ValueError, TypeError: it is no policy; the message names those there are.
    """
    found = None if policy is None else policy_named(policy)
    with _lock:
        _set(found)
        for forget in _forgetters:
            forget()


@contextmanager
def use_policy(policy: Policy | str) -> Iterator[None]:
    """Calls inside the ``with`` block that name no policy ask this one, see :func:`set_policy`.

    It holds for this thread (this task, in asyncio) alone, and blocks nest. While any is open, the
    shortest way through the library is closed to calls that name no policy: they take about a
    microsecond more.
    """
    global _open_blocks
    token = _scoped.set(policy_named(policy))
    with _lock:
        _open_blocks += 1
        if _open_blocks == 1:
            for any_blocks in _watchers:
                any_blocks(True)
    try:
        yield
    finally:
        _scoped.reset(token)
        with _lock:
            _open_blocks -= 1
            if _open_blocks == 0:
                for any_blocks in _watchers:
                    any_blocks(False)
