"""What the ranks of a group have agreed to do for one request."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from tl_topk._ffi import Shards
from tl_topk.distributed.request import REFUSED, Request, difference
from tl_topk.distributed.rule import AUTO, choose_method, stride_of
from tl_topk.plans import ClockCache

__all__ = ["Agreement", "agree", "all_gather", "all_reduce", "refuse", "the_group"]


@dataclass(slots=True, eq=False)
class Agreement:
    """The same on every rank, but for what ``request.width`` and ``shards.rank`` say.

    Attributes:
        request: what this rank asks for.
        shards: who has which elements.
        width: of the whole row.
        count: how many elements of each row every rank selects of its own.
        method: ``"gather"`` or ``"threshold"``.
        stride: elements that one sample of ``"threshold"`` stands for.
    """

    request: Request
    shards: Any  # Shards; torch's tensors are not of the type that its methods declare
    width: int
    count: int
    method: str
    stride: int
    recent: bool = False

    @property
    def ranks(self) -> int:
        return len(self.shards.widths)

    @property
    def wanted(self) -> int:
        """How many elements of a row can be selected at all."""
        return min(self.request.k, self.width)


#: By group; one forgotten by torch takes its agreements along.
_AGREEMENTS: weakref.WeakKeyDictionary[Any, ClockCache[Agreement]] = weakref.WeakKeyDictionary()
_CAPACITY = 512


def the_group(group: Any) -> Any:
    """``group``, or the default one. RuntimeError or ValueError where there is none to use."""
    if not (dist.is_available() and dist.is_initialized()):
        raise RuntimeError(
            "group: torch.distributed has no group yet: call torch.distributed.init_process_group"
            " on every rank first"
        )
    if group is None:
        return dist.group.WORLD
    if not isinstance(group, dist.ProcessGroup):
        raise ValueError(
            f"group: expected a torch.distributed group that this rank belongs to, got {group!r}"
        )
    return group


def agree(group: Any, request: Request) -> Agreement:
    """What all ranks of the group have agreed to for ``request``: a collective call.

    On the CPU the ranks compare their requests at every call. On GPUs, where that would wait for
    the device, they do so when they meet a request for the first time.

    Raises:
        ValueError: on every rank, where they do not ask for the same.
        RuntimeError: a new request while a CUDA graph is captured; or the exchange failed.
    """
    known = _AGREEMENTS.setdefault(group, ClockCache(_CAPACITY))
    found = known.find(request)
    if found is not None:
        found.recent = True
        if request.device == "cuda":
            return found
    if request.device == "cuda" and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            "the ranks compare their arguments at the first call with them, which a CUDA graph"
            " cannot capture: make this very call once before the capture"
        )
    signatures = _exchange(group, request.signature())
    differing = difference(signatures)
    if differing:
        raise ValueError(differing)
    return found or known.add(request, _agreement(group, request, signatures))


def refuse(group: Any) -> None:
    """Tells the other ranks, which are about to call :func:`agree`, that nothing comes of it."""
    capturing = torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
    if not capturing:
        _exchange(group, REFUSED)


def _agreement(group: Any, request: Request, signatures: list[list[int]]) -> Agreement:
    widths = [signature[-1] for signature in signatures]
    shards = Shards(dist.get_rank(group), widths, request.block_size)
    count = min(request.k, max(widths))
    method = request.method
    if method == AUTO:
        method = choose_method(len(widths), request.rows, count, request.element_bytes)
    width = sum(widths)
    stride = stride_of(min(request.k, width))
    return Agreement(request, shards, width, count, method, stride)


def _exchange(group: Any, signature: list[int]) -> list[list[int]]:
    """Every rank's signature, read back to the host."""
    on_host = "cpu:" in str(dist.get_backend_config(group))
    device = torch.device("cpu") if on_host else torch.device("cuda", torch.cuda.current_device())
    own = torch.tensor(signature, dtype=torch.int64, device=device)
    ranks = dist.get_world_size(group)
    all_of_them = torch.empty(ranks * len(signature), dtype=torch.int64, device=device)
    all_gather(all_of_them, own, group)
    gathered: list[list[int]] = all_of_them.view(ranks, -1).tolist()
    return gathered


#: Renamed in torch 2.13.
_all_gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


def all_gather(gathered: torch.Tensor, own: torch.Tensor, group: Any) -> None:
    """``own`` of every rank into ``gathered``, of which it may be the part where it belongs."""
    with _explained():
        _all_gather(gathered.view(-1), own.view(-1), group=group)


def all_reduce(summands: torch.Tensor, group: Any) -> None:
    """Replaced by the sum over all ranks."""
    with _explained():
        dist.all_reduce(summands, group=group)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise RuntimeError(
            "the exchange with the other ranks of the group failed; one of them has ended, is late"
            f" beyond the group's timeout, or asks for something else: {error}"
        ) from error
