"""What a call costs the CPU, by every way to the same kernel: median and 99th percentile.

    cmake -S . -B build -DTL_TOPK_BENCH=ON && cmake --build build
    python -m bench.host_overhead [--device cpu] [--output FILE.json]

One row, short enough that the GPU is done before the next call; all ways take turns in one process,
so that whatever slows the machine slows them all. A sample is one call by the clock, less what an
empty call costs by the same clock. ``--device cpu`` asks for nothing (k = 0), which leaves the way
to the library alone.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import torch
import tvm_ffi
from rich.console import Console
from rich.table import Table
from torch import Tensor

import tl_topk
from bench.machine import new_document
from bench.overhead_peers import Launcher, custom_op, pybind11_call, tilelang_call
from bench.results import HOST_SUITE, RESULTS
from bench.timing import noise_of

__all__ = ["main"]

_ROOT = Path(__file__).parents[1]
_CLUSTER = 8  # blocks that share the row, the size that the issue names
_ROUNDS, _CALLS = 200, 50

# What is promised, in nanoseconds.
_PLAN_OVER_LAUNCH_AND_NOOP = 300
_FUNCTION_OVER_PLAN = 800

BARE = "cudaLaunchKernelEx, bare, from C++"
DRIVER = "cuLaunchKernelEx, bare, from C++"
LIBRARY = "the library's launch, from C++"
BEHIND_FFI_2, BEHIND_FFI_3, BEHIND_FFI_4 = (
    f"the bare launch behind TVM FFI, {count} tensors" for count in (2, 3, 4)
)
DRIVER_BEHIND_FFI = "the driver's behind TVM FFI, 2 tensors"
NOOP_2, NOOP_3, NOOP_4 = (f"TVM FFI no-op, {count} tensors" for count in (2, 3, 4))
PLAN, PLAN_VALUES, PLAN_LENGTHS = (
    f"plan.run({arguments})"
    for arguments in ("scores, indices", "scores, indices, values", "..., lengths")
)
OUT, OUT_VALUES, OUT_LENGTHS = (
    "topk_indices(out=)",
    "topk(out=)",
    "topk(lengths=, out=)",
)
ADD = "torch.Tensor.add_"


@dataclass(frozen=True)
class Problem:
    scores: Tensor  # (1, width) float32
    indices: Tensor  # (1, k) int32
    values: Tensor  # (1, k) float32
    lengths: Tensor  # (1,) int32

    @classmethod
    def on(cls, device: str) -> Problem:
        width, k = (16_384, 2048) if device == "cuda" else (64, 0)
        return cls(
            torch.randn(1, width, device=device),
            torch.empty(1, k, device=device, dtype=torch.int32),
            torch.empty(1, k, device=device),
            torch.full((1,), width, device=device, dtype=torch.int32),
        )

    @property
    def k(self) -> int:
        return self.indices.shape[1]

    def plan(self, values: bool) -> tl_topk.TopKPlan:
        device = self.scores.device
        return tl_topk.TopKPlan(
            1,
            self.scores.shape[1],
            self.k,
            values=values,
            device_type=device.type,
            device_id=device.index or 0,
        )


Series = Callable[[int], list[int]]
"""So many calls, each by the clock, in nanoseconds."""


def python_series(call: Callable[[], object], synchronize: Callable[[], object]) -> Series:
    def series(calls: int) -> list[int]:
        times = []
        for _ in range(calls):
            begin = perf_counter_ns()
            call()
            times.append(perf_counter_ns() - begin)
        synchronize()
        return times

    return series


def native_series(call: Callable[[Tensor], object]) -> Series:
    def series(calls: int) -> list[int]:
        times = torch.empty(calls, dtype=torch.int64)
        call(times)
        return list(times.tolist())

    return series


def load_native() -> Any:
    path = _ROOT / "build" / "libtl_topk_bench.so"
    if not path.exists():
        sys.exit(f"{path} is missing: configure with -DTL_TOPK_BENCH=ON and build")
    return tvm_ffi.load_module(str(path))


def native_ways(native: Any, problem: Problem) -> dict[str, Series]:
    """In C++, no Python on the way; without a GPU there is nothing to launch."""
    if problem.scores.device.type == "cpu":
        return {}
    arguments = problem.scores[0], problem.indices[0], None
    return {
        BARE: native_series(lambda times: native.time_bare(*arguments, times)),
        DRIVER: native_series(lambda times: native.time_driver(*arguments, times)),
        LIBRARY: native_series(lambda times: native.time_library(*arguments, times)),
    }


def keeping_the_gil(native: Any, name: str) -> Any:
    function = native.get_function(name)  # an object of its own
    function.release_gil = False
    return function


def launches_behind_ffi(native: Any, problem: Problem) -> dict[str, Callable[[], object]]:
    """A launch and nothing else, called from Python: what no plan can undercut."""
    scores, indices = problem.scores, problem.indices
    values, lengths = problem.values, problem.lengths
    if scores.device.type == "cpu":
        return {}
    native.prepare(scores[0], indices[0])
    launch, launch_gil = native.launch_prepared, keeping_the_gil(native, "launch_prepared")
    by_driver = native.launch_prepared_by_driver
    return {
        BEHIND_FFI_2: lambda: launch(scores, indices, None, None),
        BEHIND_FFI_3: lambda: launch(scores, indices, values, None),
        BEHIND_FFI_4: lambda: launch(scores, indices, values, lengths),
        DRIVER_BEHIND_FFI: lambda: by_driver(scores, indices, None, None),
        f"{BEHIND_FFI_2}, the GIL kept": lambda: launch_gil(scores, indices, None, None),
    }


def python_ways(native: Any, problem: Problem) -> dict[str, Callable[[], object]]:
    scores, indices, values, lengths = (
        problem.scores,
        problem.indices,
        problem.values,
        problem.lengths,
    )
    k, out = problem.k, tl_topk.TopK(values, indices)
    plan, plan_values = problem.plan(values=False), problem.plan(values=True)
    noop = native.noop
    noop_gil = keeping_the_gil(native, "noop")
    operator = custom_op(plan_values)
    tl_topk.topk_indices(scores, k)  # registers nothing, but imports what the operator needs
    from tl_topk import torch_op  # noqa: F401 - registers torch.ops.tl_topk

    pages = torch.zeros(1, 1, dtype=torch.int32, device=scores.device)
    indices64 = torch.empty_like(indices, dtype=torch.int64)
    return launches_behind_ffi(native, problem) | {
        NOOP_2: lambda: noop(scores, indices, None, None),
        NOOP_3: lambda: noop(scores, indices, values, None),
        NOOP_4: lambda: noop(scores, indices, values, lengths),
        f"{NOOP_4}, the GIL kept": lambda: noop_gil(scores, indices, values, lengths),
        PLAN: lambda: plan.run(scores, indices),
        PLAN_VALUES: lambda: plan_values.run(scores, indices, values),
        PLAN_LENGTHS: lambda: plan_values.run(scores, indices, values, lengths),
        OUT: lambda: tl_topk.topk_indices(scores, k, out=indices),
        OUT_VALUES: lambda: tl_topk.topk(scores, k, out=out),
        OUT_LENGTHS: lambda: tl_topk.topk(scores, k, lengths=lengths, out=out),
        "topk_indices(hint=, out=)": lambda: tl_topk.topk_indices(
            scores, k, hint=indices, out=indices
        ),
        "topk_paged(out=)": lambda: tl_topk.topk_paged(scores, k, pages, out=indices),
        "topk_indices(), allocating": lambda: tl_topk.topk_indices(scores, k),
        "topk(), allocating": lambda: tl_topk.topk(scores, k),
        ADD: lambda: values.add_(1),
        "torch.topk(out=)": lambda: torch.topk(scores, k, sorted=False, out=(values, indices64)),
        "torch.empty": lambda: torch.empty(1, k, dtype=torch.int32, device=scores.device),
        "torch.ops.tl_topk.topk_out": lambda: torch.ops.tl_topk.topk_out(
            scores, k, None, None, True, "any", "auto", values, indices
        ),
        "torch.library.custom_op around plan.run": lambda: operator(scores, indices, values),
    }


def guest_ways(native: Any, problem: Problem) -> Iterator[tuple[str, Callable[[], object] | str]]:
    """Calls that need another package, or why they are missing."""
    launcher = Launcher(native.launch_address(), problem.scores, problem.indices, problem.values)
    makers: dict[str, Callable[[], Callable[[], object]]] = {
        "pybind11, raw pointers": lambda: pybind11_call(launcher),
        "TileLang JIT kernel, 2 tensors": lambda: tilelang_call(problem.scores),
    }
    for name, make in makers.items():
        if problem.scores.device.type == "cpu":
            yield name, "needs a GPU"
            continue
        try:
            call = make()
            call()
            yield name, call
        except Exception as error:  # other people's packages fail in ways of their own
            yield name, f"{type(error).__name__}: {error}".splitlines()[0]


def measure(device: str) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Results, slowest ways last, and what could not be measured."""
    problem = Problem.on(device)
    if device == "cuda":
        config = problem.plan(values=False).config
        if config is None or config.blocks_per_row != _CLUSTER:
            print(f"note: not a cluster of {_CLUSTER} but {config}", file=sys.stderr)
    native = load_native()
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    ways = python_ways(native, problem)
    absent = {}
    for name, way in guest_ways(native, problem):
        if isinstance(way, str):
            absent[name] = way
        else:
            ways[name] = way
    clocks = {
        "python": python_series(lambda: None, synchronize),
        "native": native_series(native.nothing) if device == "cuda" else None,
    }
    native_names = native_ways(native, problem)
    every: dict[str, Series] = {
        **native_names,
        **{name: python_series(way, synchronize) for name, way in ways.items()},
        **{name: series for name, series in clocks.items() if series is not None},
    }
    times = take_turns(every)
    clock_medians = {name: statistics.median(times[name]) for name in clocks if name in times}

    def clock_of(name: str) -> float:
        return clock_medians["native" if name in native_names else "python"]

    results = []
    for name, series in times.items():
        if name in clocks:
            continue
        clock = clock_of(name)
        results.append(
            {
                "call": name,
                "median_ns": round(statistics.median(series) - clock),
                "p99_ns": round(statistics.quantiles(series, n=100)[98] - clock),
                "noise_ns": round(_noise(series)),
                "calls": len(series),
            }
        )
    medians = {
        name: [
            statistics.median(series[first : first + _CALLS]) - clock_of(name)
            for first in range(0, len(series), _CALLS)
        ]
        for name, series in times.items()
    }
    results += [promise.kept(medians) for promise in promises(medians)]
    return results, absent


