"""What ranks send one another: numbers from host to host, tensors by the group's collectives."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

__all__ = ["all_gather", "all_reduce", "between_hosts"]

#: Of groups that have no backend for CPU tensors; forgotten along with the group.
_HOST_GROUPS: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

#: Renamed in torch 2.13.
_all_gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


def between_hosts(group: Any, numbers: Sequence[int]) -> list[list[int]]:
    """As many integers from every rank: a collective of the hosts, which waits for no device.

    So it may also be called while a CUDA graph is captured.
    """
    own = torch.tensor(numbers, dtype=torch.int64, device="cpu")
    ranks = dist.get_world_size(group)
    gathered = torch.empty(ranks * len(numbers), dtype=torch.int64, device="cpu")
    with _explained():
        _all_gather(gathered, own, group=_host_group(group))
    rows: list[list[int]] = gathered.view(ranks, -1).tolist()
    return rows


def all_gather(gathered: torch.Tensor, own: torch.Tensor, group: Any) -> None:
    """``own`` of every rank into ``gathered``, of which it may be the part where it belongs."""
    with _explained():
        _all_gather(gathered.view(-1), own.view(-1), group=group)


def all_reduce(summands: torch.Tensor, group: Any) -> None:
    """Replaced by the sum over all ranks."""
    with _explained():
        dist.all_reduce(summands, group=group)


def _host_group(group: Any) -> Any:
    """The group itself, or one of Gloo's with the same ranks, timeout and end.

    Making it is a collective call of the group's ranks alone.
    """
    if "cpu:" in str(dist.get_backend_config(group)):
        return group
    found = _HOST_GROUPS.get(group)
    if found is None:
        device = torch.device("cuda", torch.cuda.current_device())
        found = _HOST_GROUPS[group] = dist.new_group(
            dist.get_process_group_ranks(group),
            timeout=group._get_backend(device).options._timeout,
            backend="gloo",
            use_local_synchronization=True,
        )
    return found


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise RuntimeError(
            "the exchange with the other ranks of the group failed; one of them has ended, is late"
            f" beyond the group's timeout, or asks for something else: {error}"
        ) from error
