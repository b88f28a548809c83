"""The general path behind the public functions: whose arrays, which plan, run it."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from tl_topk import arrays
from tl_topk.arrays import LIBRARIES, Array, ArrayLibrary, find_library
from tl_topk.dispatch import AUTO, Choice, scoped_policy
from tl_topk.plans import PLANS, CachedPlan, keep_ready, make_plan
from tl_topk.problem import Problem

__all__ = [
    "NOT_PASSED",
    "Options",
    "cached_plan",
    "planned",
    "select",
    "select_eagerly",
    "under_policy",
]

#: What a call raises when an argument is of a kind that cannot be passed to native code at all.
#: (RuntimeError: torch's, for tensors without memory of their own.)
NOT_PASSED = (TypeError, BufferError, RuntimeError)


class Options(NamedTuple):
    """What a call asks for besides its arrays.

    ``backend`` is ``"auto"``, a backend's name or a policy.
    """

    k: int
    largest: bool
    order: str
    backend: Choice
    with_values: bool


def select(
    options: Options,
    scores: Array,
    lengths: Array | None,
    row_starts: Array | None,
    values: Array | None,
    indices: Array | None,
) -> tuple[Array, Array]:
    """(values, indices), filled or, where ``indices`` is None, allocated.

    What needs torch's dispatcher (compilation, autograd, tensor subclasses) goes through the
    registered operator, which ends in :func:`select_eagerly` too.
    """
    library = LIBRARIES.get(scores.__class__) or find_library(scores)
    for name, array in (("out values", values), ("out indices", indices)):
        if array is not None:
            arrays.check_output(name, array, like=scores)
    if library is None or arrays.is_tracing() or library.needs_operator(scores, options):
        from tl_topk import torch_op

        return torch_op.select(options, scores, lengths, row_starts, values, indices)
    return select_eagerly(library, options, scores, lengths, row_starts, values, indices)


def under_policy(options: Options) -> Options:
    """``options`` with the policy of the ``with`` block around the call, where they name none."""
    if options.backend == AUTO and (policy := scoped_policy()) is not None:
        return options._replace(backend=policy)
    return options


def select_eagerly(
    library: ArrayLibrary,
    options: Options,
    scores: Array,
    lengths: Array | None,
    row_starts: Array | None,
    values: Array | None,
    indices: Array | None,
) -> tuple[Array, Array]:
    """:func:`select` for arrays that the native library can read as they are."""
    options = under_policy(options)
    try:
        plan = cached_plan(library, options, scores)
        if indices is None:
            indices = plan.empty_indices()
            if options.with_values:
                values = plan.empty_values()
        elif plan.is_bare:
            keep_ready(options[:4], options.with_values, plan)
        workspace = None
        if not plan.is_bare:
            workspace = library.workspace(scores, plan.plan.workspace_bytes)
        return library.launch(plan.run, scores, indices, values, lengths, row_starts, workspace)
    except NOT_PASSED as error:
        inputs = _passable(error, library, options, scores, lengths, row_starts)
    return select_eagerly(library, options, *inputs, values, indices)


def cached_plan(library: ArrayLibrary, options: Options, scores: Array) -> CachedPlan:
    """The plan of a problem, made where it is met for the first time."""
    options = under_policy(options)
    plan = PLANS.look(_key(library, options, scores))
    if plan is None:
        return _plan(library, options, scores)
    plan.recent = True
    return plan


def _key(library: ArrayLibrary, options: Options, scores: Array) -> tuple[Hashable, ...]:
    # The fast lane in api.py builds the same tuple.
    return (scores.shape, scores.dtype, library.device_key(scores), *options)


def _plan(library: ArrayLibrary, options: Options, scores: Array) -> CachedPlan:
    """The plan of a problem met for the first time (or again, after the cache forgot it)."""
    shape = tuple(scores.shape)
    if len(shape) not in (1, 2):
        raise ValueError(f"scores: expected shape (length,) or (rows, length), got {shape}")
    device_type, device_id = library.device(scores)
    problem = Problem(
        rows=shape[0] if len(shape) == 2 else 1,
        width=shape[-1],
        k=options.k,
        dtype=library.dtype_name(scores),
        order=options.order,
        largest=options.largest,
        values=options.with_values,
        device_type=device_type,
        device_id=device_id,
    )
    return PLANS.add(
        _key(library, options, scores), make_plan(problem, options.backend, library, scores)
    )


def planned(scores: Array, k: int, backend: Choice = AUTO) -> CachedPlan:
    """The plan behind ``topk(scores, k, backend=backend)``: what decided, and why."""
    library = LIBRARIES.get(scores.__class__) or find_library(scores)
    if library is None:
        raise TypeError(f"scores: expected a plain array, got {type(scores).__name__}")
    return _plan(library, under_policy(Options(k, True, "any", backend, True)), scores)


def _passable(
    error: Exception,
    library: ArrayLibrary,
    options: Options,
    scores: Array,
    lengths: Array | None,
    row_starts: Array | None,
) -> tuple[Array, Array | None, Array | None]:
    """After ``error``: the inputs in a form that can be passed, or an error naming what is wrong.

    DLPack refuses read-only NumPy arrays, which are fine as inputs, and its own complaints name
    neither the argument nor what is allowed. (Outputs were looked at before.)
    """
    _plan(library, options, scores)
    given = (scores, lengths, row_starts)
    for name, array in zip(("scores", "lengths", "row_starts"), given, strict=True):
        if array is not None:
            arrays.check_memory(name, array)
    readable = tuple(None if array is None else arrays.readable(array) for array in given)
    if all(new is old for new, old in zip(readable, given, strict=True)):
        raise error
    return readable[0], readable[1], readable[2]
