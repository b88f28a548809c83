"""Several plans, and the one among them that fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm_ffi import register_object

from tl_topk._ffi.exports import PlanSetFields
from tl_topk._ffi.library import LIB
from tl_topk._ffi.plan import TopKPlan

__all__ = ["PlanSet", "run_set"]


@register_object("tl_topk.PlanSet")
class PlanSet(PlanSetFields):
    """A few plans that differ in the shape, dtype or device of their scores; none has a workspace.

    Immutable, so any number of threads may use one. It looks at the scores itself: reading and
    hashing their shape, dtype and device in Python costs more than all the rest of a call.
    """

    def __init__(self, plans: Sequence[TopKPlan]) -> None:
        self.__ffi_init__(plans)

    def run(
        self,
        scores: Any,
        indices: Any,
        values: Any = None,
        lengths: Any = None,
        row_starts: Any = None,
    ) -> bool:
        """:meth:`TopKPlan.run` of the first plan made for scores like these.

        Returns:
            False, with nothing done, where there is none.
        """
        return run_set(self, scores, indices, values, lengths, row_starts) is None


#: :meth:`PlanSet.run` without keywords and without a Python call; trailing Nones may be left out.
#: None where it ran, False where no plan fits: making True would cost as much as a check.
run_set: Callable[..., bool | None] = LIB.get_function("run_plan_set")
