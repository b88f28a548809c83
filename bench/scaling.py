"""What a step would take on 2 to 64 ranks: ``python -m bench.scaling``.

No simulator: a sum of measured times and of one model. Measured are what a rank does by itself
(:mod:`bench.shard_stages`) and the collectives on two GPUs (:mod:`bench.distributed`), which give
the model its start-up time and NVLink's bandwidth. The rest of the model is :class:`Assumptions`.
The sizes that it is asked for are exact: :func:`tl_topk.distributed.received_bytes` states what the
tests see the collectives send.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from bench import distributed, shard_stages
from bench.cases import length_name
from bench.machine import commit
from bench.results import RESULTS, Document, command_line, load
from bench.tables import Table
from tl_topk.distributed.rule import choose_method, received_bytes, slots_of, stride_of

__all__ = ["CONTEXTS", "SUITE", "Assumptions", "Model", "project", "table"]

SUITE = "scaling"
CONTEXTS = (2**20, 2**22, 2**24, 2**26)
_ELEMENT_BYTES = 4


@dataclass(frozen=True)
class Assumptions:
    """What two GPUs of one host cannot tell.

    Attributes:
        host_ranks: GPUs of a host, all linked by NVLink.
        nvlink_hop_us: each step of a ring or a tree past those of two ranks, within a host.
        network_hop_us: the same between hosts.
        network_bytes_per_us: between hosts, for each GPU.
    """

    host_ranks: int = 8
    nvlink_hop_us: float = 1.0
    network_hop_us: float = 4.0
    network_bytes_per_us: float = 50_000.0


@dataclass(frozen=True)
class Line:
    """Microseconds over bytes received, on two GPUs."""

    start_us: float
    bytes_per_us: float


@dataclass(frozen=True)
class Model:
    """Measured times, and the model of the collectives."""

    gather: Line
    reduce: Line
    stages: dict[tuple[Any, ...], float]
    assumed: Assumptions

    @staticmethod
    def of(measured: Document, alone: Document, assumed: Assumptions | None = None) -> Model:
        """From the results of :mod:`bench.distributed` and of :mod:`bench.shard_stages`."""
        gather = _fit(
            [
                (received_bytes("gather", r["ranks"], r["rows"], r["k"], _ELEMENT_BYTES), r["us"])
                for r in measured.results
                if r["contender"] == "gather: collective"
            ]
        )
        # Of "threshold" both collectives were timed together: what the first of them does not take.
        reduce = _fit(
            [
                (words, max(r["us"] - gather.start_us - samples / gather.bytes_per_us, 0.0))
                for r in measured.results
                if r["contender"] == "threshold: collective"
                for samples, words in [_threshold_bytes(r["ranks"], r["rows"], r["k"])]
            ]
        )
        stages = {_key(result): result["us"] for result in alone.results}
        return Model(gather, reduce, stages, assumed or Assumptions())

    def select(self, method: str, rows: int, width: int) -> float:
        return self.stages["select", method, rows, width]

    def merge(self, method: str, rows: int, ranks: int) -> float:
        """All that a rank does after it has selected its own, but for the collectives."""
        stages = ("merge",) if method == "gather" else ("sample", "contribute", "merge")
        return sum(self.stages[stage, method, rows, ranks] for stage in stages)

    def collectives(self, method: str, rows: int, ranks: int) -> float:
        k = shard_stages.K
        if method == "gather":
            size = received_bytes(method, ranks, rows, k, _ELEMENT_BYTES)
            return self._collective(self.gather, ranks, size, self._ring_hops(ranks))
        samples, words = _threshold_bytes(ranks, rows, k)
        return self._collective(
            self.gather, ranks, samples, self._ring_hops(ranks)
        ) + self._collective(self.reduce, ranks, words, self._tree_hops(ranks))

    def _collective(self, line: Line, ranks: int, size: int, hops: float) -> float:
        within = ranks <= self.assumed.host_ranks
        speed = line.bytes_per_us if within else self.assumed.network_bytes_per_us
        return line.start_us + hops + size / speed

    def _ring_hops(self, ranks: int) -> float:
        """An all-gather's steps past the first; a ring over several hosts leaves each once."""
        hosts = -(-ranks // self.assumed.host_ranks)
        between = hosts if hosts > 1 else 0
        within = max(ranks - 2 - between, 0)
        return within * self.assumed.nvlink_hop_us + between * self.assumed.network_hop_us

    def _tree_hops(self, ranks: int) -> float:
        """An all-reduce's steps up and down a tree, past those of two ranks."""
        inside = min(ranks, self.assumed.host_ranks)
        hosts = -(-ranks // self.assumed.host_ranks)
        return 2 * (
            (math.log2(inside) - 1) * self.assumed.nvlink_hop_us
            + math.log2(hosts) * self.assumed.network_hop_us
        )


def project(model: Model) -> list[dict[str, Any]]:
    """Every context on every number of ranks, by the method that the rule picks."""
    projected = []
    for rows in shard_stages.ROWS:
        for context in CONTEXTS:
            for ranks in (1, *shard_stages.RANKS):
                method = choose_method(ranks, rows, shard_stages.K, _ELEMENT_BYTES)
                alone = ranks == 1
                parts = {
                    "select_us": model.select(method, rows, context // ranks),
                    "collective_us": 0.0 if alone else model.collectives(method, rows, ranks),
                    "merge_us": 0.0 if alone else model.merge(method, rows, ranks),
                }
                projected.append(
                    {
                        "rows": rows,
                        "context": context,
                        "ranks": ranks,
                        "k": shard_stages.K,
                        "method": "" if alone else method,
                        "received_bytes": 0 if alone else received_bytes(
                            method, ranks, rows, shard_stages.K, _ELEMENT_BYTES
                        ),
                        **{name: round(us, 2) for name, us in parts.items()},
                        "us": round(sum(parts.values()), 2),
                    }
                )  # fmt: skip
    return projected


def table(document: Document) -> Table:
    """Projected microseconds: contexts down, ranks across; the modelled part in brackets."""
    ranks = list(dict.fromkeys(result["ranks"] for result in document.results))
    cells: dict[tuple[int, int], list[str]] = {}
    for result in document.results:
        modelled = f" ({result['collective_us']:.0f})" if result["ranks"] > 1 else ""
        cells.setdefault((result["rows"], result["context"]), []).append(
            f"{result['us']:.0f}{modelled}"
        )
    return Table(
        ["case", *(f"{count} rank{'s' * (count > 1)}, us" for count in ranks)],
        [[f"{rows} x {length_name(context)}", *row] for (rows, context), row in cells.items()],
    )


def _key(result: dict[str, Any]) -> tuple[Any, ...]:
    place = result["width"] if result["stage"] == "select" else result["ranks"]
    return result["stage"], result["method"], result["rows"], place


def _threshold_bytes(ranks: int, rows: int, k: int) -> tuple[int, int]:
    """Received by the two collectives of "threshold"."""
    samples = (ranks - 1) * rows * (k // stride_of(k)) * 8
    return samples, 2 * (ranks - 1) * rows * slots_of(ranks, k) * 8 // ranks


def _fit(points: list[tuple[int, float]]) -> Line:
    """The least squares of relative errors: small sizes, where latency is all, count as much."""
    weights = [1 / max(us, 1.0) ** 2 for _, us in points]
    total = sum(weights)
    mean_x = sum(w * x for w, (x, _) in zip(weights, points, strict=True)) / total
    mean_y = sum(w * y for w, (_, y) in zip(weights, points, strict=True)) / total
    above = sum(w * (x - mean_x) * (y - mean_y) for w, (x, y) in zip(weights, points, strict=True))
    below = sum(w * (x - mean_x) ** 2 for w, (x, _) in zip(weights, points, strict=True))
    slope = max(above / below if below else 0.0, 1e-9)
    return Line(start_us=max(mean_y - slope * mean_x, 0.0), bytes_per_us=1 / slope)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.scaling",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--output", type=Path, default=RESULTS / f"{SUITE}.json")
    options = parser.parse_args()
    measured = load(RESULTS / f"{distributed.SUITE}.json")
    alone = load(RESULTS / f"{shard_stages.SUITE}.json")
    model = Model.of(measured, alone)
    Document(
        suite=SUITE,
        command=command_line("bench.scaling"),
        commit=commit(),
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        machine=measured.machine
        | {
            "measured": {"all-gather": asdict(model.gather), "all-reduce": asdict(model.reduce)},
            "assumed": asdict(model.assumed),
        },
        complete=measured.complete and alone.complete,
        results=project(model),
    ).save(options.output)


if __name__ == "__main__":
    main()
