"""Clocks. Each times the same calls twice over, so that every figure comes with its noise."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch

from bench.exact import Answer

__all__ = [
    "GraphTimer",
    "Launch",
    "Timer",
    "Timing",
    "WallTimer",
    "noise_of",
    "timing_event",
]

#: Starts one selection and names where its answer will be.
Launch: TypeAlias = Callable[[], Answer]


@dataclass(frozen=True)
class Timing:
    """Of one call, in microseconds.

    Attributes:
        us: the median of all repetitions.
        noise_us: how far the median may be off, see :func:`noise_of`.
        launches: calls in a repetition.
        repeats: repetitions in each series.
    """

    us: float
    noise_us: float
    launches: int
    repeats: int


class Timer(Protocol):
    def time(self, launches: Sequence[Launch]) -> tuple[Timing, list[Answer]]:
        """Times the calls, one per slot of the input, and returns their answers."""


def noise_of(first: Sequence[float], second: Sequence[float]) -> float:
    """How far the median of two series of the very same calls may be off.

    The larger of two estimates, for each misses something: how far the series' own medians differ
    (a machine that slows down in between), and half the notch of a box plot, 1.57 quartile ranges
    over the root of the number of samples (two series may agree by chance).
    """
    times = [*first, *second]
    low, _, high = statistics.quantiles(times, n=4)
    drift = abs(statistics.median(first) - statistics.median(second))
    return max(drift, 1.57 * (high - low) / math.sqrt(len(times)))


def _two_series(series: Callable[[], list[float]]) -> tuple[float, float]:
    first, second = series(), series()
    return statistics.median(first + second), noise_of(first, second)


def timing_event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


class GraphTimer:
    """Launches inside a CUDA graph, between two events: what the GPU takes, not the host.

    No input lies in L2: a graph reads every slot once (or slots that are larger than L2 in turn),
    and before each replay a larger buffer is swept. The sweep also hides the start of the graph.

    In a process that has used a single stream a kernel of a graph begins sooner than in any other
    (:mod:`bench.floors`); the first few graphs can end that as well. Engines have dozens, so a few
    are made and dropped before anything is timed.
    """

    _SWEEP_BYTES = 1 << 30
    _GRAPH_US = 20_000  # of launches in one graph, about
    _SERIES_US = 40_000
    _MIN_LAUNCHES = 8
    _REPEATS = (5, 25)
    _GRAPHS_BEFORE = 8

    def __init__(self) -> None:
        self._sweep = torch.zeros(self._SWEEP_BYTES // 4, device="cuda")
        self._begin, self._end = timing_event(), timing_event()
        for _ in range(self._GRAPHS_BEFORE):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._sweep[:1].zero_()
            graph.replay()
        torch.cuda.synchronize()

    def time(self, launches: Sequence[Launch]) -> tuple[Timing, list[Answer]]:
        chosen = self._as_many_as_fit(launches)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            answers = [launch() for launch in chosen]
        for _ in range(3):
            once = self._replay(graph)
        least, most = self._REPEATS
        repeats = int(min(most, max(least, self._SERIES_US / once)))
        total, noise = _two_series(lambda: [self._replay(graph) for _ in range(repeats)])
        timing = Timing(total / len(chosen), noise / len(chosen), len(chosen), repeats)

        # What is judged is what a replay wrote, not what the calls before the capture left.
        answers = answers[: len(launches)]  # the first round's: further ones repeat the slots
        for answer in answers:
            answer.indices.fill_(-7)
        graph.replay()
        torch.cuda.synchronize()
        return timing, [Answer(a.indices.clone(), _cloned(a.values)) for a in answers]

    def _as_many_as_fit(self, launches: Sequence[Launch]) -> list[Launch]:
        """Also the first calls: what they compile, load or allocate stays out of the graph."""
        for launch in launches[:2]:
            launch()
        self._begin.record()
        for launch in launches[:2]:
            launch()
        self._end.record()
        self._end.synchronize()
        once = self._begin.elapsed_time(self._end) * 1e3 / min(2, len(launches))
        fitting = max(self._MIN_LAUNCHES, int(self._GRAPH_US / once))
        whole_rounds = -(-self._MIN_LAUNCHES // len(launches))
        return (list(launches) * whole_rounds)[:fitting]

    def _replay(self, graph: torch.cuda.CUDAGraph) -> float:
        self._sweep.sum()
        self._begin.record()
        graph.replay()
        self._end.record()
        self._end.synchronize()
        return float(self._begin.elapsed_time(self._end)) * 1e3


def _cloned(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.clone()


class WallTimer:
    """Warm calls on the host, one slot after the other: for the CPU backend."""

    def __init__(self, seconds: float = 1.0) -> None:
        self._seconds = seconds  # for both series together

    def time(self, launches: Sequence[Launch]) -> tuple[Timing, list[Answer]]:
        answers = [launch() for launch in launches]
        once = self._round(launches)
        repeats = max(3, int(self._seconds / 2 / once))
        total, noise = _two_series(lambda: [self._round(launches) * 1e6 for _ in range(repeats)])
        calls = len(launches)
        return Timing(total / calls, noise / calls, calls, repeats), answers

    def _round(self, launches: Sequence[Launch]) -> float:
        begin = time.perf_counter()
        for launch in launches:
            launch()
        return time.perf_counter() - begin
