"""What one rank asks for, checked, and in the form in which ranks compare it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch

from tl_topk.distributed.rule import AUTO, METHODS, check_method
from tl_topk.problem import DTYPES, MAX_WIDTH, ORDERS, checked_k, checked_order, one_of
from tl_topk.scalars import checked_flag, checked_integer

__all__ = ["ASKED", "CAPTURED", "REFUSAL", "Request", "difference"]

#: How a signature begins: this rank refuses its own arguments, asks for what follows, or does so
#: for the first time while it captures a CUDA graph.
REFUSED, ASKED, CAPTURED = range(3)

LAYOUTS = ("contiguous", "interleaved")
_DEVICES = ("cpu", "cuda")
_NAMES = {
    "dtype": DTYPES,
    "order": ORDERS,
    "layout": LAYOUTS,
    "method": (AUTO, *METHODS),
    "device": _DEVICES,
}


@dataclass(frozen=True, slots=True)
class Request:
    """A call without its data. Hashable; an instance is always valid.

    All ranks must ask for the same, save for ``width``, the elements that a rank's shard can hold.
    """

    dimensions: int
    rows: int
    k: int
    dtype: str
    device: str
    layout: str
    block_size: int
    lengths: bool
    largest: bool
    order: str
    return_local: bool
    method: str
    width: int

    @property
    def element_bytes(self) -> int:
        return 4 if self.dtype == "float32" else 2

    def signature(self, state: int) -> list[int]:
        """One integer a field, in order, behind the state of the rank that asks."""
        return [state] + [
            _NAMES[field.name].index(value) if field.name in _NAMES else int(value)
            for field in fields(self)
            for value in (getattr(self, field.name),)
        ]

    @classmethod
    def of(
        cls,
        scores: Any,
        k: Any,
        lengths: Any,
        layout: Any,
        block_size: Any,
        largest: Any,
        order: Any,
        return_local: Any,
        method: Any,
    ) -> Request:
        """Checks every argument; TypeError or ValueError names the one that is wrong."""
        dtype = _check_scores(scores)
        rows = scores.shape[0] if scores.dim() == 2 else 1
        if lengths is not None:
            _check_lengths(lengths, rows, scores.device)
        if not isinstance(layout, str) or layout not in LAYOUTS:
            raise ValueError(f"layout: expected {one_of(LAYOUTS)}, got {layout!r}")
        if layout == "contiguous" and block_size is not None:
            raise ValueError(
                "block_size: expected None with layout 'contiguous', which has no blocks,"
                f" got {block_size!r}"
            )
        if layout == "interleaved":
            block_size = checked_integer("block_size", block_size, 1, MAX_WIDTH)
        check_method(method)
        return cls(
            dimensions=scores.dim(),
            rows=rows,
            k=checked_k(k),
            dtype=dtype,
            device=scores.device.type,
            layout=layout,
            block_size=block_size or 0,
            lengths=lengths is not None,
            largest=checked_flag("largest", largest),
            order=checked_order(order),
            return_local=checked_flag("return_local", return_local),
            method=method,
            width=scores.shape[-1],
        )


#: In the place of a signature: this rank's arguments were wrong by themselves.
REFUSAL = [REFUSED] * (1 + len(fields(Request)))


def difference(signatures: Sequence[Sequence[int]]) -> str:
    """What the ranks do not agree on, in one sentence; empty where they do."""
    refused = [str(rank) for rank, signature in enumerate(signatures) if signature[0] == REFUSED]
    if refused:
        return (
            f"rank {', '.join(refused)} of the group refused its own arguments, so no rank has"
            " selected anything"
        )
    for place, field in enumerate(fields(Request), start=1):
        given = [signature[place] for signature in signatures]
        if field.name == "width" or len(set(given)) == 1:
            continue
        names = _NAMES.get(field.name)
        shown = [
            repr(names[code]) if names else str(bool(code) if field.type == "bool" else code)
            for code in given
        ]
        return f"{field.name}: expected the same on every rank of the group, got {', '.join(shown)}"
    return ""


def _check_scores(scores: Any) -> str:
    """The name of the scores' dtype."""
    if not isinstance(scores, torch.Tensor):
        raise TypeError(f"local_scores: expected a torch tensor, got {type(scores).__name__}")
    if scores.layout != torch.strided:
        raise TypeError(f"local_scores: expected a strided tensor, got {scores.layout}")
    dtype = str(scores.dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        raise TypeError(f"local_scores: expected {one_of(DTYPES)}, got {dtype!r}")
    if scores.device.type not in _DEVICES:
        raise ValueError(f"local_scores: expected on {one_of(_DEVICES)}, got on {scores.device}")
    shape = tuple(scores.shape)
    if len(shape) not in (1, 2):
        raise ValueError(f"local_scores: expected shape (length,) or (rows, length), got {shape}")
    if shape[-1] > MAX_WIDTH:
        raise ValueError(f"local_scores: expected at most {MAX_WIDTH} wide, got {shape[-1]}")
    if scores.numel() > 0 and shape[-1] > 1 and scores.stride(-1) != 1:
        raise ValueError(
            "local_scores: expected unit stride in the last dimension, got strides"
            f" {tuple(scores.stride())}"
        )
    if scores.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            "local_scores: expected scores that require no grad, as the selection of all ranks has"
            " no gradient: pass local_scores.detach(), or call under torch.no_grad()"
        )
    return dtype


def _check_lengths(lengths: Any, rows: int, device: torch.device) -> None:
    if not isinstance(lengths, torch.Tensor):
        raise TypeError(f"lengths: expected a torch tensor, got {type(lengths).__name__}")
    if lengths.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"lengths: expected int32 or int64, got {lengths.dtype}")
    if tuple(lengths.shape) != (rows,):
        raise ValueError(f"lengths: expected shape ({rows},), got {tuple(lengths.shape)}")
    if rows > 1 and lengths.stride(0) != 1:
        raise ValueError(f"lengths: expected unit stride, got {lengths.stride(0)}")
    if lengths.device != device:
        raise ValueError(f"lengths: expected on {device}, as local_scores, got on {lengths.device}")
