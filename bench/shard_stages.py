"""What one rank of many does by itself: ``python -m bench.shard_stages``, on one GPU.

Times the selection from shards of many widths and the steps after the exchange for 2 to 64 ranks,
whose data this one process makes. With the collectives' times of :mod:`bench.distributed` they are
what :mod:`bench.scaling` reckons with.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import tl_topk
from bench.exact import Answer
from bench.machine import new_document
from bench.results import RESULTS, command_line
from bench.timing import GraphTimer, Launch
from tl_topk._ffi import Shards
from tl_topk.distributed.rule import part_bytes, slots_of, stride_of

__all__ = ["RANKS", "ROWS", "SUITE", "WIDTHS", "K", "main"]

SUITE = "shard_stages"
K = 2048
ROWS = (1, 16)
RANKS = (2, 4, 8, 16, 32, 64)
#: Of a shard: a row of 1M on 64 ranks to one of 64M on one.
WIDTHS = tuple(2**i for i in range(14, 27))

_SLOT_BYTES = 3 << 28
_MOST_SLOTS = 32


def selections(timer: GraphTimer) -> Iterator[dict[str, Any]]:
    """A rank's own selection, in any order as "gather" wants it and sorted for "threshold"."""
    for rows in ROWS:
        for width in WIDTHS:
            calls = max(1, min(_MOST_SLOTS, _SLOT_BYTES // (4 * rows * width)))
            scores = torch.randn(calls, rows, width, device="cuda")
            for method, order in (("gather", "any"), ("threshold", "value")):
                launches = [selecting(shard, order) for shard in scores]
                yield result(timer, launches, stage="select", method=method, rows=rows, width=width)


def selecting(shard: Tensor, order: str) -> Launch:
    values, indices = tl_topk.topk(shard, K, order=order)

    def launch() -> Answer:
        tl_topk.topk(shard, K, order=order, out=(values, indices))
        return Answer(indices)

    return launch


def merges(timer: GraphTimer) -> Iterator[dict[str, Any]]:
    """What follows the exchange: the merge, and for "threshold" what comes between as well."""
    width = 2**18
    for rows in ROWS:
        for ranks in RANKS:
            shards: list[Any] = [Shards(rank, [width] * ranks, 0) for rank in range(ranks)]
            own = [
                tl_topk.topk(torch.randn(rows, width, device="cuda"), K, order="value")
                for _ in shards
            ]
            values, indices = (torch.empty_like(each) for each in own[0])
            for method, steps in (
                ("gather", gathered(shards, own, values, indices)),
                ("threshold", agreed(shards, own, values, indices)),
            ):
                for stage, step in steps.items():
                    launches = [answering(step, indices)]
                    yield result(
                        timer, launches, stage=stage, method=method, rows=rows, ranks=ranks
                    )


def answering(step: Callable[[], None], indices: Tensor) -> Launch:
    def launch() -> Answer:
        step()
        return Answer(indices)

    return launch


def gathered(
    shards: list[Any], own: list[Any], values: Tensor, indices: Tensor
) -> dict[str, Callable[[], None]]:
    rows = len(indices)
    parts = torch.zeros(len(own), part_bytes(rows, K, 4), dtype=torch.uint8, device="cuda")
    for part, each in zip(parts, own, strict=True):
        part[: 4 * rows * K] = each.indices.flatten().view(torch.uint8)
        part[4 * rows * K :] = each.values.flatten().view(torch.uint8)
    return {
        "merge": lambda: shards[0].merge_parts(parts, K, indices, values, None, True, "any"),
    }


def agreed(
    shards: list[Any], own: list[Any], values: Tensor, indices: Tensor
) -> dict[str, Callable[[], None]]:
    rows, stride = len(indices), stride_of(K)
    like: dict[str, Any] = {"dtype": torch.int64, "device": "cuda"}
    samples = torch.zeros(len(own), rows * (K // stride), **like)
    total = torch.zeros(rows, slots_of(len(own), K), **like)
    words = torch.zeros_like(total)

    def sample(rank: int) -> None:
        mine = samples[rank].view(rows, -1)
        shards[rank].sample(own[rank].indices, own[rank].values, True, stride, mine)

    def contribute(rank: int) -> None:
        each = own[rank]
        shards[rank].contribute(each.indices, each.values, samples, True, K, stride, words)

    for rank in range(len(own)):
        sample(rank)
    for rank in range(len(own)):
        contribute(rank)
        total += words
    return {
        "sample": lambda: sample(0),
        "contribute": lambda: contribute(0),
        "merge": lambda: shards[0].merge_words(total, indices, values, None, True, "any"),
    }


def result(timer: GraphTimer, launches: list[Launch], **what: Any) -> dict[str, Any]:
    timing, _ = timer.time(launches)
    return {**what, "k": K, "us": round(timing.us, 3), "noise_us": round(timing.noise_us, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.shard_stages",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--output", type=Path, default=RESULTS / f"{SUITE}.json")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("torch sees no GPU")
    document = new_document(SUITE, command_line("bench.shard_stages"), "cuda")
    timer = GraphTimer()
    for stages in (merges(timer), selections(timer)):
        for each in stages:
            document.results.append(each)
            print(each, flush=True)
        document.save(options.output)
    document.complete = True
    document.save(options.output)


if __name__ == "__main__":
    main()
