"""A million graph replays, and what else an engine does to a library for weeks, in a minute.

    python -m bench.endurance [--replays 1000000] [--backend dsmem]

Each phase is a process of its own under a watchdog, which ends it and tells its threads' stacks
where it hangs. Writes bench/results/endurance.json and exits 1 where an answer was wrong, memory
was lost or a phase came to no end.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import tl_topk
from bench.machine import new_document
from bench.results import RESULTS, command_line
from tl_topk.check.certificate import Selection, certify

__all__ = ["PHASES", "Stage", "main"]

_LENGTHS = 64  # different ones of each stage
_LEAK_BYTES = 32 << 20
_BITS = {torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16}
#: Rows, width, k, dtype and order, of every way that the kernel has.
_STAGES = (
    (1, 65_536, 2048, torch.float32, "index"),
    (1, 262_144, 2048, torch.bfloat16, "index"),
    (4, 20_001, 512, torch.float16, "value"),
    (64, 8192, 1024, torch.float32, "index"),
)


class Stage:
    """A problem whose lengths change at each replay, and what must come out each time."""

    def __init__(
        self, rows: int, width: int, k: int, dtype: torch.dtype, order: str, backend: str
    ) -> None:
        generator = torch.Generator("cuda").manual_seed(width)
        scores = torch.randn(rows, width, device="cuda", generator=generator)
        scores[::2] = scores[::2].sub(1.5).relu()  # half of them, or the only one: ties at the end
        self.scores, self.k, self.order, self.backend = scores.to(dtype), k, order, backend
        like: dict[str, Any] = {"device": "cuda", "generator": generator}
        self.table = torch.randint(0, width + 1, (_LENGTHS, rows), dtype=torch.int32, **like)
        self.table[0], self.table[1], self.table[2] = width, k, 0
        self.lengths = self.table[0].clone()
        self.turn = torch.zeros(1, dtype=torch.int64, device="cuda")
        self.wrong = torch.zeros((), dtype=torch.int64, device="cuda")
        self.out = tl_topk.TopK(
            torch.empty(rows, k, dtype=dtype, device="cuda"),
            torch.empty(rows, k, dtype=torch.int32, device="cuda"),
        )
        answers = []
        for lengths in self.table:
            self.lengths.copy_(lengths)
            self.select()
            self.certify()
            answers.append(self.out.indices.clone())
        self.expected = torch.stack(answers)
        self.lengths.copy_(self.table[0])
        self.graph: torch.cuda.CUDAGraph | None = None

    def select(self) -> None:
        tl_topk.topk(
            self.scores,
            self.k,
            lengths=self.lengths,
            order=self.order,
            backend=self.backend,
            out=self.out,
        )

    def certify(self) -> None:
        """Raises where the answer for the present lengths is wrong."""
        bits = _BITS[self.scores.dtype]
        ends = self.lengths.long()
        asked = Selection(
            self.scores.view(bits),
            str(self.scores.dtype).removeprefix("torch."),
            torch.zeros_like(ends),
            ends,
            self.k,
            self.order,
            True,
        )
        found = certify(asked, self.out.indices, self.out.values.view(bits)).first()
        if found is not None:
            raise AssertionError(f"row {found[0]} of {tuple(self.scores.shape)}: {found[1]}")

    def step(self) -> None:
        """The next lengths, the selection, and a comparison; nothing is read back."""
        self.turn.add_(1).remainder_(_LENGTHS)
        torch.index_select(self.table, 0, self.turn, out=self.lengths[None])
        self.select()
        self.wrong += (self.expected.index_select(0, self.turn)[0] != self.out.indices).any()
        self.out.indices[:, :1].fill_(-7)  # so that no answer can be left over

    def capture(self) -> torch.cuda.CUDAGraph:
        self.graph = torch.cuda.CUDAGraph()
        stream = _stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.graph(self.graph, stream=stream):
            self.step()
        return self.graph


def _stream() -> torch.cuda.Stream:
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]


def _stages(backend: str) -> list[Stage]:
    return [Stage(*stage, backend) for stage in _STAGES]


def _replays(count: int, backend: str) -> dict[str, Any]:
    """Graphs of four problems in turn on one stream, the lengths other ones each time."""
    stages = _stages(backend)
    graphs = [stage.capture() for stage in stages]
    torch.cuda.synchronize()
    free = torch.cuda.mem_get_info()[0]
    for _ in range(count // 5 // len(graphs)):
        for graph in graphs:
            graph.replay()
    return _sum_up(stages, count // 5, free)


def _four_streams(count: int, backend: str) -> dict[str, Any]:
    """The same graphs, each on a stream of its own, all at once."""
    stages = _stages(backend)
    graphs = [stage.capture() for stage in stages]
    streams = [_stream() for _ in graphs]
    torch.cuda.synchronize()
    free = torch.cuda.mem_get_info()[0]
    for _ in range(count // len(graphs)):
        for graph, stream in zip(graphs, streams, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
    return _sum_up(stages, count, free)


def _busy_gpu(count: int, backend: str) -> dict[str, Any]:
    """While another stream keeps every multiprocessor at work with products of matrices."""
    stages = _stages(backend)
    graphs = [stage.capture() for stage in stages]
    matrix = torch.randn(16_384, 16_384, device="cuda", dtype=torch.bfloat16)
    product = torch.empty_like(matrix)
    busy, own = _stream(), _stream()
    torch.cuda.synchronize()
    free = torch.cuda.mem_get_info()[0]
    with torch.cuda.stream(busy):
        for _ in range(count // 2500):
            torch.mm(matrix, matrix, out=product)
        done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        done.record()
    replays = 0
    with torch.cuda.stream(own):
        while not done.query():  # type: ignore[no-untyped-call]
            for graph in graphs:
                graph.replay()
            replays += len(graphs)
            own.synchronize()
    return _sum_up(stages, replays, free)


def _captures(count: int, backend: str) -> dict[str, Any]:
    """Graphs captured, replayed once and dropped, their problems among them."""
    stages = _stages(backend)
    free = 0
    for turn in range(count // 500):
        if turn == count // 1000:
            torch.cuda.synchronize()
            free = torch.cuda.mem_get_info()[0]
        stage = stages[turn % len(stages)]
        stage.capture().replay()
        stage.graph = None
    return _sum_up(stages, count // 500, free)


def _no_memory(count: int, backend: str) -> dict[str, Any]:
    """Where allocations fail calls say so, and the next are right; with outputs given none is
    made."""
    stages = _stages(backend)
    torch.cuda.synchronize()
    free = torch.cuda.mem_get_info()[0]
    attempts = count // 50_000
    refused = 0
    for turn in range(attempts):
        stage = stages[turn % len(stages)]
        total = torch.cuda.mem_get_info()[1]
        limit = torch.cuda.memory_reserved() / total + 0.001
        torch.cuda.set_per_process_memory_fraction(limit)
        hoard = []
        try:
            while True:
                hoard.append(tl_topk.topk(stage.scores, 100_000 + turn, backend=backend))
        except torch.OutOfMemoryError:
            refused += 1
        finally:
            hoard.clear()
            torch.cuda.set_per_process_memory_fraction(1.0)
            torch.cuda.empty_cache()
        stage.step()
    filled = _fill_memory()
    for stage in stages:
        stage.select()
    torch.cuda.synchronize()
    filled.clear()
    torch.cuda.empty_cache()
    for stage in stages:
        stage.wrong += (stage.expected[stage.turn[0]] != stage.out.indices).any()
    return _sum_up(stages, refused, free)


def _fill_memory() -> list[Tensor]:
    """All that is left of the device's, to the last megabyte."""
    filled = []
    size = 1 << 34
    while size >= 1 << 20:
        try:
            filled.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            size //= 2
    return filled


