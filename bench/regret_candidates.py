"""The candidates of :mod:`bench.regret`, as calls that a graph can capture."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import Any

import torch
from torch import Tensor

import tl_topk
from bench.contest import Question
from tl_topk.backends import BACKENDS
from tl_topk.calibrate import Call, plans_of
from tl_topk.indexer.sizes import DIM, PAGE, SCALE_BYTES
from tl_topk.problem import Problem

__all__ = ["Candidates", "ReadyCandidates", "ScoredCandidates"]

_POOL_BYTES = (1 << 30) + (1 << 20)  # of scores, that all questions take theirs from
_POOL_PAGES = 1 << 17  # of keys
_SCORED_BACKENDS = {"fused": "pipelined", "dsmem after scores": "dsmem"}


class Candidates(ABC):
    """What is timed against one another. Holds the memory that all questions share."""

    def __init__(self) -> None:
        self._generator = torch.Generator(device="cuda").manual_seed(20261)
        self._indices: dict[str, list[Tensor]] = {}

    def facts(self) -> dict[str, Any]:
        """Of the machine, for the document."""
        device = tl_topk.info()["devices"][torch.cuda.current_device()]
        names = ("sms", "shared_memory_per_block", "l2_bytes", "coresident_clusters")
        return {name: device[name] for name in names}

    @abstractmethod
    def absent(self) -> dict[str, str]:
        """Candidates that cannot be used here, and why."""

    @abstractmethod
    def bytes_read(self, question: Question) -> int:
        """By a call."""

    @abstractmethod
    def ways(self, question: Question, calls: int) -> dict[str, list[Call]]:
        """By candidate, so many calls; each on inputs of its own while those last."""

    def wrong(self, question: Question, ways: dict[str, list[Call]]) -> tuple[str, ...]:
        """Candidates that do not select the best, or not what the others select."""
        expected: Tensor | None = None
        wrong = []
        for name, calls in ways.items():
            indices = self._indices[name][0].fill_(-7)
            calls[0]()
            found = indices.sort(dim=1).values
            if expected is None:
                expected = found
                if not self.is_best(question, indices):
                    wrong.append(name)
            elif not torch.equal(found, expected):
                wrong.append(name)
        return tuple(wrong)

    @abstractmethod
    def is_best(self, question: Question, indices: Tensor) -> bool:
        """Compares with torch.topk what the first call has selected."""

    def _outputs(self, name: str, question: Question, calls: int) -> list[Tensor]:
        shape = (question.rows, question.k)
        made = [torch.empty(shape, dtype=torch.int32, device="cuda") for _ in range(calls)]
        self._indices[name] = made
        return made


def _are_best(scores: Tensor, indices: Tensor, k: int) -> bool:
    count = min(k, scores.shape[1])
    chosen = scores.gather(1, indices[:, :count].long()).sort(dim=1).values
    best = scores.topk(count, dim=1, sorted=False).values.sort(dim=1).values
    distinct = indices[:, :count].sort(dim=1).values.diff(dim=1).min() > 0
    return bool(distinct) and torch.equal(chosen, best)


class ReadyCandidates(Candidates):
    """The native kernel with every cluster size and with its own choice, and the TileLang one."""

    def __init__(self) -> None:
        super().__init__()
        self._floats = torch.empty(_POOL_BYTES // 4, device="cuda").normal_(
            generator=self._generator
        )
        self._halves = self._floats[: 1 << 27].bfloat16()

    def absent(self) -> dict[str, str]:
        why = BACKENDS["pipelined"].unavailable()
        return {} if why is None else {"pipelined": why}

    def bytes_read(self, question: Question) -> int:
        return question.bytes

    def _slots(self, question: Question, calls: int) -> list[Tensor]:
        pool = self._floats if question.dtype == "float32" else self._halves
        size = question.rows * question.width
        slots = min(calls, pool.numel() // size)
        made = [pool[i * size : (i + 1) * size].view(question.rows, -1) for i in range(slots)]
        return [made[i % slots] for i in range(calls)]

    def ways(self, question: Question, calls: int) -> dict[str, list[Call]]:
        slots = self._slots(question, calls)
        lengths = None
        if question.length is not None:
            lengths = torch.full((question.rows,), question.length, device="cuda").int()
        ways: dict[str, list[Call]] = {}
        for name, plan in plans_of(_problem(question)).items():
            outputs = self._outputs(name, question, calls)
            ways[name] = [
                partial(plan.run, scores, out, None, lengths)
                for scores, out in zip(slots, outputs, strict=True)
            ]
        return ways

    def is_best(self, question: Question, indices: Tensor) -> bool:
        scores = self._slots(question, 1)[0]
        if question.length is not None:
            scores = scores[:, : question.length]
        return _are_best(scores, indices, question.k)


def _problem(question: Question) -> Problem:
    return Problem(
        question.rows,
        question.width,
        question.k,
        question.dtype,
        values=False,
        device_type="cuda",
        device_id=torch.cuda.current_device(),
    )


class ScoredCandidates(Candidates):
    """One kernel that scores and selects, and one that scores with dsmem behind it."""

    def __init__(self) -> None:
        super().__init__()
        self._pages = torch.empty(
            (_POOL_PAGES, PAGE * (DIM + SCALE_BYTES)), dtype=torch.uint8, device="cuda"
        )
        step = 1 << 12  # in parts, for they take four times as much before they are float8
        for first in range(0, _POOL_PAGES, step):
            part = self._pages[first : first + step]
            keys = torch.empty(len(part), PAGE * DIM, device="cuda")
            keys.normal_(generator=self._generator)
            part[:, : PAGE * DIM] = keys.to(torch.float8_e4m3fn).view(torch.uint8)
            scales = torch.rand(len(part), PAGE, generator=self._generator, device="cuda") + 0.5
            part[:, PAGE * DIM :] = scales.view(torch.uint8)
        order = torch.randperm(_POOL_PAGES, generator=self._generator, device="cuda").int()
        self._order = torch.cat([order, order])

    def absent(self) -> dict[str, str]:
        return {}

    def bytes_read(self, question: Question) -> int:
        assert question.scored is not None
        keys = question.rows // question.scored.queries * question.width
        return keys * (DIM + SCALE_BYTES)

    def _arguments(self, question: Question, call: int) -> dict[str, Any]:
        scored = question.scored
        assert scored is not None
        sequences = question.rows // scored.next_n
        pages = question.width // PAGE
        apart = sequences // scored.shared
        first = call * apart * pages % _POOL_PAGES
        table = self._order[first : first + apart * pages].view(apart, pages)
        if scored.shared > 1:
            table = table.repeat_interleave(scored.shared, dim=0)
        q = torch.empty((sequences, scored.next_n, scored.heads, DIM), device="cuda")
        weights = torch.empty((question.rows, scored.heads), device="cuda")
        for drawn in (q, weights):
            drawn.normal_(generator=self._generator)
        return {
            "q": q.to(torch.float8_e4m3fn),
            "keys": self._pages.view(_POOL_PAGES, PAGE, 1, DIM + SCALE_BYTES),
            "weights": weights,
            "k": question.k,
            "block_table": table,
            "context_lens": torch.full((sequences,), question.width, device="cuda").int(),
            "next_n": scored.next_n,
        }

    def ways(self, question: Question, calls: int) -> dict[str, list[Call]]:
        arguments = [self._arguments(question, call) for call in range(calls)]
        self._first = arguments[0]
        return {
            name: [
                partial(_select, given, backend, out)
                for given, out in zip(arguments, self._outputs(name, question, calls), strict=True)
            ]
            for name, backend in _SCORED_BACKENDS.items()
        }

    def is_best(self, question: Question, indices: Tensor) -> bool:
        _, scores = tl_topk.indexer_topk(**self._first, backend="dsmem", return_scores=True)
        return _are_best(scores, indices, question.k)


def _select(given: dict[str, Any], backend: str, out: Tensor) -> None:
    tl_topk.indexer_topk(**given, backend=backend, out=out)