def _noise(series: Sequence[float]) -> float:
    """Of the median: the first half of the rounds beside the second, as other clocks do it."""
    half = len(series) // 2
    return noise_of(series[:half], series[half:])


def take_turns(every: dict[str, Series]) -> dict[str, list[int]]:
    for series in every.values():
        series(_CALLS)
    times: dict[str, list[int]] = {name: [] for name in every}
    gc.collect()
    gc.disable()
    try:
        for _ in range(_ROUNDS):
            for name, series in every.items():
                times[name] += series(_CALLS)
    finally:
        gc.enable()
    return times


@dataclass(frozen=True)
class Promise:
    """One call over others, in nanoseconds.

    Attributes:
        what: in words.
        call: that is promised to be cheap.
        over: the calls that it is compared with, together.
        allowed: how much more it may take.
    """

    what: str
    call: str
    over: tuple[str, ...]
    allowed: int

    def kept(self, medians: dict[str, list[float]]) -> dict[str, Any]:
        """What was measured: the median, over the rounds, of the difference within a round.

        What slows the machine for a while slows all calls of a round, and so cancels out.
        """
        others = zip(*(medians[name] for name in self.over), strict=True)
        series = [mine - sum(rest) for mine, rest in zip(medians[self.call], others, strict=True)]
        return {
            "promise": self.what,
            "over_ns": round(statistics.median(series)),
            "noise_ns": round(_noise(series)),
            "allowed_ns": self.allowed,
        }


