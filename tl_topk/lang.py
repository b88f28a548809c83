"""Selection inside your own TileLang programs: ``from tl_topk import lang as tk``.

Everything here is called in the body of a ``T.prim_func``: :func:`host_topk` between kernels, the
rest under ``T.Kernel``. The device code comes with the package; nothing has to be configured.

Example:
    >>> import tilelang.language as T                                      # doctest: +SKIP
    >>> from tl_topk import lang as tk                                     # doctest: +SKIP
    >>> @T.prim_func                                                       # doctest: +SKIP
    ... def route(logits: T.Tensor((64, 256), "float32"), experts: T.Tensor((64, 8), "int32")):
    ...     with T.Kernel(64, threads=128) as token:
    ...         scores = T.alloc_shared((256,), "float32")
    ...         best = T.alloc_shared((8,), "int32")
    ...         T.copy(logits[token, 0], scores)
    ...         tk.block_topk(scores, 256, 8, best, order="value")
    ...         T.copy(best, experts[token, 0])
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any

from tl_topk.problem import DTYPES, checked_order, one_of
from tl_topk.tile.toolchain import device_headers, header_folder, missing_language

_missing = missing_language()
if _missing is not None:
    raise ImportError(f"tl_topk.lang needs TileLang: {_missing}")

import tilelang.language as T  # noqa: E402, N812

__all__ = ["block_topk", "host_topk", "import_source", "linear_bin", "order_key", "row_topk"]

_NAMESPACE = "tl_topk::lang::"
_SCRATCH_WORDS = 2672  # lang::Scratch
_ORDERS = ("any", "index", "value")
_NULL = 0  # as C++ has it
_WARP, _MOST_THREADS = 32, 1024


@cache
def _include() -> str:
    """The line that brings the device code, with a digest of it: TileLang's cache knows a program
    by its text, and would otherwise keep what was compiled with other headers.
    """
    digest = hashlib.sha256()
    for file in device_headers():
        digest.update(file.read_bytes())
    return f'#include "{header_folder() / "lang/block.cuh"}"  // {digest.hexdigest()[:16]}\n'


def import_source(source: str) -> None:
    """``T.import_source`` for kernels that bring code of their own as well.

    TileLang takes one such text a kernel, and this package needs it: call this, once, ahead of the
    functions below.
    """
    T.import_source(_include() + source)
    _kernel()._tl_topk_imported = True


def _kernel() -> Any:
    kernel = T.KernelLaunchFrame.Current()
    if kernel is None:
        raise RuntimeError("tl_topk.lang: expected to be called under T.Kernel, within a prim_func")
    return kernel


def _threads() -> int:
    """The number of threads in a block; brings the device code along."""
    kernel = _kernel()
    threads = int(kernel.get_num_threads())
    if threads % _WARP or not _WARP <= threads <= _MOST_THREADS:
        raise ValueError(
            f"threads: expected a multiple of {_WARP} up to {_MOST_THREADS}, got {threads}"
        )
    if not getattr(kernel, "_tl_topk_imported", False):
        T.import_source(_include())
    return threads


def order_key(score: Any) -> Any:
    """The key of a score: uint32, larger for better scores, 0 for NaN; -0 and +0 share one.

    Args:
        score: float32, float16 or bfloat16 expression.
    """
    _threads()
    return T.call_extern("uint32", f"{_NAMESPACE}order_key_of", score)


def linear_bin(score: Any, low: Any, high: Any, bins: Any) -> Any:
    """Which of ``bins`` equal bins between ``low`` and ``high`` a score falls into: int32.

    What lies outside falls into the first or the last, NaN into the first. Monotone in ``score``.

    Args:
        score: float32, float16 or bfloat16 expression.
        low, high: float32 expressions; bin 0 begins at ``low``, the last at ``high``.
        bins: int32 expression, at least 1.
    """
    _threads()
    return T.call_extern("int32", f"{_NAMESPACE}linear_bin", score, low, high, bins)


def block_topk(
    scores: Any,
    n: Any,
    k: Any,
    indices: Any,
    values: Any = None,
    *,
    order: str = "any",
    largest: bool = True,
) -> None:
    """The ``k`` best of ``n`` scores that lie in shared memory or a fragment, exactly.

    The rules are those of :func:`tl_topk.topk`: equal scores by lower index, NaN last. Called by
    all threads of the block, outside of divergent code; barriers are its own business.

    Args:
        scores: shared buffer or fragment ``(size,)``; float32, float16 or bfloat16. A fragment is
            copied to shared memory first.
        n: int32 expression, how many of the scores count, at most ``size``.
        k: how many are wanted; with an ``order`` a Python integer, else any int32 expression.
        indices: shared buffer ``(k,)``, int32, written; -1 past the n-th slot.
        values: optional shared buffer ``(k,)`` in the scores' dtype, written.
        order: of the slots: ``"any"``, ``"index"`` or ``"value"``.
        largest: False selects the smallest.

    Raises:
        ValueError, TypeError: an argument is not as described; while the program is traced.
    """
    if scores.scope() == "local.fragment":
        shared = T.alloc_shared(scores.shape, scores.dtype)
        T.copy(scores, shared)
        scores = shared
    _call(
        scores.dtype, T.access_ptr(scores, "r"), n, k, T.access_ptr(indices, "w"),
        None if values is None else T.access_ptr(values, "w"), order, largest,
    )  # fmt: skip


def row_topk(
    scores: Any,
    n: Any,
    k: Any,
    indices: Any,
    values: Any = None,
    *,
    order: str = "any",
    largest: bool = True,
) -> None:
    """:func:`block_topk` of a row in global memory, of any length, into global memory.

    One block reads the row three to eight times: for rows that are short or many. A single long
    row is better shared among many blocks, by :func:`tl_topk.topk`.

    Args:
        scores: the row's first element, such as ``scores[row, 0]``.
        n: int32 expression, how many elements the row has.
        k, order, largest: as in :func:`block_topk`.
        indices: the first of the k slots, such as ``indices[row, 0]``; int32.
        values: optional, the first of the k slots.
    """
    _call(
        scores.dtype, T.address_of(scores), n, k, T.address_of(indices),
        None if values is None else T.address_of(values), order, largest,
    )  # fmt: skip


def host_topk(
    scores: Any,
    k: Any,
    indices: Any,
    values: Any = None,
    lengths: Any = None,
    row_starts: Any = None,
    *,
    order: str = "any",
    largest: bool = True,
) -> None:
    """:func:`tl_topk.topk` by the native kernel, as one step of a program's host function.

    Called outside of ``T.Kernel``, after the kernel that writes the scores, say. It runs on the
    stream of the call, may be captured in a CUDA graph with it, and no Python comes in between.
    ``import tl_topk`` before the compiled program is called: that registers what it calls.

    Args:
        scores: the program's tensor ``(rows, length)`` or ``(length,)``, contiguous.
        k: int expression.
        indices: int32 tensor ``(rows, k)`` or ``(k,)``, written.
        values: optional, the same in the scores' dtype, written.
        lengths, row_starts: optional int32 or int64 tensors ``(rows,)``.
        order, largest: as in :func:`tl_topk.topk`.
    """
    checked_order(order)
    T.evaluate(
        T.call_packed(
            "tl_topk.topk",
            _dl_tensor(scores),
            k,
            _dl_tensor(indices),
            _dl_tensor(values),
            _dl_tensor(lengths),
            _dl_tensor(row_starts),
            T.bool(largest),
            order,
        )
    )


def _dl_tensor(buffer: Any) -> Any:
    """A DLTensor that lives as long as the call; a null pointer, which arrives as None."""
    if buffer is None:
        return T.reinterpret(T.uint64(0), "handle")
    shape = T.tvm_stack_make_shape(*buffer.shape)
    dtype = T.Cast(buffer.dtype, 0)
    return T.tvm_stack_make_array(buffer.data, shape, 0, len(buffer.shape), dtype, 0)


def _call(
    dtype: Any, scores: Any, n: Any, k: Any, indices: Any, values: Any, order: str, largest: bool
) -> None:
    threads = _threads()
    if str(dtype) not in DTYPES:
        raise TypeError(f"scores: expected {one_of(DTYPES)}, got {str(dtype)!r}")
    checked_order(order)
    if order == "any":
        keys = _NULL
    elif isinstance(k, int):
        keys = T.access_ptr(T.alloc_shared((1 << max(1, (k - 1).bit_length()),), "int64"), "rw")
    else:
        raise TypeError(f"k: expected a Python integer with order={order!r}, got {k}")
    scratch = T.alloc_shared((_SCRATCH_WORDS,), "int32")
    T.evaluate(
        T.call_extern(
            "handle",
            f"{_NAMESPACE}topk<{DTYPES.index(str(dtype))}, {threads}>",
            T.get_thread_binding(),
            scores,
            n,
            k,
            indices,
            _NULL if values is None else values,
            _ORDERS.index(order),
            int(largest),
            keys,
            T.access_ptr(scratch, "rw"),
        )
    )
