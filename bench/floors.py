"""What stands in the way: the same launch doing less than a selection, and when launches begin.

    cmake -S . -B build -DTL_TOPK_BENCH=ON && cmake --build build
    python -m bench.floors [--output FILE.json]

In the launch that the library makes for one row: nothing; reading the row once and writing k
indices; the same, where each block tells the next what it has read before it writes; and the
selection. Of several rows, the selection alone. By CUDA graphs, on inputs that do not lie in L2, as
everywhere in these benchmarks, for all sizes that have a target.

All of it twice, for a launch takes longer in a process that has used several streams: there every
kernel of a graph begins later, whatever it is. Engines have several, so all other figures here are
of that state; floors of hardware are often told of the other, as those are that the targets were
set by (an empty kernel: 0.51 us). Graphs made and replayed can bring it about too, so each size has
a process of its own, which measures three before it makes more.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from bench.exact import Answer
from bench.host_overhead import load_native
from bench.machine import new_document
from bench.results import FLOORS_SUITE, RESULTS
from bench.tables import console_table
from bench.targets import TARGETS
from bench.timing import GraphTimer
from tl_topk._ffi.plan import TopKPlan

__all__ = ["main"]

TOP = 2048
_FLOORS = {"launch": 0, "read and written": 1, "blocks met once": 2}  # as bench/native/floors.h
_SELECTED = "selected"
_EARLY = ("launch", _SELECTED, "read and written")  # what fits before the state changes
_FOOTPRINT = 220 << 20  # bytes, larger than L2
_MOST_LAUNCHES = 2000  # of one graph


class _EarlyTimer(GraphTimer):
    """Makes no graphs, and uses no other stream, before it measures."""

    _GRAPHS_BEFORE = 0


def _use_other_streams() -> None:
    other = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    word = torch.zeros(1, device="cuda")
    for _ in range(64):
        word.add_(1)
        other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(other):
            word.add_(1)
        torch.cuda.current_stream().wait_stream(other)
    torch.cuda.synchronize()


def _measure(rows: int, width: int) -> Iterator[dict[str, Any]]:
    launches = min(_FOOTPRINT // (4 * rows * width) + 1, _MOST_LAUNCHES)
    scores = torch.randn(launches, rows, width, device="cuda")
    indices = torch.empty(launches, rows, TOP, dtype=torch.int32, device="cuda")
    native = load_native()
    plan = TopKPlan(rows, width, TOP, values=False, device_type="cuda")
    timer = _EarlyTimer()

    def floor(number: int, scores: Tensor, out: Tensor) -> Answer:
        native.launch_floor(number, scores[0], out[0])
        return Answer(out)

    def selection(scores: Tensor, out: Tensor) -> Answer:
        plan.run(scores, out)
        return Answer(out)

    calls: dict[str, Any] = {name: partial(floor, number) for name, number in _FLOORS.items()}
    calls[_SELECTED] = selection
    alone = (_SELECTED,)
    for state, names in (("one stream", _EARLY), ("several streams", tuple(calls))):
        us = {}
        for name in names if rows == 1 else alone:
            each = [partial(calls[name], *pair) for pair in zip(scores, indices, strict=True)]
            us[name] = timer.time(each)[0].us
        yield {
            "rows": rows,
            "width": width,
            "state": state,
            "target_us": TARGETS[rows][width],
            "us": us,
        }
        _use_other_streams()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.floors",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--output", type=Path, default=RESULTS / f"{FLOORS_SUITE}.json")
    # For a process of its own: rows and width.
    parser.add_argument("--size", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.size is not None:
        print(json.dumps(list(_measure(*options.size))))
        return
    document = new_document(FLOORS_SUITE, "python -m bench.floors", "cuda")
    for rows, width in ((rows, width) for rows, widths in TARGETS.items() for width in widths):
        command = [sys.executable, "-m", "bench.floors", "--size", str(rows), str(width)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        document.results += json.loads(done.stdout)
        document.save(options.output)
    document.complete = True
    document.save(options.output)
    Console().print(console_table(document))


if __name__ == "__main__":
    main()
