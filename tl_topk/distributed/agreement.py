"""What the ranks of a group have agreed to do for one request."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from tl_topk._ffi import Shards
from tl_topk.distributed.exchange import between_hosts
from tl_topk.distributed.request import ASKED, CAPTURED, REFUSAL, Request, difference
from tl_topk.distributed.rule import AUTO, choose_method, stride_of
from tl_topk.plans import ClockCache

__all__ = ["Agreement", "agreed", "the_group"]


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


def agreed(
    group: Any, local_scores: Any, k: Any, lengths: Any, options: tuple[Any, ...]
) -> tuple[Any, Agreement]:
    """The group, and what all its ranks have agreed to: a collective call of their hosts.

    They compare what they ask for at every call, before anything is launched on any device.

    Args:
        group: a group, or None for the default one.
        local_scores: as given; so are the next two.
        k: of the call.
        lengths: of whole rows.
        options: layout, block_size, largest, order, return_local and method, as given.

    Raises:
        TypeError, ValueError: on every rank, where one refuses its own arguments or they do not ask
            for the same.
        RuntimeError: on every rank, where one captures in a CUDA graph what was not met before; or
            the exchange failed.
    """
    group = the_group(group)
    try:
        request = Request.of(local_scores, k, lengths, *options)
    except (TypeError, ValueError):
        between_hosts(group, REFUSAL)
        raise
    known = _AGREEMENTS.setdefault(group, ClockCache(_CAPACITY))
    found = known.find(request)
    late = _is_capturing() and found is None
    signatures = between_hosts(group, request.signature(CAPTURED if late else ASKED))
    differing = difference(signatures)
    if differing:
        raise ValueError(differing)
    if any(signature[0] == CAPTURED for signature in signatures):
        raise RuntimeError(
            "a CUDA graph cannot capture what the first call with such arguments prepares: make"
            " this very call once on every rank before the capture"
        )
    if found is None:
        return group, known.add(request, _agreement(group, request, signatures))
    found.recent = True
    return group, found


def _is_capturing() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


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
