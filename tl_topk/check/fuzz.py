"""The loop: case after case until the time is up or one fails."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass

from tl_topk.check.case import Case
from tl_topk.check.generate import make_case
from tl_topk.check.shrink import shrink
from tl_topk.check.trial import failure
from tl_topk.placement import Placement

__all__ = ["Finding", "Report", "fuzz"]


@dataclass(frozen=True, eq=False)
class Finding:
    """A case whose answer departs from the contract, made small."""

    case: Case
    problem: str


@dataclass(frozen=True, eq=False)
class Report:
    """What was tried. ``finding`` is None when every answer was right."""

    first_seed: int
    cases: int
    rows: int
    seconds: float
    finding: Finding | None


def fuzz(
    backend: str,
    seconds: float,
    first_seed: int,
    progress: Callable[[float, int], None] = lambda seconds, cases: None,
) -> Report:
    """Tries the cases of ``first_seed``, ``first_seed + 1``, ... for ``seconds``, at least one.

    Stops at the first that fails and shrinks it. ``progress`` is told the seconds spent and the
    cases tried.
    """
    dtypes = _dtypes(backend)
    begin = time.monotonic()
    cases = rows = 0
    while True:
        case = make_case(first_seed + cases, dtypes)
        problem = failure(case, backend)
        cases += 1
        rows += case.rows
        spent = time.monotonic() - begin
        progress(spent, cases)
        if problem is not None:
            small = shrink(case, lambda smaller: failure(smaller, backend) is not None)
            finding = Finding(small, failure(small, backend) or problem)
            return Report(first_seed, cases, rows, spent, finding)
        if spent >= seconds:
            return Report(first_seed, cases, rows, spent, None)


def _dtypes(backend: str) -> tuple[str, ...]:
    """bfloat16 on the CPU needs torch, as NumPy does not know it."""
    on_cpu = Placement.of(backend, "float32").device_type == "cpu"
    if on_cpu and importlib.util.find_spec("torch") is None:
        return "float32", "float16"
    return "float32", "float16", "bfloat16"
