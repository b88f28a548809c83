"""Plans are made once per problem and kept.

:data:`PLANS` finds them by problem, arrays' kind included. In front of it :data:`SETS` finds them
by options alone, for calls that bring their outputs: the native library looks at the scores.

The cache holds no device memory of its own. Workspaces belong to the array library (one per device
and stream, see :mod:`tl_topk.torch_arrays`), so dropping a plan frees nothing that work in flight
or a captured graph still uses.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from tl_topk._ffi.plan import _run as native_run
from tl_topk._ffi.plan_set import PlanSet
from tl_topk.backends import BACKENDS
from tl_topk.dispatch import Choice, Decision, decide, watch

if TYPE_CHECKING:
    from tl_topk._ffi import TopKPlan
    from tl_topk.arrays import Array, ArrayLibrary
    from tl_topk.problem import Problem

__all__ = [
    "PLANS",
    "SETS",
    "CachedPlan",
    "ClockCache",
    "clear_plan_cache",
    "keep_ready",
    "make_plan",
]


class _Entry(Protocol):
    recent: bool


E = TypeVar("E", bound=_Entry)


class ClockCache(Generic[E]):
    """A bounded mapping that forgets roughly the least recently used entry ("second chance").

    A hit takes no lock and moves nothing: the caller sets ``entry.recent``, one attribute store.
    An eviction passes over entries hit since the last one. A true LRU would pay a lock and a move
    on every call to decide a little better on the rare miss.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._shown: dict[Hashable, E] = {}
        self._entries = self._shown
        self._lock = threading.Lock()
        #: ``find(key) -> entry or None``; the bound method itself, to save a Python call. It finds
        #: nothing while the cache is hidden.
        self.find: Callable[[Hashable], E | None] = self._shown.get

    def __len__(self) -> int:
        return len(self._entries)

    def look(self, key: Hashable) -> E | None:
        """:meth:`find`, of hidden entries as well."""
        return self._entries.get(key)

    def hide(self, hidden: bool) -> None:
        """Whether :attr:`find` is to find nothing until further notice."""
        with self._lock:
            if hidden and self._entries is self._shown:
                self._entries = dict(self._shown)
                self._shown.clear()
            elif not hidden and self._entries is not self._shown:
                self._shown.update(self._entries)
                self._entries = self._shown

    def add(self, key: Hashable, entry: E) -> E:
        """Keeps ``entry``, unless another thread was first: then returns that thread's."""
        with self._lock:
            if key not in self._entries and len(self._entries) >= self.capacity:
                self._evict_one()
            return self._entries.setdefault(key, entry)

    def replace(self, key: Hashable, entry: E) -> E:
        """Keeps ``entry`` in the place of whatever was there."""
        with self._lock:
            self._entries.pop(key, None)
        return self.add(key, entry)

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()

    def _evict_one(self) -> None:
        while True:
            oldest = next(iter(self._entries))
            entry = self._entries.pop(oldest)
            if not entry.recent:
                return
            entry.recent = False
            self._entries[oldest] = entry


@dataclass(slots=True, eq=False)
class CachedPlan:
    """A plan with what the hot path needs of it, so that it reads no native field."""

    plan: TopKPlan
    decision: Decision
    #: ``run(scores, indices, values, lengths, row_starts, workspace)``: the native method, bound.
    run: Callable[..., None]
    empty_indices: Callable[[], Array]
    empty_values: Callable[[], Array]
    is_bare: bool  # needs no workspace
    recent: bool = False  # hit since the last eviction came by?


def make_plan(problem: Problem, choice: Choice, library: ArrayLibrary, scores: Array) -> CachedPlan:
    """Asks the dispatcher, then the backend it names; results will be like ``scores``."""
    decision = decide(problem, choice)
    plan = BACKENDS[decision.backend].plan(problem, decision.blocks_per_row)
    shape = (*scores.shape[:-1], problem.k)
    return CachedPlan(
        plan,
        decision,
        run=partial(native_run, plan),
        empty_indices=library.allocator(scores, shape, "int32"),
        empty_values=library.allocator(scores, shape),
        is_bare=plan.workspace_bytes == 0,
    )


#: Enough for every (rows, width, k) that an engine cycles through; a plan is under a kilobyte.
PLANS: ClockCache[CachedPlan] = ClockCache(capacity=512)


@dataclass(slots=True)
class ReadyPlans:
    """The plans met last with one set of options, newest first."""

    k: int
    largest: bool
    order: str
    backend: Choice
    plans: tuple[CachedPlan, ...]
    native: PlanSet
    recent: bool = False


class ReadySets(ClockCache[ReadyPlans]):
    """Sets by their options ``(k, largest, order, backend)``, the one used last at hand.

    Most callers ask for the same all the time: comparing costs half of what looking up does.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.latest = _NOTHING_READY

    def clear(self) -> None:
        super().clear()
        self.latest = _NOTHING_READY

    def hide(self, hidden: bool) -> None:
        super().hide(hidden)
        self.latest = _NOTHING_READY

    def _evict_one(self) -> None:
        self.latest.recent = True  # which the calls that hit it do not say each time
        super()._evict_one()


_NOTHING_READY = ReadyPlans(-1, True, "", "", (), PlanSet([]))

#: ``SETS[True]`` for calls with values. Looking through a full set costs the native library 50 ns.
SETS = ReadySets(64), ReadySets(64)
_MOST_READY = 32


def keep_ready(options: tuple[int, bool, str, Choice], with_values: bool, plan: CachedPlan) -> None:
    """Puts ``plan``, which needs no workspace, into the set of its options.

    Sets are replaced, never changed: a thread that is using the old one may go on. Of two threads
    that come here at once one may lose its plan, which is put in again when next met.
    """
    sets = SETS[with_values]
    found = sets.look(options)
    before = () if found is None else found.plans
    if found is not None and plan in before:
        sets.latest = found
    else:
        plans = (plan, *before[: _MOST_READY - 1])
        native = PlanSet([each.plan for each in plans])
        sets.latest = sets.replace(options, ReadyPlans(*options, plans, native))


def clear_plan_cache() -> None:
    """Forgets every cached plan, of all threads.

    Never needed for correctness. Safe while launches are queued and while captured graphs are
    replayed: no device memory is freed that they use.
    """
    PLANS.clear()
    for sets in SETS:
        sets.clear()


def _hide_plans(hidden: bool) -> None:
    """While a policy holds for some code alone, no call may find by itself what was decided before:
    the general way asks which policy it is under.
    """
    for cache in (PLANS, *SETS):
        cache.hide(hidden)


watch(_hide_plans, clear_plan_cache)