def promises(measured: Collection[str]) -> Iterator[Promise]:
    """All that is promised of these calls; without a GPU there is no launch to compare with."""
    for plan, noop, function in (
        (PLAN, NOOP_2, OUT),
        (PLAN_VALUES, NOOP_3, OUT_VALUES),
        (PLAN_LENGTHS, NOOP_4, OUT_LENGTHS),
    ):
        launch = (BARE,) if BARE in measured else ()
        floor = "launch and no-op" if launch else "no-op"
        yield Promise(f"{plan} over {floor}", plan, (*launch, noop), _PLAN_OVER_LAUNCH_AND_NOOP)
        yield Promise(f"{function} over plan.run", function, (plan,), _FUNCTION_OVER_PLAN)
        yield Promise(f"{plan} over {ADD}", plan, (ADD,), 0)
        yield Promise(f"{function} over {ADD}", function, (ADD,), 0)


def verdict(kept: dict[str, Any]) -> str:
    word = "holds" if kept["over_ns"] <= kept["allowed_ns"] else "BROKEN"
    return (
        f"{word}: {kept['promise']}: {kept['over_ns']:+} +- {kept['noise_ns']} ns,"
        f" allowed {kept['allowed_ns']:+}"
    )


def table(results: list[dict[str, Any]]) -> Table:
    made = Table("nanoseconds a call", box=None)
    for heading in ("median", "99th percentile"):
        made.add_column(heading, justify="right")
    for result in results:
        if "call" in result:
            made.add_row(result["call"], f"{result['median_ns']:,}", f"{result['p99_ns']:,}")
    return made


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.host_overhead",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--output", type=Path, default=RESULTS / "host_overhead.json")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch sees no GPU: pass --device cpu")
    document = new_document(
        HOST_SUITE,
        "python -m bench.host_overhead" + (" --device cpu" if options.device == "cpu" else ""),
        options.device,
    )
    document.results, document.absent = measure(options.device)
    document.complete = True
    document.save(options.output)
    console = Console(highlight=False)
    console.print(table(document.results))
    for name, reason in document.absent.items():
        console.print(f"without {name}: {reason}")
    for result in document.results:
        if "promise" in result:
            console.print(verdict(result), soft_wrap=True)
    console.print(f"written to {options.output}")


if __name__ == "__main__":
    main()
