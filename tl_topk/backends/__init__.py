"""The backends, best first: each serves the whole contract on the devices it names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tl_topk.backends.cpu import CpuBackend
from tl_topk.backends.dsmem import DsmemBackend
from tl_topk.backends.pipelined import PipelinedBackend

if TYPE_CHECKING:
    from tl_topk._ffi import TopKPlan
    from tl_topk.problem import Problem

__all__ = ["BACKENDS", "Backend"]


class Backend(Protocol):
    """One way of selecting. Stateless: what it decides lives in the plans it makes."""

    @property
    def name(self) -> str: ...

    @property
    def device_type(self) -> str:
        """The kind of device its scores must lie on: ``"cpu"`` or ``"cuda"``."""

    def unavailable(self) -> str | None:
        """Why nothing can run here at all, in one clause; None when it can."""

    def lacks(self, problem: Problem) -> str | None:
        """Why ``problem`` cannot run here though others can, in one clause; None when it can."""

    def plan(self, problem: Problem, blocks_per_row: int = 0) -> TopKPlan:
        """Everything about ``problem`` that can be settled before the scores are known; 0 leaves
        the thread blocks that share a row to the backend.
        """


BACKENDS: dict[str, Backend] = {
    backend.name: backend for backend in (DsmemBackend(), PipelinedBackend(), CpuBackend())
}
