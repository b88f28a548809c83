"""Made-up results of the distributed benchmarks, whose times follow simple laws."""

from __future__ import annotations

from typing import Any

from bench import distributed, scaling, shard_stages
from bench.results import EXACT, OURS, Document
from tl_topk.distributed.rule import received_bytes

START_US, BYTES_PER_US = 6.0, 100_000.0
MACHINE = {"gpu": "GPU", "driver": "1", "cuda": "13", "torch": "2"}


def document(suite: str, results: list[dict[str, Any]]) -> Document:
    return Document(suite, "command", "commit", "date", MACHINE, complete=True, results=results)


def collective_us(method: str, rows: int, k: int) -> float:
    starts = START_US if method == "gather" else 2 * START_US
    return starts + received_bytes(method, 2, rows, k, 4) / BYTES_PER_US


def on_two_gpus() -> Document:
    """Of a machine with one law for both collectives."""
    results = []
    for rows in (1, 16):
        for width in (2**17, 2**20):
            for k in (512, 2048):
                times = {
                    f"{OURS} gather": 20.0,
                    f"{OURS} threshold": 40.0,
                    distributed.ONE_GPU: 30.0,
                    "gather: select": 8.0,
                    "gather: collective": collective_us("gather", rows, k),
                    "gather: merge": 4.0,
                    "threshold: collective": collective_us("threshold", rows, k),
                }
                results += [
                    {"rows": rows, "width": width, "k": k, "ranks": 2, "contender": name}
                    | {"us": us, "noise_us": 0.1, "answer": "" if ":" in name else EXACT}
                    for name, us in times.items()
                ]
    return document(distributed.SUITE, results)


def alone() -> Document:
    """Selections take 5 us and a hundredth for each thousand scores; every other step 3 us."""
    results: list[dict[str, Any]] = []
    for rows in shard_stages.ROWS:
        for method in ("gather", "threshold"):
            common = {"method": method, "rows": rows, "k": shard_stages.K, "noise_us": 0.1}
            results += [
                common | {"stage": "select", "width": width, "us": 5 + rows * width / 1e5}
                for width in shard_stages.WIDTHS
            ]
            stages = ("merge",) if method == "gather" else ("sample", "contribute", "merge")
            results += [
                common | {"stage": stage, "ranks": ranks, "us": 3.0}
                for stage in stages
                for ranks in shard_stages.RANKS
            ]
    return document(shard_stages.SUITE, results)


def distributed_documents() -> dict[str, Document]:
    """What README shows of them."""
    measured = on_two_gpus()
    projected = scaling.project(scaling.Model.of(measured, alone()))
    return {measured.suite: measured, scaling.SUITE: document(scaling.SUITE, projected)}
