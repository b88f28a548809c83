"""``tl-topk check``: random and adversarial inputs against the reference."""

from __future__ import annotations

import secrets
import time
from pathlib import Path

import click

from tl_topk.check import Finding, Report, failure, fuzz, load_case, save_case
from tl_topk.cli.common import backend_option, json_option, note, print_json, progress, show
from tl_topk.dispatch import AUTO, require
from tl_topk.placement import best_backend

__all__ = ["check"]

_DIFFERENT = 1


@click.command()
@click.option("--seconds", type=click.FloatRange(min=0), default=10.0, show_default=True)
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
    seconds: float,
    backend: str,
    seed: int | None,
    replay: Path | None,
    directory: Path,
    as_json: bool,
) -> None:
    """Compare a backend with a slow, obvious reference on random and adversarial inputs.

    On the first difference it exits 1 and leaves a small reproducer for --replay.
    """
    backend = best_backend() if backend == AUTO else backend
    require(backend)
    if replay is not None:
        report = _replayed(replay, backend)
    else:
        first_seed = secrets.randbelow(2**32) if seed is None else seed
        note(f"check: backend {backend}, seed {first_seed}")  # at once: a crash must not hide it
        report = _fuzzed(backend, seconds, first_seed)
    finding = report.finding
    written = None
    if finding is not None and replay is None:
        written = directory / f"tl-topk-check-{finding.case.seed}.npz"
        save_case(finding.case, written)

    if as_json:
        print_json(_as_data(report, backend, written))
    elif finding is None:
        show(
            f"{report.cases} cases, {report.rows} rows in {report.seconds:.1f} s on backend"
            f" {backend} from seed {report.first_seed}: no difference"
        )
    else:
        show(f"seed {finding.case.seed}: {finding.problem}", f"smallest case: {finding.case}")
        if written is not None:
            show(f"again with: tl-topk check --backend {backend} --replay {written}")
    if finding is not None:
        context.exit(_DIFFERENT)


def _fuzzed(backend: str, seconds: float, first_seed: int) -> Report:
    with progress("seconds") as bar:
        task = bar.add_task("checking", total=seconds)

        def update(spent: float, cases: int) -> None:
            bar.update(task, completed=spent, description=f"checking, {cases} cases")

        return fuzz(backend, seconds, first_seed, update)


def _replayed(path: Path, backend: str) -> Report:
    case = load_case(path)
    begin = time.monotonic()
    problem = failure(case, backend)
    return Report(
        first_seed=case.seed,
        cases=1,
        rows=case.rows,
        seconds=time.monotonic() - begin,
        finding=None if problem is None else Finding(case, problem),
    )


def _as_data(report: Report, backend: str, written: Path | None) -> dict[str, object]:
    data: dict[str, object] = {
        "backend": backend,
        "seed": report.first_seed,
        "cases": report.cases,
        "rows": report.rows,
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
