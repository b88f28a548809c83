"""What would be decided for a problem, and why: no arrays, and no GPU, needed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, TypedDict

from tl_topk import _ffi
from tl_topk.dispatch import AUTO, Candidate, Policy, decide, on_this_machine, policy_named
from tl_topk.dispatch.devices import device_named
from tl_topk.problem import MAX_WIDTH, Problem, Scoring
from tl_topk.scalars import checked_flag, checked_integer

__all__ = ["Explanation", "explain"]


class Explanation(TypedDict):
    """Plain data, ready for JSON.

    Attributes:
        backend, kernel: what runs.
        config: its launch: scope, blocks and so on; None where nobody can know it yet.
        reason: why, in one sentence.
        estimate_us: microseconds it is estimated to take; None where nothing is known.
        candidates: everyone, the chosen one first, then by estimate: ``backend``, ``kernel``,
            ``config``, ``estimate_us``, ``basis`` of the estimate (``"fitted"``, ``"derived"`` or
            ``"measured"``), and ``refusal``, why it cannot serve the problem.
        problem: what was asked, with the device's facts.
    """

    backend: str
    kernel: str
    config: dict[str, Any] | None
    reason: str
    estimate_us: float | None
    candidates: list[dict[str, Any]]
    problem: dict[str, Any]


def explain(
    rows: int,
    length: int,
    k: int,
    *,
    dtype: str = "float32",
    order: str = "any",
    largest: bool = True,
    values: bool = False,
    heads: int | None = None,
    dim: int = 128,
    key_format: str = "float8",
    next_n: int = 1,
    paged: bool = False,
    policy: Policy | str | None = None,
    device: str | None = None,
) -> Explanation:
    """The decision for a problem, the runners-up with their estimates, and why.

    Args:
        rows: of scores; with ``heads``, of queries: ``next_n`` for each sequence.
        length: of a row of scores, or keys that a query sees.
        k, dtype, order, largest, values: as for :func:`topk`.
        heads: of the indexer that makes the scores first, as :func:`indexer_topk` does; None where
            they lie ready.
        dim, key_format, next_n, paged: its keys: ``"float8"`` or ``"bfloat16"``, queries that share
            them, whether they lie on pages.
        policy: see :func:`set_policy`; by default the current one.
        device: ``"cpu"``, ``"cuda"``, ``"cuda:1"``, or the name of a GPU that need not be here,
            such as ``"h200"``; by default the first GPU, or the CPU where there is none.

    Returns:
        An :class:`Explanation`, a dict ready for JSON.

    Raises:
        TypeError, ValueError: an argument is not as described; the message names it, what was
            allowed and what it got.
        RuntimeError: nothing here can serve the problem, or the device is not there.

    Example:
        >>> import tl_topk
        >>> tl_topk.explain(1, 131072, 2048, device="h200")["backend"]
        'dsmem'
    """
    scoring = None
    if heads is not None:
        paged = checked_flag("paged", paged)
        scoring = Scoring(heads, dim, key_format, paged, next_n)
    if next_n != 1 and (scoring is None or not paged or rows % next_n):
        raise ValueError(
            f"next_n: expected 1, or with heads and paged a divisor of rows={rows}, got {next_n}"
        )
    if device is None:
        device = "cuda" if _ffi.device_count() > 0 else "cpu"
    device_type, device_id, gpu = device_named(device)
    problem = Problem(
        rows=checked_integer("rows", rows, 0, MAX_WIDTH),
        width=checked_integer("length", length, 0, MAX_WIDTH),
        k=k,
        dtype=dtype,
        order=order,
        largest=largest,
        values=values,
        device_type=device_type,
        device_id=device_id,
        scoring=scoring,
        gpu=gpu,
    )
    problem = on_this_machine(problem)
    decision = decide(problem, AUTO if policy is None else policy_named(policy))
    asked = asdict(problem)
    del asked["absent"]
    return Explanation(
        backend=decision.backend,
        kernel=decision.kernel,
        config=None if decision.config is None else asdict(decision.config),
        reason=decision.reason,
        estimate_us=decision.estimate_us,
        candidates=[_plain(candidate) for candidate in decision.candidates],
        problem=asked,
    )


def _plain(candidate: Candidate) -> dict[str, Any]:
    data = asdict(candidate)
    del data["is_native_choice"]
    return {"name": candidate.name} | data
