"""Times every candidate on this GPU, for the policy ``measured``. Needs torch.

Calls are timed inside CUDA graphs, between two events, their inputs not in the L2 cache, and the
candidates of a problem side by side, so that what disturbs one disturbs all.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from tl_topk._ffi import TopKPlan
from tl_topk.backends import BACKENDS
from tl_topk.dispatch import on_this_machine
from tl_topk.dispatch.calibration import Entry, calibration_file, save
from tl_topk.dispatch.candidates import candidates
from tl_topk.dispatch.devices import gpu_of
from tl_topk.problem import Gpu, Problem

__all__ = ["Call", "GraphClock", "calibrate", "grid", "launches_for", "plans_of"]

#: Starts one selection.
Call = Callable[[], None]

_K = 1 << 10
_SWEEP_BYTES = 256 << 20  # read before each replay: more than any L2 cache holds
_GRAPHS_BEFORE = 8  # the first ones of a process can be faster than all later ones
_GRAPH_US = 400  # of launches in one graph, about
_LAUNCHES = (4, 24)
_BYTES_PER_US = 3e6  # about, to guess how long a call takes
_ROUNDS = 15
_MOST_BYTES = 1 << 30  # of the scores of one call; half of it for elements of two bytes


class GraphClock:
    """Times several ways of doing the same, their replays interleaved."""

    def __init__(self) -> None:
        self._sweep = torch.zeros(_SWEEP_BYTES // 4, device="cuda")
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._begin = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self._end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        for _ in range(_GRAPHS_BEFORE):
            self._graph([self._touch]).replay()
        torch.cuda.synchronize()

    def _touch(self) -> None:
        self._sweep[:1].zero_()

    def series(self, ways: Mapping[str, Sequence[Call]]) -> dict[str, list[float]]:
        """Microseconds a call, one number a round, by way; each is a sequence of calls."""
        graphs = {name: self._graph(calls) for name, calls in ways.items()}
        for graph in graphs.values():
            self._replay(graph)
        spent: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(_ROUNDS):
            for name, graph in graphs.items():
                spent[name].append(self._replay(graph) / len(ways[name]))
        return spent

    def _graph(self, calls: Sequence[Call]) -> torch.cuda.CUDAGraph:
        # torch.cuda.graph() would collect garbage and give memory back every time.
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.stream(self._stream):
            graph.capture_begin()
            try:
                for call in calls:
                    call()
            finally:
                graph.capture_end()
        return graph

    def _replay(self, graph: torch.cuda.CUDAGraph) -> float:
        self._sweep.sum()
        self._begin.record()
        graph.replay()
        self._end.record()
        self._end.synchronize()
        return float(self._begin.elapsed_time(self._end)) * 1e3


def launches_for(bytes_read: int) -> int:
    """How many calls a graph should hold that read so much each."""
    fewest, most = _LAUNCHES
    return int(min(most, max(fewest, _GRAPH_US / (5 + bytes_read / _BYTES_PER_US))))


def plans_of(problem: Problem) -> dict[str, TopKPlan]:
    """A plan by every candidate that can serve ``problem``, by its name; the library's own choice
    first.
    """
    plans = {}
    for candidate in candidates(on_this_machine(problem)):
        if candidate.refusal:
            continue
        blocks = 0
        if not candidate.is_native_choice and candidate.config is not None:
            blocks = candidate.config.blocks_per_row
        plans[candidate.name] = BACKENDS[candidate.backend].plan(problem, blocks)
    return plans


def grid(device_id: int) -> list[Problem]:
    """The problems of a calibration: 1 to 128 rows of 4K to 1M."""
    problems = [
        Problem(rows, width * _K, k, dtype, values=False, device_type="cuda", device_id=device_id)
        for k in (512, 1024, 2048)
        for dtype in ("float32", "bfloat16")
        for rows in (1, 2, 4, 8, 16, 32, 64, 128)
        for width in (4, 8, 16, 32, 64, 128, 256, 512, 1024)
    ]
    return [p for p in problems if _bytes(p) <= _MOST_BYTES * p.element_bytes // 4]


def _bytes(problem: Problem) -> int:
    return problem.rows * problem.width * problem.element_bytes


@dataclass(frozen=True)
class Calibration:
    """What :func:`calibrate` is about to do.

    Attributes:
        gpu: that it runs on.
        path: of the table.
        problems: that are timed.
    """

    gpu: Gpu
    path: Path
    problems: tuple[Problem, ...]

    def run(self) -> Iterator[Entry]:
        """Times the problems, yields each when it is done, and writes the table in the end."""
        torch.cuda.set_device(self.problems[0].device_id)
        clock = GraphClock()
        floats = torch.empty(_MOST_BYTES // 4, device="cuda").normal_()
        pools = {"float32": floats, "bfloat16": floats[: _MOST_BYTES // 8].bfloat16()}
        entries = []
        for problem in self.problems:
            entries.append(_time(problem, clock, pools[problem.dtype]))
            yield entries[-1]
        save(self.gpu, entries, self.path)


def calibrate(
    device_id: int = 0, path: Path | None = None, problems: Sequence[Problem] | None = None
) -> Calibration:
    """A calibration of CUDA device ``device_id``, to be run.

    Args:
        device_id: which GPU.
        path: of the table; by default where the policy ``measured`` looks for it.
        problems: to time; by default :func:`grid`.

    Raises:
        RuntimeError: there is no GPU, or torch finds none.
    """
    gpu = gpu_of(device_id)
    if not torch.cuda.is_available():
        raise RuntimeError("calibrate: expected a torch that finds the GPU, got one that does not")
    chosen = grid(device_id) if problems is None else problems
    return Calibration(gpu, path or calibration_file(gpu), tuple(chosen))


def _time(problem: Problem, clock: GraphClock, scores: Tensor) -> Entry:
    size = problem.rows * problem.width
    calls = launches_for(_bytes(problem))
    slots = min(calls, scores.numel() // size)
    out = torch.empty((calls, problem.rows, problem.k), dtype=torch.int32, device="cuda")
    ways: dict[str, Sequence[Call]] = {}
    for name, plan in plans_of(problem).items():
        ways[name] = [_call(plan, scores, i % slots, size, out[i]) for i in range(calls)]
        ways[name][0]()  # what a first call loads or allocates stays out of the graphs
    us = {name: statistics.median(series) for name, series in clock.series(ways).items()}
    return Entry(
        problem.rows,
        problem.width,
        problem.k,
        problem.dtype,
        {name: round(each, 3) for name, each in us.items()},
    )


def _call(plan: TopKPlan, scores: Tensor, slot: int, size: int, out: Tensor) -> Call:
    mine = scores[slot * size : (slot + 1) * size].view(plan.rows, plan.width)

    def call() -> None:
        plan.run(mine, out)

    return call
