"""The public functions.

Each begins with a *fast lane* for its commonest calls: plain torch tensors, a problem met before.
It does in one frame what :func:`tl_topk.select.select` does in general, because on the machines
that matter every Python call costs a tenth of the kernel. With ``out`` even the plan is found by
the native library: the scores' shape, dtype and device are never read here. The fast lane decides
nothing: whatever it does not recognise, or the native library refuses, goes the general way, which
also finds the words for what is wrong.
"""

from __future__ import annotations

from typing import NamedTuple, NoReturn

from tl_topk import arrays
from tl_topk._ffi.plan_set import run_set
from tl_topk.arrays import Array
from tl_topk.dispatch import Policy, chosen
from tl_topk.hint import check_hint, fits
from tl_topk.keywords import GUARD, keyword_options, refuse_positional
from tl_topk.plans import PLANS, SETS
from tl_topk.problem import checked_k
from tl_topk.select import NOT_PASSED, Options, select

__all__ = ["TopK", "topk", "topk_indices"]

_find_plan = PLANS.find
_index_sets, _sets = SETS
_find_index_set, _find_set = _index_sets.find, _sets.find


class TopK(NamedTuple):
    """The result of :func:`topk`; unpacks as ``values, indices``.

    Attributes:
        values: ``(rows, k)`` or ``(k,)`` in the scores' dtype, copied bit for bit.
        indices: int32 of the same shape, relative to the row's start; -1 where there is no element.
    """

    values: Array
    indices: Array


@keyword_options
def topk(
    scores: Array,
    k: int,
    _: NoReturn = GUARD,
    lengths: Array | None = None,
    row_starts: Array | None = None,
    largest: bool = True,
    order: str = "any",
    hint: Array | None = None,
    backend: str = "auto",
    policy: Policy | str | None = None,
    out: TopK | tuple[Array, Array] | None = None,
) -> TopK:
    """The ``k`` largest scores of every row and their positions, exactly.

    Equal scores go by lower index, NaN ranks behind every number, so the selected *set* is unique:
    the same on every backend, run and batch size. Runs on the current stream, reads nothing back.

    Args:
        scores: ``(length,)`` or ``(rows, length)``; float32, float16 or bfloat16; a torch tensor
            (CPU or CUDA), a NumPy array (ml_dtypes' bfloat16 as well), a CuPy array or, outside of
            ``jax.jit``, a JAX array; unit stride in the last dimension, any row stride.
        k: how many, at least 0. It may exceed the length: slots past ``min(length, k)`` come last
            and hold index -1 and value -inf (+inf for the smallest).
        lengths: optional int32 or int64 ``(rows,)`` (``(1,)`` for 1-D scores) on the scores'
            device: elements of each row that count. Clamped to the row, never read by the host.
        row_starts: optional, as ``lengths``: where each row starts. Indices are relative to it.
        largest: False selects the ``k`` smallest by the same rules mirrored (NaN still last).
        order: of the slots: ``"any"`` (fastest), ``"index"`` (ascending index) or ``"value"``
            (best value first, equal values by ascending index).
        hint: optional int32 ``(rows, m)`` (``(m,)`` for 1-D scores) like ``scores``: indices that
            may be among the best, such as the previous step's; any content. It never changes the
            answer and, as no kernel here is the faster for it, not the time either.
        backend: ``"auto"`` or the name of one of :func:`info`'s backends.
        policy: what decides for this call where ``backend`` names none: see
            :func:`tl_topk.set_policy`. Asked once per problem; the plan keeps the answer.
        out: optional pair ``(values, indices)`` to fill: the shapes and dtypes of the result. With
            it a call allocates nothing; pass a :class:`TopK` to get that same object back. Not for
            JAX, whose arrays are immutable.

    Returns:
        :class:`TopK` of arrays like ``scores``. If ``scores`` requires grad, ``values``
        back-propagate as a gather.

    Raises:
        TypeError, ValueError: an argument is not as described; the message names it, what it got
            and what is allowed. Nothing has been written then.
        RuntimeError: nothing on this machine can serve the scores' device.

    Example:
        >>> import numpy as np
        >>> import tl_topk
        >>> scores = np.array([[0.5, 2.0, 1.0, 2.0], [3.0, 0.0, 9.0, 9.0]], np.float32)
        >>> values, indices = tl_topk.topk(
        ...     scores, 2, lengths=np.array([4, 2], np.int32), order="value")
        >>> indices.tolist(), values.tolist()
        ([[1, 3], [0, 1]], [[2.0, 2.0], [3.0, 0.0]])
    """
    if policy is not None:
        backend = chosen(backend, policy)  # type: ignore[assignment] # a name of its own costs
    kind = arrays.Tensor
    if (
        scores.__class__ is kind
        and k.__class__ is int
        and _ is GUARD
        and not arrays.is_tracing()
        and not arrays.dispatch_modes()
        and (hint is None or fits(hint, scores))
    ):
        try:
            if out.__class__ is TopK:
                latest = _sets.latest
                # By identity, which is cheaper than equality: what only equals goes the other way.
                if not (
                    latest.k == k
                    and latest.largest is largest
                    and latest.order is order
                    and latest.backend is backend
                ):
                    ready = _find_set((k, largest, order, backend))
                    if ready is not None:
                        ready.recent = True
                        _sets.latest = ready
                else:
                    ready = latest
                if ready is not None:
                    values, indices = out.values, out.indices  # cheaper than unpacking
                    if (
                        values.__class__ is kind
                        and indices.__class__ is kind
                        and not (scores.requires_grad or values.requires_grad)
                        and arrays.forward_ad._current_level < 0
                    ) and (
                        # None is left out where it can be: passing it costs as much as a check.
                        run_set(ready.native, scores, indices, values, lengths, row_starts)
                        if row_starts is not None
                        else run_set(ready.native, scores, indices, values)
                        if lengths is None
                        else run_set(ready.native, scores, indices, values, lengths)
                    ) is None:
                        return out
            elif out is None:
                shape, dtype, device = scores.shape, scores.dtype, scores.get_device()
                plan = _find_plan((shape, dtype, device, k, largest, order, backend, True))
                if (
                    plan is not None
                    and plan.is_bare
                    and not (scores.requires_grad or scores.is_neg())
                    and arrays.forward_ad._current_level < 0
                ):
                    plan.recent = True
                    result = TopK(plan.empty_values(), plan.empty_indices())
                    plan.run(scores, result.indices, result.values, lengths, row_starts, None)
                    return result
        except NOT_PASSED:
            pass
    if _ is not GUARD:
        refuse_positional("topk", "scores and k")
    if hint is not None:
        check_hint(hint, scores)
    options = Options(_index(k), largest, order, backend, True)
    if out is None:
        return TopK(*select(options, scores, lengths, row_starts, None, None))
    result = _pair(out)
    select(options, scores, lengths, row_starts, result.values, result.indices)
    return result


