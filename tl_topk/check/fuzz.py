"""The loop: seed after seed until the time is up, or one fails."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tl_topk.check.case import Case
from tl_topk.check.generate import make_case
from tl_topk.check.shrink import shrink
from tl_topk.check.trial import failure
from tl_topk.placement import Placement

if TYPE_CHECKING:
    from tl_topk.check.batch import Batch, Wrong

__all__ = ["Finding", "Report", "fuzz"]


@dataclass(frozen=True, eq=False)
class Finding:
    """A case whose answer departs from the contract, made small."""

    case: Case
    problem: str


@dataclass(frozen=True, eq=False)
class Report:
    """What was tried. ``finding`` is None when every answer was right.

    Attributes:
        cases: small problems compared with the plain reference.
        batches: of thousands of rows, certified where they lie.
        rows, elements: of both together.
        launches: of both together, a call each.
    """

    first_seed: int
    cases: int
    batches: int
    rows: int
    elements: int
    launches: int
    seconds: float
    finding: Finding | None


def fuzz(
    backend: str,
    first_seed: int,
    seconds: float | None = None,
    rows: int | None = None,
    progress: Callable[[float, int], None] = lambda seconds, rows: None,
) -> Report:
    """Tries ``first_seed``, ``first_seed + 1``, ...: an even seed means a case, an odd one a batch
    (a case as well, where torch is missing).

    Stops once ``seconds`` are over or so many ``rows`` have been tried, whichever is given and
    comes first, but not before one seed has been tried; or at the first that fails, which it
    shrinks. ``progress`` is told the seconds spent and the rows tried.
    """
    dtypes = _dtypes(backend)
    device = _batch_device(backend)
    begin = time.monotonic()
    cases = batches = rows_tried = elements = launches = 0
    while True:
        seed = first_seed + cases + batches
        if device is not None and seed % 2:
            from tl_topk.check.batch import make_batch  # needs torch

            batch = make_batch(seed, device)
            wrong = batch.failure(backend)
            finding = None if wrong is None else _finding(batch, wrong, backend)
            batches += 1
            shape, launches = (batch.rows, batch.width), launches + len(batch.launches)
        else:
            case = make_case(seed, dtypes)
            problem = failure(case, backend)
            finding = None if problem is None else _shrunk(case, problem, backend)
            cases += 1
            shape, launches = (case.rows, case.width), launches + 1
        rows_tried += shape[0]
        elements += shape[0] * shape[1]
        spent = time.monotonic() - begin
        progress(spent, rows_tried)
        if (
            finding is not None
            or (seconds is not None and spent >= seconds)
            or (rows is not None and rows_tried >= rows)
        ):
            return Report(
                first_seed, cases, batches, rows_tried, elements, launches, spent, finding
            )


def _shrunk(case: Case, problem: str, backend: str) -> Finding:
    small = shrink(case, lambda smaller: failure(smaller, backend) is not None)
    return Finding(small, failure(small, backend) or problem)


def _finding(batch: Batch, wrong: Wrong, backend: str) -> Finding:
    """The first part of the batch that fails on its own, made small; at worst the whole launch."""
    problem = f"row {wrong.row} of a batch: {wrong.problem}"
    for case in batch.cases(wrong.row):
        if failure(case, backend) is not None:
            return _shrunk(case, problem, backend)
    return Finding(case, f"{problem}; not when its launch was tried again")


def _batch_device(backend: str) -> str | None:
    """Where batches lie; None where torch is missing."""
    if importlib.util.find_spec("torch") is None:
        return None
    return Placement.of(backend, "float32").device_type


def _dtypes(backend: str) -> tuple[str, ...]:
    """bfloat16 on the CPU needs torch, as NumPy does not know it."""
    on_cpu = Placement.of(backend, "float32").device_type == "cpu"
    if on_cpu and importlib.util.find_spec("torch") is None:
        return "float32", "float16"
    return "float32", "float16", "bfloat16"
