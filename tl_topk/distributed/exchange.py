"""What ranks send one another: numbers from host to host, tensors by the group's collectives."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

__all__ = ["all_gather", "all_reduce", "between_hosts"]

#: For groups that have no backend for CPU tensors: one that connects their hosts; forgotten along
#: with the group.
_HOSTS: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

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
        if "cpu:" in str(dist.get_backend_config(group)):
            _all_gather(gathered, own, group=group)
        else:
            _hosts(group)._allgather_base(gathered, own).wait()
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


def _hosts(group: Any) -> Any:
    """A backend that joins the hosts of ``group``, with its ranks, timeout and end.

    Making it is a collective call of the group's ranks alone. Not ``dist.new_group``: that names a
    group by how many groups a process is in, and ranks that differ in this wait for ever.
    """
    found = _HOSTS.get(group)
    if found is None:
        options = group._get_backend(torch.device("cuda", torch.cuda.current_device())).options
        found = _HOSTS[group] = _gloo_of(group, options._timeout)
    return found


def _gloo_of(group: Any, timeout: timedelta) -> Any:
    store = dist.PrefixStore("tl_topk", group.get_group_store())  # type: ignore[attr-defined]
    return dist.ProcessGroupGloo(store, dist.get_rank(group), dist.get_world_size(group), timeout)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise RuntimeError(
            "the exchange with the other ranks of the group failed; one of them has ended, is late"
            f" beyond the group's timeout, or asks for something else: {error}"
        ) from error
