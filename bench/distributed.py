"""Top-k of rows divided over GPUs: ``python -m bench.distributed``, one process a GPU, NCCL.

Times plans of both methods, and their stages, inside CUDA graphs, against

- ``all_gather`` of the whole rows, followed by one top-k of ours,
- ``torch.topk`` of every shard, ``all_gather`` of values and indices, ``torch.topk`` again,
- one GPU that has the whole rows, as long as it takes alone.

Every graph holds many calls on different scores, none of which lie in L2. All ranks start a replay
together; the time of a call is that of the slowest rank. Every answer is compared with the one that
one GPU gives for the whole rows.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

import tl_topk
import tl_topk.distributed
from bench.machine import new_document
from bench.results import EXACT, OURS, RESULTS, command_line
from bench.timing import timing_event
from tl_topk.distributed.agreement import Agreement, agreed, the_group
from tl_topk.distributed.exchange import all_gather, all_reduce
from tl_topk.distributed.methods import gathered_bytes, select_own
from tl_topk.distributed.rule import slots_of, whole_quads

__all__ = ["SUITE", "Shape", "main"]

SUITE = "distributed"
METHODS = ("gather", "threshold")
ONE_GPU = f"{OURS} on one GPU alone"

_SCORES = 1 << 28  # per rank, from which the shards of all calls are cut: 1 GB
_SWEEP = 1 << 27  # bytes that are read before each replay
_CALLS = 24  # in a graph, at most
_GRAPH_BYTES = 1 << 29
_REPEATS = 6

#: Starts one call: (values, indices) of the result, None for a stage that has none.
Launch: TypeAlias = Callable[[], tuple[Tensor, Tensor] | None]


@dataclass(frozen=True)
class Shape:
    """One problem: ``width`` scores a row on all ranks together."""

    rows: int
    width: int
    k: int


class Bench:
    """One rank's memory and clocks."""

    def __init__(self) -> None:
        self.group = the_group(None)
        self.ranks = dist.get_world_size()
        self.rank = dist.get_rank()
        generator = torch.Generator("cuda").manual_seed(self.rank)
        self._scores = torch.randn(_SCORES, device="cuda", generator=generator)
        self._sweep = torch.zeros(_SWEEP // 4, device="cuda")
        self._begin, self._end = timing_event(), timing_event()
        self._token = torch.zeros(1, device="cuda")

    def shards(self, shape: Shape) -> list[Tensor]:
        """This rank's shards for the calls of one graph."""
        size = shape.rows * shape.width // self.ranks
        calls = max(2, min(_CALLS, _GRAPH_BYTES // (4 * size)))
        places = [i % (_SCORES // size) * size for i in range(calls)]
        return [self._scores[at : at + size].view(shape.rows, -1) for at in places]

    def time(self, launches: list[Launch], together: bool) -> tuple[float, float]:
        """Microseconds of a call, and how far two series of the same calls differ.

        ``together``: on all ranks, of which the slowest counts.
        """
        for launch in launches[:2]:
            launch()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kept = [launch() for launch in launches]
        series = []
        for _ in range(2):
            times = [self._replay(graph, together) for _ in range(_REPEATS)][1:]
            series.append(statistics.median(times) / len(launches))
        del kept
        result = torch.tensor([*series], device="cuda")
        if together:
            dist.all_reduce(result, op=dist.ReduceOp.MAX)
        first, second = result.tolist()
        return (first + second) / 2, abs(first - second)

    def _replay(self, graph: torch.cuda.CUDAGraph, together: bool) -> float:
        self._sweep.sum()
        if together:
            dist.all_reduce(self._token)
        self._begin.record()
        graph.replay()
        self._end.record()
        self._end.synchronize()
        return float(self._begin.elapsed_time(self._end)) * 1e3

    def whole(self, shard: Tensor) -> Tensor:
        """The whole rows of all ranks' shards."""
        gathered = torch.empty(self.ranks, *shard.shape, device="cuda")
        all_gather(gathered, shard, self.group)
        return gathered.transpose(0, 1).reshape(shard.shape[0], -1)

    def verdict(self, launch: Launch, shard: Tensor, k: int) -> str:
        """EXACT where the values and the set of indices are those of one GPU."""
        result = launch()
        if result is None:
            return ""
        values, indices = result
        one = tl_topk.topk(self.whole(shard), k, order="index")
        by_index = indices.long().sort(dim=1)
        same = torch.equal(by_index.values, one.indices.long()) and torch.equal(
            values.gather(1, by_index.indices), one.values
        )
        return EXACT if same else "wrong"


def planned(bench: Bench, shape: Shape, shards: list[Tensor], method: str) -> list[Launch]:
    plan = tl_topk.distributed.Plan(shards[0], shape.k, method=method)

    def launch(shard: Tensor) -> tuple[Tensor, Tensor]:
        result = plan.run(shard)
        return result.values, result.indices

    return [partial(launch, shard) for shard in shards]


def agreement_on(bench: Bench, shape: Shape, shard: Tensor, method: str) -> Agreement:
    options = ("contiguous", None, True, "any", False, method)
    return agreed(bench.group, shard, shape.k, None, options)[1]


def memory_for(agreement: Agreement) -> Tensor:
    """What the all-gather brings together."""
    return torch.zeros(gathered_bytes(agreement), dtype=torch.uint8, device="cuda")


def gather_stages(bench: Bench, shape: Shape, shards: list[Tensor]) -> dict[str, list[Launch]]:
    agreement = agreement_on(bench, shape, shards[0], "gather")
    rows, count = shape.rows, whole_quads(agreement.count)
    parts = memory_for(agreement).view(bench.ranks, -1)
    own = parts[bench.rank]
    pairs = rows * count
    own_indices = own[: 4 * pairs].view(torch.int32).view(rows, count)
    own_values = own[4 * pairs : 8 * pairs].view(torch.float32).view(rows, count)
    values = torch.empty(rows, shape.k, device="cuda")
    indices = torch.empty(rows, shape.k, dtype=torch.int32, device="cuda")

    def select(shard: Tensor) -> None:
        select_own(agreement, shard, None, "any", own_values, own_indices)

    def merge() -> None:
        agreement.shards.merge_parts(parts, count, indices, values, None, True, "any")

    select(shards[0])
    all_gather(parts, own, bench.group)
    return {
        "select": [partial(select, shard) for shard in shards],
        "collective": [lambda: all_gather(parts, own, bench.group)] * len(shards),
        "merge": [merge] * len(shards),
    }


def threshold_stages(bench: Bench, shape: Shape, shards: list[Tensor]) -> dict[str, list[Launch]]:
    agreement = agreement_on(bench, shape, shards[0], "threshold")
    rows, count, stride = shape.rows, agreement.count, agreement.stride
    steps = agreement.shards
    own_values = torch.empty(rows, count, device="cuda")
    own_indices = torch.empty(rows, count, dtype=torch.int32, device="cuda")
    samples = memory_for(agreement).view(torch.int64).view(bench.ranks, -1)
    own = samples[bench.rank]
    words = torch.zeros(rows, slots_of(bench.ranks, shape.k), dtype=torch.int64, device="cuda")
    values = torch.empty(rows, shape.k, device="cuda")
    indices = torch.empty(rows, shape.k, dtype=torch.int32, device="cuda")
    zeros = torch.zeros_like(words)

    def select(shard: Tensor) -> None:
        select_own(agreement, shard, None, "value", own_values, own_indices)

    def collectives() -> None:
        all_gather(samples, own, bench.group)
        all_reduce(zeros, bench.group)

    def sample_and_contribute(into: Tensor) -> None:
        steps.sample(own_indices, own_values, True, stride, own.view(rows, -1))
        steps.contribute(own_indices, own_values, samples, True, shape.k, stride, into)

    select(shards[0])
    for _ in range(2):  # with the others' samples from the second time on
        sample_and_contribute(words)
        all_gather(samples, own, bench.group)
    all_reduce(words, bench.group)
    scratch = torch.empty_like(words)
    stages: dict[str, Launch] = {
        "collective": collectives,
        "bound": lambda: sample_and_contribute(scratch),
        "merge": lambda: steps.merge_words(words, indices, values, None, True, "any"),
    }
    return {
        "select": [partial(select, shard) for shard in shards],
        **{name: [stage] * len(shards) for name, stage in stages.items()},
    }


_STAGES = {"gather": gather_stages, "threshold": threshold_stages}


def gather_all_rows(bench: Bench, shape: Shape, shard: Tensor) -> Launch:
    return lambda: tl_topk.topk(bench.whole(shard), shape.k)


def torch_locally(bench: Bench, shape: Shape, shard: Tensor) -> Launch:
    def launch() -> tuple[Tensor, Tensor]:
        values, indices = torch.topk(shard, min(shape.k, shard.shape[1]), sorted=False)
        indices += bench.rank * shard.shape[1]
        all_values, all_indices = bench.whole(values), indices.new_empty(bench.ranks, *values.shape)
        all_gather(all_indices, indices, bench.group)
        whole = all_indices.transpose(0, 1).reshape(shape.rows, -1)
        best = torch.topk(all_values, shape.k, sorted=False)
        return best.values, whole.gather(1, best.indices)

    return launch


def measure(bench: Bench, shape: Shape) -> Iterable[dict[str, Any]]:
    """Every contender on one problem; the same results on every rank."""
    shards = bench.shards(shape)
    contenders = {f"{OURS} {method}": planned(bench, shape, shards, method) for method in METHODS}
    contenders["all_gather of the rows, then top-k"] = [
        gather_all_rows(bench, shape, shard) for shard in shards
    ]
    contenders["torch.topk, all_gather, torch.topk"] = [
        torch_locally(bench, shape, shard) for shard in shards
    ]
    for method, make in _STAGES.items():
        for stage, launches in make(bench, shape, shards).items():
            contenders[f"{method}: {stage}"] = launches
    for name, launches in contenders.items():
        yield record(bench, shape, name, *bench.time(launches, together=True),
                     bench.verdict(launches[0], shards[0], shape.k))  # fmt: skip
    wholes = [bench.whole(shard) for shard in shards[: max(2, len(shards) // 4)]]
    torch.cuda.synchronize()
    dist.barrier()
    if bench.rank == 0:
        alone: list[Launch] = [lambda whole=whole: tl_topk.topk(whole, shape.k) for whole in wholes]  # type: ignore[misc]
        yield record(bench, shape, ONE_GPU, *bench.time(alone, together=False), "")
    dist.barrier()


def record(
    bench: Bench, shape: Shape, contender: str, us: float, noise_us: float, answer: str
) -> dict[str, Any]:
    return {
        **asdict(shape),
        "ranks": bench.ranks,
        "contender": contender,
        "us": round(us, 3),
        "noise_us": round(noise_us, 3),
        "answer": answer,
    }


def serve(rank: int, ranks: int, store: str, shapes: list[Shape], output: Path) -> None:
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{store}", rank=rank, world_size=ranks)
    document = new_document(SUITE, os.environ["BENCH_COMMAND"], "cuda")
    document.machine |= {"gpus": ranks, "nccl": nccl_version()}
    bench = Bench()
    for shape in shapes:
        for result in measure(bench, shape):
            document.results.append(result)
            if rank == 0:
                print(json.dumps(result), flush=True)
        if rank == 0:
            document.complete = shape == shapes[-1]
            document.save(output)
    dist.destroy_process_group()


def nccl_version() -> str:
    return ".".join(str(number) for number in torch.cuda.nccl.version())  # type: ignore[no-untyped-call]


def shapes_of(rows: list[int], widths: list[int], ks: list[int]) -> list[Shape]:
    """All combinations, save for those of which a rank's memory holds no two different shards."""
    return [
        Shape(r, width, k) for r in rows for width in widths for k in ks if r * width <= _SCORES
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.distributed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--ranks", type=int, default=torch.cuda.device_count())
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--widths", type=int, nargs="+", default=[2**17, 2**20, 2**22, 2**24])
    parser.add_argument("--k", type=int, nargs="+", default=[2048, 512])
    parser.add_argument("--output", type=Path, default=RESULTS / f"{SUITE}.json")
    options = parser.parse_args()
    if not 1 <= options.ranks <= torch.cuda.device_count():
        parser.error(f"--ranks: expected 1 to {torch.cuda.device_count()}, one for each GPU")
    os.environ["BENCH_COMMAND"] = command_line("bench.distributed")
    shapes = shapes_of(options.rows, options.widths, options.k)
    with tempfile.TemporaryDirectory() as folder:
        arguments = (options.ranks, f"{folder}/store", shapes, options.output)
        spawn: Any = mp.spawn  # type: ignore[attr-defined]
        spawn(serve, arguments, nprocs=options.ranks)


if __name__ == "__main__":
    main()
