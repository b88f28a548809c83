"""Fits the constants of the dispatcher's cost model to recorded measurements.

    python -m bench.fit_costs [--check]

Reads regret_ready.json, regret_scored.json and cpu.json of bench/results, writes
tl_topk/dispatch/h200.json and prints how far the estimates are off. With --check nothing is
written: exit code 1 says that the file is not what the measurements give.

Costs are not negative and relative errors are least: a microsecond more matters more where all
takes five. Squared up to 5 %, beyond that linear (Huber): a row on which a kernel went its slow way
says little about its usual one.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from bench.contest import Contest, Question
from bench.results import OURS, READY_SUITE, RESULTS, SCORED_SUITE, Document, load
from tl_topk.dispatch.candidates import candidates
from tl_topk.dispatch.costs import CONSTANTS, cpu_work, scored_work, select_name, select_work
from tl_topk.dispatch.decision import FUSED, SCORE_AND_SELECT
from tl_topk.dispatch.devices import NAMED
from tl_topk.problem import Gpu, Problem, Scoring

__all__ = [
    "costs_of", "errors", "fit", "gpu_of_document", "main", "problem_of", "samples_of", "text_of",
]  # fmt: skip

TARGET = Path(__file__).parents[1] / "tl_topk" / "dispatch" / CONSTANTS

_SIGNIFICANT = 5  # digits kept
_USUAL = 0.05  # a relative error up to which squares count
_REWEIGHTED = 30

Sample: TypeAlias = "tuple[dict[str, float], float]"  # the parts of the work, microseconds


def gpu_of_document(document: Document) -> Gpu:
    """The GPU that a document was measured on."""
    facts = document.machine
    known = next(gpu for gpu in NAMED.values() if gpu.name == facts["gpu"])
    return Gpu(
        facts["gpu"],
        known.compute_capability,
        facts["sms"],
        facts["shared_memory_per_block"],
        facts["l2_bytes"],
        tuple(facts["coresident_clusters"]),
        known.memory_tb_per_s,
    )


def problem_of(question: Question, gpu: Gpu) -> Problem:
    """What the dispatcher is asked. It never sees how much of the rows counts."""
    scored = question.scored
    return Problem(
        question.rows,
        question.width,
        question.k,
        question.dtype,
        values=False,
        device_type="cuda",
        scoring=None if scored is None else Scoring(scored.heads, next_n=scored.next_n),
        gpu=gpu,
    )


def samples_of(document: Document) -> dict[str, list[Sample]]:
    """By the name of the costs: what was to be done, and what it took."""
    gpu = gpu_of_document(document)
    samples: dict[str, list[Sample]] = {}
    for result in document.results:
        contest = Contest.from_dict(result)
        question = contest.question
        if question.length is not None or (question.scored and question.scored.shared > 1):
            continue  # what no decision can see
        problem = problem_of(question, gpu)
        for candidate in candidates(problem):
            us = contest.us.get(candidate.name)
            if us is None or candidate.config is None:
                continue
            if problem.scoring is None:
                name = select_name(candidate.kernel, candidate.config)
                work = select_work(problem, candidate.config, gpu)
            else:
                name, work = candidate.kernel, scored_work(problem, gpu)
            samples.setdefault(name, []).append((work, us))
    return samples


def _cpu_samples(document: Document) -> list[Sample]:
    problems = (
        (Problem(m.case.rows, m.case.width, m.case.k, m.case.dtype), m.us)
        for m in document.measurements()
        if m.contender.startswith(OURS) and m.us is not None
    )
    return [(cpu_work(problem), us) for problem, us in problems]


def costs_of(samples: list[Sample]) -> dict[str, float]:
    """The cost of each part, at least 0, with the least relative errors."""
    parts = list(samples[0][0])
    work = np.array([[work[part] for part in parts] for work, _ in samples])
    us = np.array([us for _, us in samples])
    relative = work / us[:, None]
    sizes = np.maximum(np.linalg.norm(relative, axis=0), 1e-30)
    relative /= sizes
    weights = np.ones(len(us))
    for _ in range(_REWEIGHTED):
        scaled = _non_negative(relative * weights[:, None], weights)
        off = np.abs(relative @ scaled - 1)
        weights = np.sqrt(np.minimum(1, _USUAL / np.maximum(off, 1e-12)))
    costs = scaled / sizes
    return {
        part: float(f"{cost:.{_SIGNIFICANT}g}") for part, cost in zip(parts, costs, strict=True)
    }


def _non_negative(a: Any, b: Any) -> Any:
    """Least squares with no negative unknown, by Lawson and Hanson's active sets."""
    x = np.zeros(a.shape[1])
    free = np.zeros(a.shape[1], bool)
    for _ in range(10 * a.shape[1]):
        gradient = a.T @ (b - a @ x)
        if free.all() or gradient[~free].max() <= 1e-10:
            return x
        free[np.argmax(np.where(free, -np.inf, gradient))] = True
        while True:
            solved = np.zeros_like(x)
            solved[free] = np.linalg.lstsq(a[:, free], b, rcond=None)[0]
            if solved[free].min() > 0:
                break
            negative = free & (solved <= 0)
            step = (x[negative] / (x[negative] - solved[negative])).min()
            x = x + step * (solved - x)
            free &= x > 1e-14
        x = solved
    return x


def _ranges(document: Document) -> dict[str, dict[str, list[int]]]:
    """By kernel: from where to where problems were measured whose scores are made first."""
    questions = [Contest.from_dict(result).question for result in document.results]
    sizes = [
        {"rows": q.rows, "width": q.width, "heads": q.scored.heads, "next_n": q.scored.next_n}
        for q in questions
        if q.scored is not None
    ]
    ranges = {
        name: [min(size[name] for size in sizes), max(size[name] for size in sizes)]
        for name in sizes[0]
    }
    return {FUSED: ranges, SCORE_AND_SELECT: ranges}


def fit(results: Path = RESULTS) -> dict[str, Any]:
    """The content of the constants' file."""
    ready, scored, cpu = (load(results / f"{n}.json") for n in (READY_SUITE, SCORED_SUITE, "cpu"))
    gpu = gpu_of_document(ready)
    samples = {**samples_of(ready), **samples_of(scored), "cpu": _cpu_samples(cpu)}
    return {
        "gpu": {"name": gpu.name, "sms": gpu.sms, "memory_tb_per_s": gpu.memory_tb_per_s},
        "measured": _ranges(scored),
        "fitted_to": [f"{d.suite}.json, commit {d.commit}" for d in (ready, scored, cpu)],
        **{name: costs_of(each) for name, each in samples.items()},
    }


def text_of(constants: dict[str, Any]) -> str:
    return json.dumps(constants, indent=1) + "\n"


def errors(samples: Iterable[Sample], costs: dict[str, float]) -> list[float]:
    """How far each estimate is off, relative to what was measured."""
    return [
        sum(costs[part] * amount for part, amount in work.items()) / us - 1 for work, us in samples
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.fit_costs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    constants = fit()
    text = text_of(constants)
    if options.check:
        sys.exit(0 if TARGET.read_text() == text else 1)
    TARGET.write_text(text)
    for suite in (READY_SUITE, SCORED_SUITE):
        for name, samples in samples_of(load(RESULTS / f"{suite}.json")).items():
            off = np.abs(errors(samples, constants[name]))
            print(
                f"{name}: {len(samples)} measurements, off by {np.median(off):.0%} (median),"
                f" {np.quantile(off, 0.95):.0%} (95 %), {off.max():.0%} at most"
            )


if __name__ == "__main__":
    main()
