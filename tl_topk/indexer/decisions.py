"""Which way serves a call of the indexer: asked once for calls that differ in tensors alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tl_topk import dispatch
from tl_topk.dispatch import (
    AUTO,
    Choice,
    Decision,
    check_backend,
    on_this_machine,
    scoped_policy,
    watch,
)
from tl_topk.dispatch.candidates import MOST_FUSED
from tl_topk.indexer.arguments import Arguments
from tl_topk.indexer.sizes import DIM
from tl_topk.plans import ClockCache
from tl_topk.problem import Problem, Scoring
from tl_topk.tile.library import find
from tl_topk.tile.toolchain import missing_tool

__all__ = ["decide", "decided"]


@dataclass(slots=True)
class _Decided:
    """An entry of the cache of decisions."""

    decision: Decision
    recent: bool = False


_DECIDED: ClockCache[_Decided] = ClockCache(capacity=512)
watch(_DECIDED.hide, _DECIDED.clear)


def decided(a: Arguments, choice: Choice) -> Decision:
    """What :func:`decide` answers, asked once for calls that differ in tensors alone."""
    if choice == AUTO:
        choice = scoped_policy() or choice
    key = (a.rows, a.width, a.k, a.heads, a.next_n, a.has_scales, a.block_table is None, a.order,
           a.device, choice)  # fmt: skip
    found = _DECIDED.look(key)
    if found is None:
        found = _DECIDED.add(key, _Decided(decide(a, choice)))
    found.recent = True
    return found.decision


def decide(a: Arguments, choice: Choice) -> Decision:
    """Which way serves the call, and why.

    Raises ValueError where the choice is unknown or cannot serve it, RuntimeError where nothing on
    this machine can.
    """
    check_backend(choice)
    if choice == "pipelined" and a.device.type == "cuda":
        _check_fused(a)
    problem = Problem(
        rows=a.rows,
        width=a.width,
        k=a.k,
        dtype="float32",
        order=a.order,
        values=False,
        device_type=a.device.type,
        device_id=a.device.index or 0,
        scoring=Scoring(
            heads=a.heads,
            dim=DIM,
            key_format="float8" if a.has_scales else "bfloat16",
            paged=a.block_table is not None,
            next_n=a.next_n,
        ),
    )
    return dispatch.decide(_with_kernels(problem, a), choice)


def _with_kernels(problem: Problem, a: Arguments) -> Problem:
    """``problem`` with the facts of this machine, which may lack the fused kernel alone."""
    problem = on_this_machine(problem)
    if problem.gpu is None or a.block_table is None or "pipelined" in dict(problem.absent):
        return problem
    missing = missing_tool()
    if missing is None:
        return problem
    from tl_topk.indexer.device_scores import fused_kernel

    kernel, arch = fused_kernel(a)
    if find(kernel, arch) is not None:
        return problem
    why = f"kernel {kernel.name} for {arch} has not been compiled, and cannot be: {missing}"
    return replace(problem, absent=(*problem.absent, ("pipelined", why)))


def _check_fused(a: Arguments) -> None:
    """Names the argument that the fused kernel, which was asked for, does not serve."""
    if a.block_table is None:
        raise ValueError("block_table: expected a tensor with backend='pipelined', got None")
    if a.order != "any":
        raise ValueError(f"order: expected 'any' with backend='pipelined', got {a.order!r}")
    if a.k > MOST_FUSED:
        raise ValueError(f"k: expected at most {MOST_FUSED} with backend='pipelined', got {a.k}")
