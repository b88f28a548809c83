"""Selections in the form that attention reads by: slots of a paged cache, places in ragged keys.

One native launch selects and maps. The plan is that of :func:`tl_topk.topk_indices`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

from tl_topk import arrays
from tl_topk._ffi.plan import ANY_PAGE, run_mapped
from tl_topk.arrays import LIBRARIES, Array, ArrayLibrary, find_library
from tl_topk.dispatch import Policy, chosen
from tl_topk.hint import check_hint, fits
from tl_topk.keywords import GUARD, keyword_options, refuse_positional
from tl_topk.plans import PLANS, CachedPlan
from tl_topk.problem import checked_k
from tl_topk.scalars import checked_integer
from tl_topk.select import NOT_PASSED, Options, cached_plan

__all__ = [
    "MAX_PAGE_SIZE",
    "Mapping",
    "Outputs",
    "select_mapped",
    "select_mapped_eagerly",
    "topk_paged",
    "topk_ragged",
]

MAX_PAGE_SIZE = 2**30
_MAX_INT32 = 2**31 - 1
_CANNOT_MAP = "pipelined"  # the backend whose kernels write plain indices alone

_find_plan = PLANS.find


class Outputs(NamedTuple):
    """int32 ``(rows, k)`` each; None where not wanted. In the order of the native call."""

    indices: Array | None = None
    slots: Array | None = None
    ragged: Array | None = None


class Mapping(NamedTuple):
    """What is known of rows and requests, in the order of the native call."""

    lengths: Array | None = None
    row_starts: Array | None = None
    row_ends: Array | None = None
    page_table: Array | None = None
    page_starts: Array | None = None
    row_to_request: Array | None = None
    query_starts: Array | None = None
    offsets: Array | None = None
    page_size: int = 1
    next_n: int = 1
    compress_ratio: int = 1


_ARRAYS = Mapping._fields[:8]


@keyword_options
def topk_paged(
    scores: Array,
    k: int,
    page_table: Array,
    _: NoReturn = GUARD,
    page_size: int = 1,
    lengths: Array | None = None,
    row_starts: Array | None = None,
    page_starts: Array | None = None,
    row_to_request: Array | None = None,
    query_starts: Array | None = None,
    next_n: int = 1,
    compress_ratio: int = 1,
    offsets: Array | None = None,
    largest: bool = True,
    order: str = "any",
    hint: Array | None = None,
    backend: str = "auto",
    policy: Policy | str | None = None,
    out: Array | None = None,
    out_indices: Array | None = None,
    out_ragged: Array | None = None,
) -> Array:
    """The ``k`` largest scores of every row, as slots of a paged cache, in one launch.

    An index ``i`` of a row becomes ``page_table[b, i // page_size] * page_size + i % page_size``,
    where ``b`` is the row's request. Slots are -1 where there is no element and where the table has
    no page for it: past its last column, or where it holds a negative number. What is selected, and
    in which order, is as for :func:`topk_indices`.

    Args:
        scores, k, largest, order, backend, policy: as for :func:`topk_indices`. Not for JAX.
        page_table: int32 ``(requests, pages)``, any row stride: the page of the cache that holds
            each page of a request. ``requests`` is ``rows / next_n``, or any number with
            ``row_to_request`` or ``query_starts``.
        page_size: elements of a page, a power of two up to 2**30.
        lengths: optional int32 or int64 ``(requests,)`` on the scores' device, ``(rows,)`` where
            ``next_n`` is 1: how many tokens each request has. Never read by the host.
            ``(requests, next_n)`` gives each row its own.
        row_starts: optional int32 or int64 ``(rows,)``: where each row starts. Indices are relative
            to it.
        page_starts: optional int32 or int64 ``(rows,)``: the column of the table in which the
            pages of a row begin.
        row_to_request: optional int32 or int64 ``(rows,)``: the request of each row, by default
            ``row // next_n``. A row whose request is not in the table has no slots.
        query_starts: the same as int32 or int64 ``(requests + 1,)``, ascending: request ``b`` has
            rows ``query_starts[b]`` to ``query_starts[b + 1] - 1``.
        next_n: rows of each request, as speculative decoding makes them: of a request of length
            ``n`` row ``i`` sees ``n - next_n + i + 1`` tokens.
        compress_ratio: tokens that one element stands for. A row's length is the number of tokens
            it sees divided by it, rounded down.
        offsets: optional, with ``out_ragged``: as for :func:`topk_ragged`.
        hint: optional int32 ``(rows, m)`` (``(m,)`` for 1-D scores): indices that may be among the
            best, such as the previous step's. Never changes the answer; see :func:`topk_indices`.
        out: optional int32 array of the result's shape for the slots.
        out_indices: optional, the same for the indices themselves.
        out_ragged: optional, the same for indices plus the row's offset.

    Returns:
        int32 ``(rows, k)``, ``(k,)`` for 1-D scores; ``out`` itself if it was given. Slot ``j`` of
        every output speaks of the same element.

    Raises:
        TypeError, ValueError: an argument is not as described; nothing has been written then.
        RuntimeError: nothing on this machine can serve the scores' device.

    Example:
        >>> import numpy as np
        >>> import tl_topk
        >>> scores = np.array([[0.5, 2.0, 1.0, 3.0]], np.float32)
        >>> pages = np.array([[7, 4]], np.int32)
        >>> tl_topk.topk_paged(scores, 3, pages, page_size=2, order="index").tolist()
        [[15, 8, 9]]
    """
    if _ is not GUARD:
        refuse_positional("topk_paged", "scores, k and page_table")
    plan = _ready_plan(scores, k, largest, order, backend, hint, out, out_indices, out_ragged)
    if (
        plan is not None
        and page_size.__class__ is next_n.__class__ is compress_ratio.__class__ is int
    ):
        try:
            slots = plan.empty_indices() if out is None else out
            run_mapped(
                plan.plan,
                scores,
                out_indices,
                slots,
                out_ragged,
                lengths,
                row_starts,
                None,
                page_table,
                page_starts,
                row_to_request,
                query_starts,
                offsets,
                page_size,
                next_n,
                compress_ratio,
                ANY_PAGE,
                None,
            )
            return slots
        except NOT_PASSED:
            pass
    mapping = Mapping(
        lengths=lengths,
        row_starts=row_starts,
        page_table=page_table,
        page_starts=page_starts,
        row_to_request=row_to_request,
        query_starts=query_starts,
        offsets=offsets,
        page_size=page_size,
        next_n=next_n,
        compress_ratio=compress_ratio,
    )
    if (offsets is None) != (out_ragged is None):
        raise ValueError("offsets: expected together with out_ragged, got one without the other")
    outputs = Outputs(out_indices, out, out_ragged)
    choice = backend if policy is None else chosen(backend, policy)
    options = Options(k, largest, order, choice, False)
    return select_mapped(options, scores, mapping, outputs, "slots", hint).slots


@keyword_options
def topk_ragged(
    scores: Array,
    k: int,
    offsets: Array,
    _: NoReturn = GUARD,
    lengths: Array | None = None,
    row_starts: Array | None = None,
    next_n: int = 1,
    compress_ratio: int = 1,
    largest: bool = True,
    order: str = "any",
    hint: Array | None = None,
    backend: str = "auto",
    policy: Policy | str | None = None,
    out: Array | None = None,
    out_indices: Array | None = None,
) -> Array:
    """The ``k`` largest scores of every row, as places in keys that lie one row after another.

    An index ``i`` of row ``r`` becomes ``i + offsets[r]``; -1 stays where there is no element.

    Args:
        offsets: int32 or int64 ``(rows,)`` on the scores' device. Sums are int32.
        scores, k, lengths, row_starts, next_n, compress_ratio, largest, order, hint, backend,
            policy: as for :func:`topk_paged`.
        out: optional int32 array of the result's shape.
        out_indices: optional, the same for the indices themselves.

    Returns:
        int32 ``(rows, k)``, ``(k,)`` for 1-D scores; ``out`` itself if it was given.

    Raises:
        TypeError, ValueError: an argument is not as described; nothing has been written then.
        RuntimeError: nothing on this machine can serve the scores' device.

    Example:
        >>> import numpy as np
        >>> import tl_topk
        >>> scores = np.array([[0.5, 2.0], [3.0, 1.0]], np.float32)
        >>> tl_topk.topk_ragged(scores, 1, np.array([0, 100])).tolist()
        [[1], [100]]
    """
    if _ is not GUARD:
        refuse_positional("topk_ragged", "scores, k and offsets")
    plan = _ready_plan(scores, k, largest, order, backend, hint, out, out_indices)
    if plan is not None and next_n.__class__ is compress_ratio.__class__ is int:
        try:
            places = plan.empty_indices() if out is None else out
            run_mapped(
                plan.plan,
                scores,
                out_indices,
                None,
                places,
                lengths,
                row_starts,
                None,
                None,
                None,
                None,
                None,
                offsets,
                1,
                next_n,
                compress_ratio,
                ANY_PAGE,
                None,
            )
            return places
        except NOT_PASSED:
            pass
    mapping = Mapping(
        lengths=lengths,
        row_starts=row_starts,
        offsets=offsets,
        next_n=next_n,
        compress_ratio=compress_ratio,
    )
    outputs = Outputs(out_indices, None, out)
    choice = backend if policy is None else chosen(backend, policy)
    options = Options(k, largest, order, choice, False)
    return select_mapped(options, scores, mapping, outputs, "ragged", hint).ragged


def _ready_plan(
    scores: Array, k: int, largest: bool, order: str, backend: str, hint: Any, *outputs: Any
) -> CachedPlan | None:
    """The fast lane of ``tl_topk.api`` for calls that map: the plan of a problem met before, for
    plain torch tensors. Whatever it does not recognise goes the general way.
    """
    kind = arrays.Tensor
    if (
        scores.__class__ is kind
        and k.__class__ is int
        and not arrays.is_tracing()
        and not arrays.dispatch_modes()
        and (hint is None or fits(hint, scores))
        and all(out is None or out.__class__ is kind for out in outputs)
    ):
        try:
            plan = _find_plan(
                (scores.shape, scores.dtype, scores.get_device(), k, largest, order, backend, False)
            )
        except NOT_PASSED:
            return None
        if plan is not None and plan.is_bare and not scores.is_neg():
            plan.recent = True
            return plan
    return None


def select_mapped(
    options: Options,
    scores: Array,
    mapping: Mapping,
    outputs: Outputs,
    wanted: str,
    hint: Array | None = None,
) -> Outputs:
    """``outputs``, filled; the one named ``wanted`` is allocated where it is None."""
    if hint is not None:
        check_hint(hint, scores)
    library = LIBRARIES.get(scores.__class__) or find_library(scores)
    if arrays.owner_of("scores", scores) == "jax":
        raise TypeError("scores: expected a torch tensor, a NumPy array or a CuPy array, got JAX's")
    for name, array in outputs._asdict().items():
        if array is not None:
            arrays.check_output(f"out {name}", array, like=scores)
    if library is None or arrays.is_tracing() or library.needs_operator(scores, options):
        from tl_topk import torch_op

        return torch_op.select_mapped(options, scores, mapping, outputs, wanted)
    options = options._replace(k=checked_k(options.k))
    if getattr(outputs, wanted) is None:
        plan = _mapping_plan(library, options, scores)
        outputs = outputs._replace(**{wanted: plan.empty_indices()})
    select_mapped_eagerly(library, options, scores, mapping, outputs)
    return outputs


def select_mapped_eagerly(
    library: ArrayLibrary, options: Options, scores: Array, mapping: Mapping, outputs: Outputs
) -> None:
    """:func:`select_mapped` into given outputs, for arrays that can be read as they are."""
    mapping = _checked_numbers(mapping)
    plan = _mapping_plan(library, options, scores)
    workspace = None
    if not plan.is_bare:
        workspace = library.workspace(scores, plan.plan.workspace_bytes)

    def run(
        scores: Array, indices: Array, _: None, slots: Array, ragged: Array, *others: Array
    ) -> None:
        run_mapped(
            plan.plan, scores, indices, slots, ragged, *others[:-1], *mapping[8:], ANY_PAGE,
            others[-1],
        )  # fmt: skip

    def launch(scores: Array, *given: Array | None) -> None:
        library.launch(
            run, scores, outputs.indices, None, outputs.slots, outputs.ragged, *given, workspace
        )

    try:
        launch(scores, *mapping[:8])
    except NOT_PASSED as error:
        launch(*_passable(error, scores, mapping))


def _mapping_plan(library: ArrayLibrary, options: Options, scores: Array) -> CachedPlan:
    """The plan of a problem, by a kernel that can map what it selects."""
    if options.backend == _CANNOT_MAP:
        raise ValueError(
            f"backend: expected 'auto' or 'dsmem' for slots and places in keys, got {_CANNOT_MAP!r}"
        )
    plan = cached_plan(library, options, scores)
    if plan.decision.backend == _CANNOT_MAP:  # by a policy that was asked about plain indices
        plan = cached_plan(library, options._replace(backend="dsmem"), scores)
    return plan


def _checked_numbers(mapping: Mapping) -> Mapping:
    return mapping._replace(
        page_size=checked_integer("page_size", mapping.page_size, 1, MAX_PAGE_SIZE),
        next_n=checked_integer("next_n", mapping.next_n, 1, _MAX_INT32),
        compress_ratio=checked_integer("compress_ratio", mapping.compress_ratio, 1, _MAX_INT32),
    )


def _passable(error: Exception, scores: Array, mapping: Mapping) -> list[Any]:
    """After ``error``: the inputs in a form that can be passed, or an error that names one."""
    named = {"scores": scores, **{name: getattr(mapping, name) for name in _ARRAYS}}
    for name, array in named.items():
        if array is not None:
            arrays.check_memory(name, array)
    readable = [None if a is None else arrays.readable(a) for a in named.values()]
    if all(new is old for new, old in zip(readable, named.values(), strict=True)):
        raise error
    return readable
