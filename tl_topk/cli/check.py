"""``tl-topk check``: random and adversarial inputs against the reference."""

from __future__ import annotations

import secrets
import time
from pathlib import Path

import click

from tl_topk.check import Finding, Report, failure, fuzz, load_case, save_case
from tl_topk.cli.common import backend_option, json_option, note, print_json, progress, show
from tl_topk.dispatch import AUTO, require
from tl_topk.files import FileError
from tl_topk.placement import best_backend

__all__ = ["check"]

_DIFFERENT = 1
_SECONDS = 10.0


@click.command()
@click.option(
    "--seconds", type=click.FloatRange(min=0), help="How long.  [default: 10, without --rows]"
)
@click.option("--rows", type=click.IntRange(min=1), help="Stop after so many rows.")
@backend_option
@click.option("--seed", type=click.IntRange(min=0), help="First seed; drawn when left out.")
@click.option("--replay", type=click.Path(path_type=Path), help="Run one reproducer instead.")
@click.option(
    "--directory",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=".",
    help="Where a reproducer is written.  [default: here]",
)
@json_option
@click.pass_context
def check(
    context: click.Context,
    seconds: float | None,
    rows: int | None,
    backend: str,
    seed: int | None,
    replay: Path | None,
    directory: Path,
    as_json: bool,
) -> None:
    """Compare a backend with a slow, obvious reference on random and adversarial inputs.

    In turn a small problem, compared with a full sort, and (with torch) a batch of thousands of
    rows, whose answers are certified without one.

    On the first difference it exits 1 and leaves a small reproducer for --replay.
    """
    backend = best_backend() if backend == AUTO else backend
    require(backend)
    if replay is not None:
        report = _replayed(replay, backend)
    else:
        first_seed = secrets.randbelow(2**32) if seed is None else seed
        note(f"check: backend {backend}, seed {first_seed}")  # at once: a crash must not hide it
        if seconds is None and rows is None:
            seconds = _SECONDS
        report = _fuzzed(backend, first_seed, seconds, rows)
    finding = report.finding
    written = None
    if finding is not None and replay is None:
        written = directory / f"tl-topk-check-{finding.case.seed}.npz"
        try:
            save_case(finding.case, written)
        except FileError as error:  # the seed and the problem are told all the same
            note(str(error))
            written = None

    if as_json:
        print_json(_as_data(report, backend, written))
    elif finding is None:
        show(
            f"{report.rows:,} rows of {report.cases:,} cases and {report.batches:,} batches in"
            f" {report.seconds:.1f} s on backend {backend} from seed {report.first_seed}:"
            " no difference"
        )
    else:
        show(f"seed {finding.case.seed}: {finding.problem}", f"smallest case: {finding.case}")
        if written is not None:
            show(f"again with: tl-topk check --backend {backend} --replay {written}")
    if finding is not None:
        context.exit(_DIFFERENT)


def _fuzzed(backend: str, first_seed: int, seconds: float | None, rows: int | None) -> Report:
    by_rows = seconds is None
    with progress("rows" if by_rows else "seconds") as bar:
        task = bar.add_task("checking", total=rows if by_rows else seconds)

        def update(spent: float, tried: int) -> None:
            done = tried if by_rows else spent
            bar.update(task, completed=done, description=f"checking, {tried:,} rows")

        return fuzz(backend, first_seed, seconds, rows, update)


def _replayed(path: Path, backend: str) -> Report:
    case = load_case(path)
    begin = time.monotonic()
    problem = failure(case, backend)
    return Report(
        first_seed=case.seed,
        cases=1,
        batches=0,
        rows=case.rows,
        elements=case.scores.size,
        launches=1,
        seconds=time.monotonic() - begin,
        finding=None if problem is None else Finding(case, problem),
    )


def _as_data(report: Report, backend: str, written: Path | None) -> dict[str, object]:
    data: dict[str, object] = {
        "backend": backend,
        "seed": report.first_seed,
        "cases": report.cases,
        "batches": report.batches,
        "rows": report.rows,
        "elements": report.elements,
        "launches": report.launches,
        "seconds": report.seconds,
        "difference": None,
        "reproducer": None if written is None else str(written),
    }
    if report.finding is not None:
        data["difference"] = {
            "seed": report.finding.case.seed,
            "case": str(report.finding.case),
            "problem": report.finding.problem,
        }
    return data
