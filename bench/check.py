"""``tl-topk check`` over many rows, with a record of what was tried and where.

    python -m bench.check [--backend dsmem] [--rows 10000000] [--seed N]

Writes bench/results/check_BACKEND.json, and a reproducer beside it where an answer was wrong.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import secrets
from pathlib import Path

from bench.machine import new_document
from bench.results import RESULTS
from tl_topk.backends import BACKENDS
from tl_topk.check import fuzz, save_case
from tl_topk.placement import best_backend

__all__ = ["main"]

_ROWS = {"cuda": 10_000_000, "cpu": 1_000_000}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.check", description=__doc__)
    parser.add_argument("--backend", choices=BACKENDS, default=best_backend())
    parser.add_argument("--rows", type=int, help="at least so many")
    parser.add_argument("--seconds", type=float, help="but no longer than this")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32))
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    device = BACKENDS[arguments.backend].device_type
    output = arguments.output or RESULTS / f"check_{arguments.backend}.json"
    rows = arguments.rows or _ROWS[device]
    document = new_document(
        "check",
        f"python -m bench.check --backend {arguments.backend} --rows {rows}"
        f" --seed {arguments.seed}",
        device,
    )
    print(f"backend {arguments.backend}, seed {arguments.seed}", flush=True)
    report = fuzz(arguments.backend, arguments.seed, arguments.seconds, rows)
    result = {"backend": arguments.backend} | dataclasses.asdict(
        dataclasses.replace(report, finding=None)
    )
    if report.finding is not None:
        reproducer = output.with_suffix(".npz")
        save_case(report.finding.case, reproducer)
        result["finding"] = f"seed {report.finding.case.seed}: {report.finding.problem}"
        print(report.finding.case, f"written to {reproducer}", sep="\n")
    document.results = [result]
    document.complete = report.finding is not None or report.rows >= rows
    document.save(output)
    print(json.dumps(result))
    raise SystemExit(0 if report.finding is None else 1)


if __name__ == "__main__":
    main()
