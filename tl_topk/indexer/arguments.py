"""What the indexer is asked: checked, and with everything that follows from shapes alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tl_topk.arrays import check_output
from tl_topk.indexer.sizes import DIM, PAGE, SCALE_BYTES
from tl_topk.problem import MAX_WIDTH, checked_k, checked_order, one_of
from tl_topk.scalars import checked_integer

__all__ = ["BF16", "FP8", "HEADS", "MAX_NEXT_N", "RESULTS", "Arguments"]

HEADS = (8, 16, 32, 64)
MAX_NEXT_N = 4
RESULTS = ("positions", "slots", "ragged")

FP8, BF16 = torch.float8_e4m3fn, torch.bfloat16


@dataclass(frozen=True)
class Arguments:
    """A valid call. Tensors are contiguous and lie on one device.

    Attributes:
        q: ``(rows, heads, 128)``, whatever shape it came in.
        rows: queries; ``sequences * next_n`` with pages.
        width: keys that the longest possible row sees.
    """

    q: Tensor
    keys: Tensor
    weights: Tensor
    k: int
    key_scales: Tensor | None
    block_table: Tensor | None
    context_lens: Tensor | None
    next_n: int
    compress_ratio: int
    row_starts: Tensor | None
    row_ends: Tensor | None
    result: str
    offsets: Tensor | None
    order: str
    out: Tensor | None
    rows: int
    heads: int
    width: int

    @property
    def device(self) -> torch.device:
        return self.q.device

    @property
    def has_scales(self) -> bool:
        """Are the keys float8, one scale each?"""
        return self.q.dtype == FP8

    @property
    def pages(self) -> int:
        """Pages of the cache, where keys lie on pages."""
        return self.keys.shape[0]

    def some_rows(self, part: slice) -> Arguments:
        """The same call for a stretch of the rows, which see keys in a row."""

        def cut(array: Tensor | None) -> Tensor | None:
            return None if array is None else array[part]

        return replace(
            self,
            q=self.q[part],
            weights=self.weights[part],
            row_starts=cut(self.row_starts),
            row_ends=cut(self.row_ends),
            offsets=cut(self.offsets),
            rows=len(self.q[part]),
        )

    @staticmethod
    def checked(
        *,
        q: Any,
        keys: Any,
        weights: Any,
        k: Any,
        key_scales: Any,
        block_table: Any,
        context_lens: Any,
        next_n: Any,
        compress_ratio: Any,
        row_starts: Any,
        row_ends: Any,
        result: Any,
        offsets: Any,
        hint: Any,
        order: Any,
        out: Any,
    ) -> Arguments:
        """Raises TypeError or ValueError, naming the argument, unless all is as documented."""
        paged = block_table is not None
        next_n = checked_integer("next_n", next_n, 1, MAX_NEXT_N if paged else 1)
        ratio = checked_integer("compress_ratio", compress_ratio, 1, MAX_WIDTH if paged else 1)
        if result not in (allowed := RESULTS if paged else ("positions", "ragged")):
            raise ValueError(f"result: expected {one_of(allowed)}, got {result!r}")
        k, order = checked_k(k), checked_order(order)

        _tensor("q", q, (FP8, BF16), None)
        if q.dim() != (4 if paged else 3):
            shape = "(sequences, next_n, heads, 128)" if paged else "(rows, heads, 128)"
            raise ValueError(f"q: expected {shape}, got {tuple(q.shape)}")
        if q.shape[-2] not in HEADS:
            raise ValueError(f"q: expected {_any_of(HEADS)} heads, got {q.shape[-2]}")
        heads = q.shape[-2]
        rows = q.shape[0] * next_n
        on = q.device
        _tensor("q", q, (q.dtype,), on, (*((q.shape[0], next_n) if paged else (rows,)), heads, DIM))
        has_scales = q.dtype == FP8
        if paged:
            key_bytes = DIM + SCALE_BYTES if has_scales else DIM
            kind = torch.uint8 if has_scales else BF16
            _tensor("keys", keys, (kind,), on, (None, PAGE, 1, key_bytes))
            _at_most("keys", "pages", keys.shape[0], MAX_WIDTH // PAGE)
            _tensor("block_table", block_table, (torch.int32,), on, (q.shape[0], None))
            width = block_table.shape[1] * PAGE
            _at_most("block_table", "blocks a sequence", block_table.shape[1], MAX_WIDTH // PAGE)
            if context_lens is None:
                raise TypeError("context_lens: expected a tensor beside block_table, got None")
            per_query = isinstance(context_lens, Tensor) and context_lens.dim() == 2
            lens_shape = (q.shape[0], next_n) if per_query else (q.shape[0],)
            _tensor("context_lens", context_lens, (torch.int32,), on, lens_shape)
            _absent("key_scales", key_scales, "pages hold their scales")
            for name, given in (("row_starts", row_starts), ("row_ends", row_ends)):
                _absent(name, given, "context_lens tell what the rows of pages see")
        else:
            _tensor("keys", keys, (q.dtype,), on, (None, DIM))
            width = keys.shape[0]
            _at_most("keys", "keys", width, MAX_WIDTH)
            if has_scales:
                _tensor("key_scales", key_scales, (torch.float32,), on, (width,))
            else:
                _absent("key_scales", key_scales, "bfloat16 keys have none")
            _absent("context_lens", context_lens, "without block_table there are row_ends")
            for name, given in (("row_starts", row_starts), ("row_ends", row_ends)):
                if given is not None:
                    _tensor(name, given, (torch.int32,), on, (rows,))
        _tensor("weights", weights, (torch.float32,), on, (rows, heads))
        if result == "ragged":
            _tensor("offsets", offsets, (torch.int32,), on, (rows,))
        else:
            _absent("offsets", offsets, f"result={result!r} has none")
        if hint is not None:
            _tensor("hint", hint, (torch.int32,), on, (rows, None))
        if out is not None:
            _tensor("out", out, (torch.int32,), on, (rows, k))
            check_output("out", out, like=q)
        return Arguments(
            q.view(rows, heads, DIM),
            keys, weights, k, key_scales, block_table, context_lens, next_n, ratio,
            row_starts, row_ends, result, offsets, order, out, rows, heads, width,
        )  # fmt: skip


def _tensor(
    name: str,
    given: object,
    dtypes: Sequence[torch.dtype],
    device: torch.device | None,
    shape: Sequence[int | None] = (),
) -> None:
    """Raises unless ``given`` is a plain contiguous tensor like this; None admits any size."""
    if not isinstance(given, Tensor):
        raise TypeError(f"{name}: expected a torch tensor, got {type(given).__name__}")
    if given.layout != torch.strided:
        raise TypeError(f"{name}: expected a dense tensor, got {given.layout}")
    if given.dtype not in dtypes:
        raise TypeError(f"{name}: expected {_any_of(map(_name, dtypes))}, got {_name(given.dtype)}")
    if device is not None and given.device != device:
        raise ValueError(f"{name}: expected on {device}, as q is, got on {given.device}")
    if shape:
        wrong = given.dim() != len(shape) or any(
            size not in (None, got) for size, got in zip(shape, given.shape, strict=True)
        )
        if wrong:
            sizes = ", ".join("any" if size is None else str(size) for size in shape)
            raise ValueError(f"{name}: expected shape ({sizes}), got {tuple(given.shape)}")
    if not given.is_contiguous():
        raise ValueError(f"{name}: expected a contiguous tensor, got strides {given.stride()}")


def _absent(name: str, given: object, why: str) -> None:
    if given is not None:
        raise ValueError(f"{name}: expected None, as {why}, got {type(given).__name__}")


def _at_most(name: str, of_what: str, got: int, most: int) -> None:
    if got > most:
        raise ValueError(f"{name}: expected at most {most} {of_what}, got {got}")


def _any_of(names: Any) -> str:
    words = [str(name) for name in names]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
