"""Who is timed: one interface for our backends and for everybody else's kernels."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

import tl_topk
from bench.cases import Case
from bench.exact import Answer
from bench.inputs import Inputs
from bench.results import OURS
from bench.timing import Launch

__all__ = [
    "Contender",
    "Ours",
    "OursByName",
    "TorchTopK",
    "missing",
    "optional",
    "our_plan",
    "with_outputs",
]


class Contender(ABC):
    """One way of selecting. ``name`` is what results call it."""

    name: str

    def unavailable(self) -> str:
        """Why it cannot be used on this machine; empty if it can."""
        return ""

    def refusal(self, case: Case) -> str:
        """Why it does not serve the case; empty if it does."""
        return ""

    def detail(self, case: Case) -> str:
        """What it has decided to do for the case, if it tells."""
        return ""

    def shared_bytes(self, case: Case) -> int | None:
        """What each of its blocks takes of shared memory, if it tells."""
        return None

    @abstractmethod
    def prepare(self, inputs: Inputs) -> list[Launch]:
        """One call per slot, each with outputs of its own; nothing to be done at call time but
        what its users do in every decoding step."""


def missing(module: str) -> str:
    """Why a module cannot be imported; empty if it can. Many fail in ways of their own."""
    try:
        importlib.import_module(module)
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""


def our_plan(case: Case, device: str, threads: int = 0) -> tl_topk.TopKPlan:
    return tl_topk.TopKPlan(
        case.rows,
        case.width,
        case.k,
        case.dtype,
        order=case.order,
        values=case.values,
        device_type=device,
        device_id=torch.cuda.current_device() if device == "cuda" else 0,
        threads=threads,
    )


class Ours(Contender):
    """One of our backends, through a plan: checks and the launch."""

    def __init__(self, backend: str, device: str, threads: int = 0) -> None:
        self.name = f"{OURS} {backend}"
        self._backend = backend
        self._device = device
        self._threads = threads

    def unavailable(self) -> str:
        state = tl_topk.info()["backends"][self._backend]
        return "" if state == "available" else state

    def detail(self, case: Case) -> str:
        return our_plan(case, self._device, self._threads).reason

    def shared_bytes(self, case: Case) -> int | None:
        config = our_plan(case, self._device, self._threads).config
        return None if config is None else int(config.shared_bytes)

    def prepare(self, inputs: Inputs) -> list[Launch]:
        plan = our_plan(inputs.case, self._device, self._threads)

        def launch(scores: Tensor, answer: Answer) -> Answer:
            plan.run(scores, answer.indices, answer.values, inputs.lengths, inputs.row_starts)
            return answer

        return [partial(launch, *slot) for slot in with_outputs(inputs)]


class OursByName(Contender):
    """One of our backends through the functional call, which every one of them serves."""

    def __init__(self, backend: str) -> None:
        self.name = f"{OURS} {backend}"
        self._backend = backend

    def unavailable(self) -> str:
        state = tl_topk.info()["backends"][self._backend]
        return "" if state == "available" else state

    def prepare(self, inputs: Inputs) -> list[Launch]:
        case = inputs.case
        options: Any = {
            "lengths": inputs.lengths,
            "row_starts": inputs.row_starts,
            "order": case.order,
            "backend": self._backend,
        }

        def launch(scores: Tensor, answer: Answer) -> Answer:
            if answer.values is None:
                tl_topk.topk_indices(scores, case.k, out=answer.indices, **options)
            else:
                out = tl_topk.TopK(answer.values, answer.indices)
                tl_topk.topk(scores, case.k, out=out, **options)
            return answer

        return [partial(launch, *slot) for slot in with_outputs(inputs)]


def with_outputs(inputs: Inputs) -> list[tuple[Tensor, Answer]]:
    """Each slot's scores, with outputs of their own as we write them."""
    case, scores = inputs.case, inputs.scores
    shape = (inputs.slots, case.rows, case.k)
    indices = torch.empty(shape, dtype=torch.int32, device=scores.device)
    values = torch.empty(shape, dtype=scores.dtype, device=scores.device) if case.values else None
    return [
        (scores[slot], Answer(indices[slot], None if values is None else values[slot]))
        for slot in range(inputs.slots)
    ]


class TorchTopK(Contender):
    """``torch.topk`` into outputs given: values and int64 indices, unsorted if that is allowed."""

    name = "torch.topk"

    def refusal(self, case: Case) -> str:
        if case.lengths is not None or case.row_starts:
            return "no lengths or row starts"
        if case.order == "index":
            return "no order by index"
        return "k beyond the width" if case.k > case.width else ""

    def prepare(self, inputs: Inputs) -> list[Launch]:
        case = inputs.case

        def launch(scores: Tensor, answer: tuple[Tensor, Tensor]) -> Answer:
            torch.topk(scores, case.k, sorted=case.order == "value", out=answer)
            return Answer(answer[1], answer[0])

        launches: list[Launch] = []
        for scores in inputs.scores:
            answer = (
                torch.empty(case.rows, case.k, dtype=scores.dtype, device=scores.device),
                torch.empty(case.rows, case.k, dtype=torch.int64, device=scores.device),
            )
            launches.append(partial(launch, scores, answer))
        return launches


def optional(module: str) -> ModuleType:
    """A module that :func:`missing` has found to be there."""
    return importlib.import_module(module)
