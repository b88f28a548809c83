"""A row divided over ranks, and the native steps by which they agree on its best elements."""

from __future__ import annotations

from collections.abc import Sequence

from tvm_ffi import register_object

from tl_topk._ffi.exports import ShardsFields

__all__ = ["Shards"]


@register_object("tl_topk.Shards")
class Shards(ShardsFields):
    """Which element of a row lies on which rank. Immutable, so any number of threads may use it.

    Its methods are the steps of :mod:`tl_topk.distributed`. They run on the current stream; all
    their tensors lie on one device, two-dimensional and without gaps; csrc/exchange.h says what
    they hold.

    Args:
        rank: whose process this is.
        widths: of the shards of all ranks.
        block: elements dealt out at a time, to rank 0, 1, .. and again; 0 for one shard each, one
            behind the other.

    Raises:
        ValueError: no row has shards of these widths, or it is too wide, or there are too many.
    """

    def __init__(self, rank: int, widths: Sequence[int], block: int = 0) -> None:
        self.__ffi_init__(rank, widths, block)
