"""The plan object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm_ffi import register_object

from tl_topk._ffi.exports import TopKPlanFields
from tl_topk._ffi.library import LIB

__all__ = ["ANY_PAGE", "TopKPlan"]

#: Of :meth:`TopKPlan.run_mapped`'s ``cache_pages``: no number in a table is too large.
ANY_PAGE = 1 << 31


#: What makes a plan of a backend anew from the constructor's arguments, where that is not the
#: constructor. Filled in by those backends.
MAKERS: dict[str, Callable[..., Any]] = {}


@register_object("tl_topk.TopKPlan")
class TopKPlan(TopKPlanFields):
    """Everything about one problem that can be settled before the scores are known.

    :meth:`run` then only checks and launches. A plan pickles and copies (a copy has a workspace of
    its own), is rebuilt by passing its fields of the same names, and its repr explains it.

    A plan may be run from several threads at once as long as each passes a workspace or the plan
    needs none (``workspace_bytes == 0``, always so on the CPU). Its own workspace serves one launch
    at a time: a second thread is refused with RuntimeError, launches must follow one another on one
    stream or be ordered by events, and a graph that captured one needs the plan to stay alive.

    Args:
        rows: rows of the scores; 1 also admits 1-D scores.
        width: elements a row can hold; lengths may make it shorter.
        k: how many to select, of each row.
        dtype: ``"float32"``, ``"float16"`` or ``"bfloat16"``.
        order: of the slots, ``"any"``, ``"index"`` or ``"value"``.
        largest: False selects the smallest.
        values: whether values are returned as well as indices.
        device_type: ``"cpu"`` or ``"cuda"``.
        device_id: which GPU.
        threads: the most the CPU backend may use; 0 means all cores.
        blocks_per_row: thread blocks of a GPU that share a row: 1, or a cluster of 2, 4, 8 or 16;
            0 leaves it to the library.

    Attributes:
        backend: ``"cpu"`` or ``"dsmem"`` (``"pipelined"`` for plans made by that backend).
        config: the :class:`LaunchConfig`; None unless the backend is ``"dsmem"``.
        reason: why so, in one sentence.
        workspace_bytes: device memory that a launch needs besides its arguments.

    Raises:
        ValueError: an argument is not as described.
        RuntimeError: there is no such GPU, or no kernels for it in this build.

    Example:
        >>> import numpy as np
        >>> from tl_topk import TopKPlan
        >>> plan = TopKPlan(rows=1, width=4, k=2, order="value", values=False)
        >>> indices = np.empty(2, np.int32)
        >>> plan.run(np.array([0.5, 2.0, 1.0, 2.0], np.float32), indices)
        >>> indices.tolist()
        [1, 3]
    """

    def __init__(
        self,
        rows: int,
        width: int,
        k: int,
        dtype: str = "float32",
        order: str = "any",
        largest: bool = True,
        values: bool = True,
        device_type: str = "cpu",
        device_id: int = 0,
        threads: int = 0,
        blocks_per_row: int = 0,
    ) -> None:
        self.__ffi_init__(
            rows,
            width,
            k,
            dtype,
            order,
            largest,
            values,
            device_type,
            device_id,
            threads,
            blocks_per_row,
        )

    def overlap(self) -> None:
        """From now on launches may begin before the kernel ahead of them on the stream has ended.

        They wait for it before they read anything, but are on the GPU by then: programmatic
        dependent launch, for a kernel ahead that allows it. Nothing on a CPU. Not to be called
        while another thread runs the plan; a pickled plan forgets it.
        """
        _overlap(self)

    def run(
        self,
        scores: Any,
        indices: Any,
        values: Any = None,
        lengths: Any = None,
        row_starts: Any = None,
        workspace: Any = None,
    ) -> None:
        """Selects from ``scores`` into ``indices`` (and ``values``) on the current stream.

        Args:
            scores: ``(rows, width)``, or ``(width,)`` where rows is 1; unit stride in the last
                dimension, any row stride.
            indices: int32 ``(rows, k)`` or ``(k,)``, written.
            values: the same in the scores' dtype, written; given exactly if the plan has values.
            lengths: optional int32 or int64 ``(rows,)``: elements of each row that count.
            row_starts: optional, as lengths: where each row starts.
            workspace: optional uint8 ``(n,)``, n at least ``workspace_bytes``, aligned to 16 bytes
                and zeroed once by the caller; every launch leaves it zeroed. Without it the plan
                uses its own.

        Raises:
            TypeError, ValueError: an argument is not as described; nothing was launched.
            RuntimeError: another thread is using the plan's own workspace.
        """
        if row_starts is None and workspace is None:
            if lengths is not None:
                _run(self, scores, indices, values, lengths)
            elif values is None:
                _run(self, scores, indices)
            else:
                _run(self, scores, indices, values)
        else:
            _run(self, scores, indices, values, lengths, row_starts, workspace)

    def run_mapped(
        self,
        scores: Any,
        indices: Any = None,
        slots: Any = None,
        ragged: Any = None,
        lengths: Any = None,
        row_starts: Any = None,
        row_ends: Any = None,
        page_table: Any = None,
        page_starts: Any = None,
        row_to_request: Any = None,
        query_starts: Any = None,
        offsets: Any = None,
        page_size: int = 1,
        next_n: int = 1,
        compress_ratio: int = 1,
        cache_pages: int = ANY_PAGE,
        workspace: Any = None,
    ) -> None:
        """:meth:`run` of a plan without values, for engines: any of three outputs in one launch.

        Slot j of each output speaks of the same element, and holds -1 where there is none.

        Args:
            scores, row_starts, workspace: as :meth:`run`.
            indices, slots, ragged: int32 ``(rows, k)`` or ``(k,)``, written; at least one.
            lengths: optional int32 or int64, ``(requests,)`` or ``(requests, next_n)``: see
                :func:`tl_topk.topk_paged`.
            row_ends: optional int32 or int64 ``(rows,)``, instead of lengths: where each row ends,
                counted as row_starts are.
            page_table, page_starts, row_to_request, query_starts, page_size: make slots of
                indices; see :func:`tl_topk.topk_paged`.
            offsets: int32 or int64 ``(rows,)``: make ragged indices of indices.
            next_n, compress_ratio: see :func:`tl_topk.topk_paged`.
            cache_pages: pages of the cache, 1 to 2**31: a larger number in the table is no page.

        Raises:
            TypeError, ValueError: an argument is not as described; nothing was launched.
            RuntimeError: another thread is using the plan's own workspace.
        """
        run_mapped(
            self,
            scores,
            indices,
            slots,
            ragged,
            lengths,
            row_starts,
            row_ends,
            page_table,
            page_starts,
            row_to_request,
            query_starts,
            offsets,
            page_size,
            next_n,
            compress_ratio,
            cache_pages,
            workspace,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return MAKERS.get(self.backend, TopKPlan), (
            self.rows,
            self.width,
            self.k,
            self.dtype,
            self.order,
            self.largest,
            self.values,
            self.device_type,
            self.device_id,
            self.threads,
            self.blocks_per_row,
        )


#: ``run(plan, scores, indices, ...)``: the native function, without keywords. Trailing Nones may be
#: left out: converting one costs as much as a check.
_run: Callable[..., None] = LIB.get_function("run_plan")
_methods = {method.name: method.func for method in vars(TopKPlan)["__tvm_ffi_type_info__"].methods}
#: :meth:`TopKPlan.run_mapped` without keywords and without a Python call.
run_mapped: Callable[..., None] = _methods["run_mapped"]
_overlap: Callable[..., None] = _methods["overlap"]
