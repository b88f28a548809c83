"""What a policy answers, as plain immutable values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tl_topk.problem import Problem

__all__ = ["IN_WORDS", "Candidate", "Config", "Decision", "Policy"]


@dataclass(frozen=True, slots=True)
class Config:
    """How a candidate would be launched; what means nothing to it is 0.

    Attributes:
        scope: what works on a row: ``"block"``, ``"cluster"``, ``"grid"`` or ``"threads"``.
        blocks_per_row: thread blocks that share a row.
        cluster_blocks: of a cluster.
        grid_blocks: thread blocks in all.
        threads: of a block.
        shared_bytes: dynamic shared memory of a block.
        workspace_bytes: device memory besides the call's arguments.
    """

    scope: str
    blocks_per_row: int = 0
    cluster_blocks: int = 0
    grid_blocks: int = 0
    threads: int = 0
    shared_bytes: int = 0
    workspace_bytes: int = 0

    def __str__(self) -> str:
        if self.scope == "cluster":
            return f"a cluster of {self.blocks_per_row} blocks a row"
        if self.scope == "block":
            return "a block a row"
        if self.scope == "grid":
            return f"{self.blocks_per_row} blocks a row"
        return "threads of the CPU"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to serve a problem.

    Attributes:
        backend: that it belongs to.
        kernel: what runs.
        config: how it is launched; None where it cannot be.
        estimate_us: microseconds that it is estimated to take; None where nothing is known.
        basis: what the estimate rests on: ``"fitted"`` to measurements on this kind of GPU,
            ``"extrapolated"`` from them to orders, k or widths that were not measured,
            ``"derived"`` from those on another one by device facts, ``"measured"`` on this GPU.
        refusal: why it cannot serve the problem; empty if it can.
        is_native_choice: whether the library launches it where nobody asks for blocks.
    """

    backend: str
    kernel: str
    config: Config | None = None
    estimate_us: float | None = None
    basis: str = ""
    refusal: str = ""
    is_native_choice: bool = True

    @property
    def name(self) -> str:
        """As benchmarks and calibrations call it."""
        if self.backend == "dsmem" and self.kernel != SCORE_AND_SELECT and self.config is not None:
            blocks = "" if self.config.scope == "block" else f" {self.config.blocks_per_row}"
            return f"dsmem {self.config.scope}{blocks}"
        return self.kernel


#: The kernels of problems whose scores are made first.
FUSED = "fused"
SCORE_AND_SELECT = "dsmem after scores"
#: What they do, for people.
IN_WORDS = {
    FUSED: "fused in one kernel (pipelined)",
    SCORE_AND_SELECT: "scores first, then dsmem",
}


@dataclass(frozen=True, slots=True)
class Decision:
    """Which backend serves a problem, and why. A user's own policy need only say these two.

    Attributes:
        backend: its name.
        reason: why, in one sentence.
        blocks_per_row: thread blocks that ``dsmem`` is to share a row among; 0 leaves it to the
            native library.
        kernel, config, estimate_us: of the candidate that was chosen.
        candidates: all of them, the chosen one first, then by estimate, last those that cannot
            serve the problem.
    """

    backend: str
    reason: str
    blocks_per_row: int = 0
    kernel: str = ""
    config: Config | None = None
    estimate_us: float | None = None
    candidates: tuple[Candidate, ...] = ()


#: A pure function. Any callable of this type is one.
Policy: TypeAlias = Callable[[Problem], Decision]
