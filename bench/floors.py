"""What stands in the way of one row: the same launch doing less than a selection.

    cmake -S . -B build -DTL_TOPK_BENCH=ON && cmake --build build
    python -m bench.floors [--output FILE.json]

In the launch that the library makes for a row: nothing; reading the row once and writing k indices;
the same, where each block tells the next what it has read before it writes; and the selection. By
CUDA graphs, on inputs that do not lie in L2, as everywhere in these benchmarks.

All of it twice, for a launch takes longer in a process that has used several streams: there every
kernel of a graph begins later, whatever it is. Engines have several, so all other figures here are
of that state; floors of hardware are often told of the other. Graphs made and replayed can bring it
about too, so each row has a process of its own, which measures three before it makes more.
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
from bench.targets import TARGETS, K, M
from bench.timing import GraphTimer
from tl_topk._ffi.plan import TopKPlan

__all__ = ["main"]

TOP = 2048
WIDTHS = (4 * K, 16 * K, 64 * K, 256 * K, M)
_FLOORS = {"launch": 0, "read and written": 1, "blocks met once": 2}  # as bench/native/floors.h
_SELECTED = "selected"
_EARLY = ("launch", _SELECTED, "read and written")  # what fits before the state changes
_FOOTPRINT = 220 << 20  # bytes, larger than L2
_MOST_ROWS = 2000  # of one graph


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


def _measure(width: int) -> Iterator[dict[str, Any]]:
    rows = min(_FOOTPRINT // (4 * width) + 1, _MOST_ROWS)
    scores = torch.randn(rows, width, device="cuda")
    indices = torch.empty(rows, TOP, dtype=torch.int32, device="cuda")
    native = load_native()
    plan = TopKPlan(1, width, TOP, values=False, device_type="cuda")
    timer = _EarlyTimer()

    def floor(number: int, row: Tensor, out: Tensor) -> Answer:
        native.launch_floor(number, row, out)
        return Answer(out)

    def selection(row: Tensor, out: Tensor) -> Answer:
        plan.run(row, out)
        return Answer(out)

    calls: dict[str, Any] = {name: partial(floor, number) for name, number in _FLOORS.items()}
    calls[_SELECTED] = selection
    for state, names in (("one stream", _EARLY), ("several streams", tuple(calls))):
        us = {}
        for name in names:
            launches = [partial(calls[name], *pair) for pair in zip(scores, indices, strict=True)]
            us[name] = timer.time(launches)[0].us
        yield {"width": width, "state": state, "target_us": TARGETS[1][width], "us": us}
        _use_other_streams()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.floors",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--output", type=Path, default=RESULTS / f"{FLOORS_SUITE}.json")
    parser.add_argument("--width", type=int, help=argparse.SUPPRESS)  # for this process alone
    options = parser.parse_args()
    if options.width is not None:
        print(json.dumps(list(_measure(options.width))))
        return
    document = new_document(FLOORS_SUITE, "python -m bench.floors", "cuda")
    for width in WIDTHS:
        command = [sys.executable, "-m", "bench.floors", "--width", str(width)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        document.results += json.loads(done.stdout)
        document.save(options.output)
    document.complete = True
    document.save(options.output)
    Console().print(console_table(document))


if __name__ == "__main__":
    main()
