"""What a candidate takes: a sum of what is to be done, each part times what it costs.

The parts are launches, waves of blocks, the bytes a block streams, those of the memory as a whole,
multiplications, and what grows with k. The costs are fitted to measurements on an H200 by
``python -m bench.fit_costs``, which writes h200.json; nothing in there is typed. For other GPUs
they are scaled by facts: their memory's bandwidth and their multiprocessors.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from tl_topk.dispatch.decision import Config
from tl_topk.problem import Gpu, Problem

__all__ = ["CONSTANTS", "Work", "cpu_work", "estimate", "scored_work", "select_work"]

CONSTANTS = "h200.json"

_MB = 1 << 20
_CLUSTERS = (1, 2, 4, 8, 16)
_INDEX_BYTES = 4
_SCORE_BYTES = 4

#: How much of each part there is, by its name.
Work = dict[str, float]

#: The most of the selections that the constants are fitted to (bench/results/regret_ready.json).
_FITTED_K = 2048
_FITTED_WIDTH = 1 << 20


@cache
def _fitted() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(files(__package__).joinpath(CONSTANTS).read_text())
    return data


def estimate(problem: Problem, kernel: str, config: Config | None) -> tuple[float | None, str]:
    """Microseconds, and what they rest on; (None, "") where nothing is known."""
    fitted = _fitted()
    if problem.device_type == "cpu":
        if problem.scoring is not None:
            return None, ""
        return round(_cost(cpu_work(problem), fitted["cpu"], {}), 2), "derived"
    gpu = problem.gpu
    if gpu is None or config is None:
        return None, ""
    scales = _scales(gpu, fitted["gpu"])
    if problem.scoring is None:
        name, work = select_name(kernel, config), select_work(problem, config, gpu)
    else:
        name, work = kernel, scored_work(problem, gpu)
    if name not in fitted or not _was_measured(problem, fitted.get("measured", {}).get(name)):
        return None, ""
    is_derived = scales or (problem.scoring is None and config.scope == "grid")
    us = _cost(work, fitted[name], scales)
    within = problem.scoring is not None or _is_like_fitted(problem)
    return round(us, 2), "derived" if is_derived else "fitted" if within else "extrapolated"


def _is_like_fitted(problem: Problem) -> bool:
    """Is it such a selection as the constants are fitted to? Values are taken for free."""
    sizes_are = problem.k <= _FITTED_K and problem.width <= _FITTED_WIDTH
    return problem.order == "any" and sizes_are


def _was_measured(problem: Problem, ranges: dict[str, list[int]] | None) -> bool:
    """Does a problem whose scores are made first lie where the kernel was measured? Beyond, sums of
    what heads and queries cost say too little. Empty ones cost what the smallest do.
    """
    if problem.scoring is None or ranges is None:
        return True
    sizes = {
        "rows": problem.rows,
        "width": problem.width,
        "heads": problem.scoring.heads,
        "next_n": problem.scoring.next_n,
    }
    return all(sizes[name] <= most for name, (_, most) in ranges.items()) and all(
        sizes[name] >= ranges[name][0] for name in ("heads", "next_n")
    )


def _scales(gpu: Gpu, fitted: dict[str, Any]) -> dict[str, float]:
    """What a part costs on ``gpu`` by what it costs where it was measured; empty on the same."""
    if gpu.name == fitted["name"]:
        return {}
    by_sms = float(fitted["sms"]) / gpu.sms
    memory: float = fitted["memory_tb_per_s"]
    # Unknown memory: as much for each multiprocessor as there.
    by_memory = by_sms if gpu.memory_tb_per_s is None else memory / gpu.memory_tb_per_s
    return {"memory_mb": by_memory, "gflop": by_sms, "tiles": by_sms}


def _cost(work: Work, costs: dict[str, float], scales: dict[str, float]) -> float:
    return sum(costs[part] * scales.get(part, 1.0) * amount for part, amount in work.items())


def select_name(kernel: str, config: Config) -> str:
    """The name of a kernel's costs; those of the native one differ by the blocks that meet. Of
    several clusters that share a row, until they have been measured: those of one.
    """
    return kernel if kernel == "pipelined" else f"select {config.cluster_blocks}"


def select_work(problem: Problem, config: Config, gpu: Gpu) -> Work:
    """Of a selection from scores that lie ready.

    Blocks of a row run together, so rows come in waves. ``block_mb`` is what one block streams, all
    waves together; ``memory_mb`` what all blocks do.
    """
    blocks = max(config.blocks_per_row, 1)
    at_once = gpu.sms // blocks
    if config.scope == "cluster" and blocks in _CLUSTERS:
        at_once = gpu.coresident_clusters[_CLUSTERS.index(blocks)]
    waves = -(-problem.rows // max(at_once, 1))
    row_mb = problem.width * problem.element_bytes / _MB
    return {
        "launch": 1.0,
        "wave": waves - 1.0,
        "block_mb": waves * row_mb / blocks,
        "memory_mb": problem.rows * row_mb,
        "k": waves * problem.k / 1024,
        "result_mb": problem.rows * problem.k * _INDEX_BYTES / _MB,
    }


def scored_work(problem: Problem, gpu: Gpu) -> Work:
    """Of scores and selection: keys are read once for all queries of a sequence; a multiprocessor
    multiplies while the next keys come, so that of the two the longer counts.
    """
    scoring = problem.scoring
    assert scoring is not None
    keys = problem.rows / scoring.next_n * problem.width
    key_mb = keys * scoring.key_bytes / _MB
    gflop = 2e-9 * problem.rows * problem.width * scoring.heads * scoring.dim
    return {
        "launch": 1.0,
        "memory_mb": key_mb,
        "gflop": gflop,
        "score_mb": problem.rows * problem.width * _SCORE_BYTES / _MB,
        "rows": problem.rows / gpu.sms,
        "k": problem.rows * problem.k / 1024 / gpu.sms,
    }


def cpu_work(problem: Problem) -> Work:
    return {"memory_mb": problem.rows * problem.width * problem.element_bytes / _MB}
