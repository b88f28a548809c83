"""Processes that form torch.distributed groups and run functions of the tests together."""

from __future__ import annotations

import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

TIMEOUT_S = 60

_GROUPS: dict[int, Any] = {}  # in a worker: by size, of the first ranks


class RankError(Exception):
    """What a function raised on some rank, with that rank's traceback."""


def group_of(size: int) -> Any:
    """In a worker: the group of the first ``size`` ranks."""
    return _GROUPS[size]


def device() -> torch.device:
    """In a worker: where its tensors lie."""
    if dist.get_backend() == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


class Ranks:
    """A few processes with one group of every wanted size.

    Args:
        sizes: of the groups; there are as many processes as the largest has ranks.
        backend: ``"gloo"``, or ``"nccl"`` with a GPU for each process.
        store: a path for a file that does not exist yet.
        timeout_s: of the groups.
    """

    def __init__(
        self, sizes: tuple[int, ...], backend: str, store: Path, timeout_s: float = TIMEOUT_S
    ) -> None:
        # From a server that has imported torch already: a fork of this process would inherit its
        # threads' locks, and a fresh interpreter takes seconds.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["torch", "tl_topk.distributed"])
        self.sizes = sizes
        self.failed = False  # then they may be out of step for good
        self.workers = []
        for rank in range(max(sizes)):
            here, there = context.Pipe()
            arguments = (there, rank, sizes, backend, f"file://{store}", timeout_s)
            process = context.Process(target=_serve, args=arguments, daemon=True)
            process.start()
            there.close()
            self.workers.append((process, here))

    def start(self, size: int, function: Callable[..., Any], *arguments: Any) -> None:
        """Calls a function of a test module on the first ``size`` ranks, without waiting."""
        if self.failed:
            raise RankError("an earlier call failed, see there")
        for _, pipe in self.workers[:size]:
            pipe.send((function, (size, *arguments)))

    def answers(self, size: int) -> list[Any]:
        """What the functions started last have returned, or the exceptions they have raised."""
        found = []
        for rank, (_, pipe) in enumerate(self.workers[:size]):
            if not pipe.poll(2 * TIMEOUT_S):
                raise RankError(f"rank {rank} of {size} does not answer")
            try:
                found.append(pipe.recv())
            except EOFError:
                found.append(RankError("it has ended"))
        return found

    def run(self, size: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """The results of ``function(size, *arguments)`` on the first ``size`` ranks."""
        self.start(size, function, *arguments)
        found = self.answers(size)
        failed = [
            f"on rank {rank} of {size}: {''.join(getattr(answer, '__notes__', [answer.args[0]]))}"
            for rank, answer in enumerate(found)
            if isinstance(answer, Exception)
        ]
        if failed:
            self.failed = True
            raise RankError("\n".join(failed))
        return found

    def close(self) -> None:
        for _, pipe in self.workers:
            pipe.close()
        for process, _ in self.workers:
            process.join(10)
            if process.is_alive():
                process.kill()


def _serve(
    pipe: Connection,
    rank: int,
    sizes: tuple[int, ...],
    backend: str,
    store: str,
    timeout_s: float,
) -> None:
    torch.set_num_threads(1)  # as many processes as this need no more
    if backend == "nccl":
        torch.cuda.set_device(rank)
    timeout = timedelta(seconds=timeout_s)
    dist.init_process_group(
        backend, init_method=store, rank=rank, world_size=max(sizes), timeout=timeout
    )
    for size in sizes:
        group = dist.new_group(list(range(size)), timeout=timeout)
        if rank < size:
            _GROUPS[size] = group
    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:
            break
        try:
            answer = function(*arguments)
        except Exception as error:
            text = "".join(traceback.format_exception(error))
            answer = type(error)(str(error)) if type(error) in _PLAIN else RankError(text)
            answer.__notes__ = [text]  # type: ignore[attr-defined]
        pipe.send(answer)
    sys.stdout.flush()
    os._exit(0)  # without a farewell to ranks that may be gone already


#: Exceptions that travel as they are.
_PLAIN = (AssertionError, RuntimeError, TypeError, ValueError)
