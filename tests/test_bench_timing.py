"""The GPU's clock, on a pretended GPU whose every call takes 5 us."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
import torch

# Where pytest was not started as a module, or there is no checkout, bench is not importable.
pytest.importorskip("bench", reason="run as python -m pytest in a checkout")

from bench import timing
from bench.exact import Answer


class PretendedGpu:
    """As much of torch.cuda as GraphTimer uses; time passes only in work()."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ms = 0.0
        self.captured: list[Callable[[], None]] | None = None
        gpu = self

        class Event:
            def record(self) -> None:
                self.at = gpu.now_ms

            def synchronize(self) -> None:
                pass

            def elapsed_time(self, end: Event) -> float:
                return end.at - self.at

        class CUDAGraph:
            calls: list[Callable[[], None]]

            def replay(self) -> None:
                for call in self.calls:
                    call()

        @contextmanager
        def graph(captured: CUDAGraph) -> Iterator[None]:
            captured.calls = gpu.captured = []
            yield
            gpu.captured = None

        monkeypatch.setattr(torch.cuda, "CUDAGraph", CUDAGraph)
        monkeypatch.setattr(torch.cuda, "graph", graph)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
        monkeypatch.setattr(timing, "timing_event", Event)
        monkeypatch.setattr(timing.GraphTimer, "_SWEEP_BYTES", 16)
        monkeypatch.setattr(torch, "zeros", lambda *shape, device: torch.ones(*shape))

    def launch(self, slot: int, output: torch.Tensor, us: float) -> Answer:
        def work() -> None:
            self.now_ms += us / 1e3
            output.fill_(slot)

        work() if self.captured is None else self.captured.append(work)
        return Answer(output)


@pytest.mark.parametrize(
    ("slots", "us", "launches"), [(3, 5.0, 9), (64, 5.0, 64), (64, 1000.0, 20), (5, 9000.0, 8)]
)
def test_graphs_are_timed_per_launch_and_their_answers_kept(
    monkeypatch: pytest.MonkeyPatch, slots: int, us: float, launches: int
) -> None:
    gpu = PretendedGpu(monkeypatch)
    outputs = [torch.empty(1, 2, dtype=torch.int32) for _ in range(slots)]
    calls = [partial(gpu.launch, slot, output, us) for slot, output in enumerate(outputs)]
    measured, answers = timing.GraphTimer().time(calls)
    assert measured.us == pytest.approx(us)
    assert measured.noise_us == pytest.approx(0, abs=1e-6)
    assert measured.launches == launches
    assert 5 <= measured.repeats <= 25
    selected = [answer.indices.tolist() for answer in answers]
    assert selected == [[[slot, slot]] for slot in range(min(slots, launches))]