@keyword_options
def topk_indices(
    scores: Array,
    k: int,
    _: NoReturn = GUARD,
    lengths: Array | None = None,
    row_starts: Array | None = None,
    largest: bool = True,
    order: str = "any",
    hint: Array | None = None,
    backend: str = "auto",
    policy: Policy | str | None = None,
    out: Array | None = None,
) -> Array:
    """The positions of the ``k`` largest scores of every row: :func:`topk` without the values.

    Arguments, order, errors and streams are those of :func:`topk`.

    Args:
        out: optional int32 array of the result's shape, on the scores' device.

    Returns:
        int32 ``(rows, k)`` (``(k,)`` for 1-D scores), relative to each row's start, all distinct;
        -1 in the slots past ``min(length, k)``. ``out`` itself if it was given. Not differentiable.

    Example:
        >>> import numpy as np
        >>> import tl_topk
        >>> scores = np.array([0.5, 2.0, 1.0, 2.0], np.float32)
        >>> tl_topk.topk_indices(scores, 3, order="index").tolist()
        [1, 2, 3]
    """
    if policy is not None:
        backend = chosen(backend, policy)  # type: ignore[assignment] # a name of its own costs
    kind = arrays.Tensor
    if (
        scores.__class__ is kind
        and k.__class__ is int
        and _ is GUARD
        and not arrays.is_tracing()
        and not arrays.dispatch_modes()
        and (hint is None or fits(hint, scores))
    ):
        try:
            if out.__class__ is kind:
                latest = _index_sets.latest
                if not (
                    latest.k == k
                    and latest.largest is largest
                    and latest.order is order
                    and latest.backend is backend
                ):
                    ready = _find_index_set((k, largest, order, backend))
                    if ready is not None:
                        ready.recent = True
                        _index_sets.latest = ready
                else:
                    ready = latest
                if (
                    ready is not None
                    and (
                        run_set(ready.native, scores, out, None, lengths, row_starts)
                        if row_starts is not None
                        else run_set(ready.native, scores, out)
                        if lengths is None
                        else run_set(ready.native, scores, out, None, lengths)
                    )
                    is None
                ):
                    return out
            elif out is None:
                shape, dtype, device = scores.shape, scores.dtype, scores.get_device()
                plan = _find_plan((shape, dtype, device, k, largest, order, backend, False))
                if plan is not None and plan.is_bare and not scores.is_neg():
                    plan.recent = True
                    indices = plan.empty_indices()
                    plan.run(scores, indices, None, lengths, row_starts, None)
                    return indices
        except NOT_PASSED:
            pass
    if _ is not GUARD:
        refuse_positional("topk_indices", "scores and k")
    if hint is not None:
        check_hint(hint, scores)
    options = Options(_index(k), largest, order, backend, False)
    return select(options, scores, lengths, row_starts, None, out)[1]


def _index(k: int) -> int:
    # A look at a symbolic k would fix its value: while tracing, the operator's schema checks it.
    return k if arrays.is_tracing() else checked_k(k)


def _pair(out: object) -> TopK:
    # By type: a tensor of two rows would unpack as well.
    if not isinstance(out, (tuple, list)):
        raise TypeError(f"out: expected a pair (values, indices), got {type(out).__name__}")
    if len(out) != 2 or out[0] is None or out[1] is None:
        kinds = ", ".join(type(array).__name__ for array in out)
        raise TypeError(f"out: expected a pair (values, indices), got ({kinds})")
    return out if isinstance(out, TopK) else TopK(*out)