def _killed(count: int, backend: str) -> dict[str, Any]:
    """Processes that launch without a pause are killed at any moment; others then start, and are
    right."""
    kills = wrong = 0
    for _ in range(max(1, count // 500_000)):
        victims = [_child("victim", count, backend) for _ in range(8)]
        for at, victim in enumerate(victims):
            assert victim.stdout is not None
            victim.stdout.readline()  # it has begun to launch
            time.sleep(0.013 * at)
            victim.kill()
            victim.wait()
            kills += 1
        check = _child("survivor", count, backend)
        out, _ = check.communicate()
        wrong += check.returncode != 0 or "right" not in out
    return {"count": kills, "wrong": wrong, "lost_bytes": 0}


def _victim(count: int, backend: str) -> dict[str, Any]:
    """Launches until it is killed."""
    stages = _stages(backend)
    print("launching", flush=True)
    while True:
        for stage in stages:
            stage.step()


def _survivor(count: int, backend: str) -> dict[str, Any]:
    """The first to run after a process was killed."""
    stages = _stages(backend)
    for _ in range(_LENGTHS):
        for stage in stages:
            stage.step()
    result = _sum_up(stages, _LENGTHS, torch.cuda.mem_get_info()[0])
    print("right" if result["wrong"] == 0 else "wrong", flush=True)
    return result


def _sum_up(stages: Sequence[Stage], count: int, free: int) -> dict[str, Any]:
    torch.cuda.synchronize()
    for stage in stages:
        stage.step()
        torch.cuda.synchronize()
    lost = free - torch.cuda.mem_get_info()[0]
    return {
        "count": count,
        "wrong": sum(int(stage.wrong) for stage in stages),
        "lost_bytes": max(0, lost),
    }


@dataclass(frozen=True)
class Phase:
    """What a process does: ``run(count, backend)``.

    Attributes:
        what: it counts.
        alone: no other phase runs meanwhile.
    """

    run: Callable[[int, str], dict[str, Any]]
    what: str
    alone: bool = False


PHASES = {
    "replays": Phase(_replays, "graph replays, lengths changing each time", alone=True),
    "four streams": Phase(
        _four_streams, "graph replays on four streams at once, likewise", alone=True
    ),
    "captures": Phase(_captures, "graphs captured, replayed and dropped", alone=True),
    "no memory": Phase(_no_memory, "allocations refused, then a full device", alone=True),
    "busy": Phase(_busy_gpu, "graph replays while every multiprocessor is kept busy"),
    "killed": Phase(_killed, "processes killed while they launched, then started again"),
}
_CHILDREN = {"victim": Phase(_victim, ""), "survivor": Phase(_survivor, "")}


def _child(name: str, count: int, backend: str, own_group: bool = False) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench.endurance", "--phase", name]
    command += ["--replays", str(count), "--backend", backend]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=own_group,
    )


def _judged(
    name: str, process: subprocess.Popen[str], begun: float, limit: float
) -> dict[str, Any]:
    """The phase's result. A hang is reported, with the stacks of the process, and ended."""
    result: dict[str, Any] = {"phase": name, "what": PHASES[name].what, "passed": False}
    try:
        out, err = process.communicate(timeout=max(1.0, begun + limit - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)  # faulthandler tells where it hangs
        try:
            _, err = process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            _, err = process.communicate()
        return result | {"seconds": limit, "problem": "hangs: " + err[-3000:]}
    seconds = round(time.monotonic() - begun, 1)
    if process.returncode != 0:
        return result | {"seconds": seconds, "problem": err[-3000:]}
    found = json.loads(out.splitlines()[-1])
    if not PHASES[name].alone:  # others take memory as well
        del found["lost_bytes"]
    passed = found["wrong"] == 0 and found.get("lost_bytes", 0) <= _LEAK_BYTES
    return result | found | {"seconds": seconds, "passed": passed}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.endurance", description=__doc__)
    parser.add_argument("--replays", type=int, default=1_000_000)
    parser.add_argument("--backend", default="dsmem")
    parser.add_argument("--limit", type=float, default=120, help="seconds that a phase may take")
    parser.add_argument("--phase", choices=[*PHASES, *_CHILDREN], help="run one, in this process")
    parser.add_argument("--output", type=Path, default=RESULTS / "endurance.json")
    arguments = parser.parse_args()
    if arguments.phase:
        faulthandler.enable()
        phase = (PHASES | _CHILDREN)[arguments.phase]
        print(json.dumps(phase.run(arguments.replays, arguments.backend)))
        return
    document = new_document("endurance", command_line("bench.endurance"), "cuda")
    groups = [[name] for name in PHASES if PHASES[name].alone]
    groups.append([name for name in PHASES if not PHASES[name].alone])
    for group in groups:
        begun = time.monotonic()
        started = [_child(name, arguments.replays, arguments.backend, True) for name in group]
        for name, process in zip(group, started, strict=True):
            document.results.append(_judged(name, process, begun, arguments.limit))
            print(json.dumps(document.results[-1]), flush=True)
    document.complete = True
    document.save(arguments.output)
    raise SystemExit(0 if all(result["passed"] for result in document.results) else 1)


if __name__ == "__main__":
    main()
