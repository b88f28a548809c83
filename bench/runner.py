"""Runs a suite: inputs once per kind, every contender on every case, each answer checked."""

from __future__ import annotations

import gc
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace
from itertools import groupby, product

import torch

import tl_topk
from bench.cases import Case
from bench.contenders import Contender, Ours, OursByName, TorchTopK
from bench.exact import judge
from bench.inputs import Inputs, make_inputs
from bench.peers import find_peers
from bench.results import Measurement
from bench.suites import Suite
from bench.timing import GraphTimer, Timer, WallTimer
from bench.variants import ablations

__all__ = ["CPU_THREADS", "choose_contenders", "make_timer", "measure"]

CPU_THREADS = 2


def choose_contenders(suite: Suite) -> tuple[list[Contender], dict[str, str]]:
    """Who takes part, and by name why the others do not."""
    wanted: list[Contender] = [*_ours(suite), TorchTopK()]
    if suite.device == "cuda" and suite.peers != ():
        wanted += [p for p in find_peers() if suite.peers is None or p.name in suite.peers]
    reasons = {contender.name: contender.unavailable() for contender in wanted}
    return (
        [contender for contender in wanted if not reasons[contender.name]],
        {name: reason for name, reason in reasons.items() if reason},
    )


def _ours(suite: Suite) -> list[Contender]:
    """The backend that plans are made of, then those that other suites leave out."""
    if suite.device == "cpu":
        return [Ours("cpu", "cpu", CPU_THREADS)]
    known = tl_topk.info()["backends"]
    others: list[Contender] = [OursByName(name) for name in suite.backends if name in known]
    if suite.tile:
        from bench.tile import tile_contenders  # needs what other suites do not

        others += tile_contenders()
    return [Ours("dsmem", "cuda"), *others, *(ablations() if suite.ablations else [])]


def make_timer(suite: Suite) -> Timer:
    if suite.device == "cuda":
        return GraphTimer()
    torch.set_num_threads(CPU_THREADS)
    return WallTimer()


def measure(
    suite: Suite,
    contenders: Sequence[Contender],
    timer: Timer,
    starting: Callable[[str], None],
    done: Container[tuple[Case, str]] = (),
) -> Iterator[Measurement]:
    """Every contender on every case, in the suite's order, but for what is ``done``.

    ``starting`` hears what comes next.
    """
    gc.freeze()  # every capture collects garbage: let it not look at the libraries again and again
    for _, group in groupby(suite.cases, key=_kind_of_input):
        wanted = [
            (case, contender)
            for case, contender in product(group, contenders)
            if (case, contender.name) not in done
        ]
        if not wanted:
            continue
        inputs = make_inputs(wanted[0][0], suite.device)
        for case, contender in wanted:
            starting(f"{contender.name}: {case}")
            yield _one(replace(inputs, case=case), contender, timer)


def _kind_of_input(case: Case) -> Case:
    return replace(case, k=0, order="any", values=False)


def _one(inputs: Inputs, contender: Contender, timer: Timer) -> Measurement:
    case = inputs.case
    reason = contender.refusal(case)
    if reason:
        return Measurement(case, contender.name, None, 0, 0, 0, f"refused: {reason}")
    try:
        timing, answers = timer.time(contender.prepare(inputs))
    except (RuntimeError, ValueError, TypeError) as error:
        if isinstance(contender, Ours):
            raise
        message = str(error).splitlines()[0] if str(error) else type(error).__name__
        return Measurement(case, contender.name, None, 0, 0, 0, f"failed: {message}")
    return Measurement(
        case,
        contender.name,
        round(timing.us, 3),
        round(timing.noise_us, 3),
        timing.launches,
        timing.repeats,
        judge(inputs, answers),
        contender.detail(case),
        contender.shared_bytes(case),
    )
