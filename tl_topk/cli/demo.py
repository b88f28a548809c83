"""``tl-topk demo``: the main job on real scores, checked and timed."""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import click
import numpy as np
from rich.table import Table

import tl_topk
from tl_topk.api import topk
from tl_topk.check.reference import best_of_row, widen
from tl_topk.cli.common import backend_option, json_option, print_json, show
from tl_topk.dispatch import AUTO
from tl_topk.files import FileError, open_scores
from tl_topk.placement import Placement, best_backend, bits_of
from tl_topk.select import planned

__all__ = ["demo"]

Ndarray: TypeAlias = "np.ndarray[Any, Any]"

_WRONG = 1
_TIMED_SECONDS = 0.5


@click.command()
@click.option("-k", type=click.IntRange(min=1), default=2048, show_default=True)
@backend_option
@click.option("--scores", type=click.Path(path_type=Path), help="Another file of scores.")
@json_option
@click.pass_context
def demo(context: click.Context, k: int, backend: str, scores: Path | None, as_json: bool) -> None:
    """Select the top K of rows of indexer scores; check against NumPy; time it.

    "auto" takes the GPU if there is one.
    """
    file = open_scores(scores or _find_scores())
    if file.rows == 0 or file.width == 0:
        raise FileError(f"{file.path}: holds no scores")
    host = bits_of(file.read(0, file.rows))
    placement = Placement.of(best_backend() if backend == AUTO else backend, file.dtype)
    placed = placement.put(host, file.dtype)

    result = topk(placed, k, order="value", backend=backend)
    indices = bits_of(result.indices).view(np.int32)
    rows = [_row(row, widen(bits, file.dtype), k) for row, bits in zip(indices, host, strict=True)]
    plan = planned(placed, k, backend=backend)
    report: dict[str, Any] = {
        "scores": str(file.path),
        "rows": file.rows,
        "width": file.width,
        "dtype": file.dtype,
        "k": k,
        "backend": plan.decision.backend,
        "reason": f"{plan.decision.reason}; {plan.plan.reason}",
        "correct": all(row["correct"] for row in rows),
        "microseconds": _times(placed, k, backend, placement),
        "selected": rows,
    }
    if as_json:
        print_json(report)
    else:
        _show(report)
    if not report["correct"]:
        context.exit(_WRONG)


def _find_scores() -> Path:
    """The project's full data beside the checkout, else the cut in it, else the wheel's sample."""
    package = Path(tl_topk.__file__).parent
    for checkout in (Path.cwd(), package.parent):
        for name in ("../shared/data/scores_128k.npy", "tests/data/scores_64k.npy"):
            if (checkout / name).is_file():
                return (checkout / name).resolve()
    return package / "data" / "scores_64k.npy"


def _row(indices: Ndarray, scores: Ndarray, k: int) -> dict[str, Any]:
    """What was selected of one row, and whether NumPy selects the same."""
    expected = best_of_row(scores, k, largest=True)
    found = indices[: expected.size]
    correct = bool((found == expected).all())
    return {
        "best_index": int(expected[0]) if correct else int(found[0]),
        "best": float(scores[found[0]]),
        "kth": float(scores[found[-1]]),
        "distinct": int(np.unique(found).size),
        "correct": correct,
    }


def _times(scores: Any, k: int, backend: str, placement: Placement) -> dict[str, float | None]:
    """Microseconds a call, all rows at once, outputs given: median of calls on a warm cache."""
    out = topk(scores, k, backend=backend)
    times: dict[str, float | None] = {
        "tl_topk": _median(lambda: topk(scores, k, backend=backend, out=out), placement),
        "torch.topk": None,
    }
    if importlib.util.find_spec("torch") is not None:
        import torch

        tensor = torch.as_tensor(scores)
        fewer = min(k, tensor.shape[-1])
        torch_out = torch.topk(tensor, fewer)
        pair = (torch_out.values, torch_out.indices)
        times["torch.topk"] = _median(lambda: torch.topk(tensor, fewer, out=pair), placement)
    return times


def _median(call: Callable[[], object], placement: Placement) -> float:
    # Launches overlap with the host's work, so a GPU is timed over many; a CPU call is its own.
    calls = 100 if placement.device_type == "cuda" else 1
    spent: list[float] = []
    deadline = time.perf_counter() + _TIMED_SECONDS
    while not spent or time.perf_counter() < deadline:
        placement.synchronize()
        begin = time.perf_counter_ns()
        for _ in range(calls):
            call()
        placement.synchronize()
        spent.append((time.perf_counter_ns() - begin) / 1e3 / calls)
    return statistics.median(spent)


def _show(report: dict[str, Any]) -> None:
    table = Table()
    for heading in ("row", "best", "at", f"value {report['k']}", "distinct", "as NumPy"):
        table.add_column(heading, justify="right")
    for number, row in enumerate(report["selected"]):
        table.add_row(
            str(number),
            f"{row['best']:.4f}",
            str(row["best_index"]),
            f"{row['kth']:.4f}",
            str(row["distinct"]),
            "yes" if row["correct"] else "NO",
        )
    show(
        f"The top {report['k']} of {report['rows']} rows x {report['width']} {report['dtype']}"
        f" from {report['scores']}",
        f"backend {report['backend']}: {report['reason']}",
        table,
    )
    for name, microseconds in report["microseconds"].items():
        time_taken = "torch is not installed" if microseconds is None else f"{microseconds:.1f} us"
        show(f"{name:>10}: {time_taken}")
    show("Every answer is NumPy's." if report["correct"] else "An answer differs from NumPy's.")
