"""What kind of array is it? Everything the API must know of an array library, NumPy's included.

A library that is not installed is never imported: torch joins in when the first of its tensors is
seen (``tl_topk.torch_arrays``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from tl_topk.select import Options

__all__ = ["LIBRARIES", "ArrayLibrary", "find_library"]

# Any, because torch must not be imported for its types: np.ndarray or torch.Tensor.
Array: TypeAlias = Any


class ArrayLibrary(Protocol):
    """What differs between array libraries. Stateless, one instance each."""

    def device_key(self, array: Array) -> Hashable:
        """Tells the array's device from every other; on the hot path, so as cheap as can be."""

    def device(self, array: Array) -> tuple[str, int]:
        """``("cpu", 0)`` or ``("cuda", 1)``; another type where no backend works."""

    def dtype_name(self, array: Array) -> str:
        """``"float32"``, ``"bfloat16"`` ...; a name outside the contract for any other dtype."""

    def allocator(
        self, scores: Array, shape: tuple[int, ...], dtype: str | None = None
    ) -> Callable[[], Array]:
        """Makes uninitialised arrays on the scores' device, in their dtype if none is named."""

    def needs_operator(self, scores: Array, options: Options) -> bool:
        """Must the call go through torch's dispatcher, for the sake of gradients?"""

    def workspace(self, scores: Array, size: int) -> Array:
        """``size`` zeroed bytes that no other stream uses, on the scores' device."""


class NumpyArrays:
    """NumPy: always on the CPU."""

    def device_key(self, array: Array) -> Hashable:
        return "numpy"

    def device(self, array: Array) -> tuple[str, int]:
        return "cpu", 0

    def dtype_name(self, array: Array) -> str:
        dtype = array.dtype
        return str(dtype.name) if dtype.isnative else f"byte-swapped {dtype.name}"

    def allocator(
        self, scores: Array, shape: tuple[int, ...], dtype: str | None = None
    ) -> Callable[[], Array]:
        return partial(np.empty, shape, dtype or scores.dtype)

    def needs_operator(self, scores: Array, options: Options) -> bool:
        return False

    def workspace(self, scores: Array, size: int) -> Array:
        raise NotImplementedError("no plan for CPU arrays needs a workspace")


class _Unlocked:
    """A read-only array as the buffer protocol's writable one: DLPack exports no other kind.

    Only inputs are passed through it, and the native library takes its inputs as const.
    """

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._owner = array
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface


#: The libraries seen so far, by the exact type of their arrays: the hot path's only question.
LIBRARIES: dict[type, ArrayLibrary] = {np.ndarray: NumpyArrays()}


class _NoTensor:
    """No array is of this type."""


#: torch.Tensor, once :func:`adopt_torch` has put it here.
Tensor: Any = _NoTensor


def is_tracing() -> bool:
    """Is torch.compile tracing this call? :func:`adopt_torch` puts torch's own question here."""
    return False


def adopt_torch() -> None:
    """From now on torch's tensors are known by type.

    Importing tl_topk after torch does it at once, else the first tensor seen does.
    """
    global Tensor, is_tracing
    import torch

    from tl_topk.torch_arrays import TORCH

    Tensor = torch.Tensor
    LIBRARIES[torch.Tensor] = TORCH
    is_tracing = torch.compiler.is_dynamo_compiling


def find_library(array: object) -> ArrayLibrary | None:
    """The library ``array`` belongs to; None for one that only torch's dispatcher understands.

    Raises TypeError for anything that is no array.
    """
    kind = check_kind("scores", array)
    if kind is np.ndarray:
        return LIBRARIES[np.ndarray]
    import torch

    if torch.compiler.is_dynamo_compiling():
        return None  # adopting torch here would change what the trace has just read
    adopt_torch()
    return LIBRARIES.get(type(array))


def check_kind(name: str, array: object) -> type:
    """np.ndarray or torch.Tensor, whichever ``array`` is; TypeError for anything else."""
    if isinstance(array, np.ndarray):
        return np.ndarray
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        tensor: type = torch.Tensor
        return tensor
    raise TypeError(f"{name}: expected a torch tensor or a NumPy array, got {type(array).__name__}")


def check_memory(name: str, array: Array) -> None:
    """Raises unless ``array`` is an array with elements in memory."""
    if check_kind(name, array) is np.ndarray:
        return
    try:
        array.data_ptr()
    except RuntimeError:  # sparse, or inside a transform of torch.func
        raise TypeError(f"{name}: expected a tensor with memory of its own, got none") from None


def check_output(name: str, array: Array, like: Array) -> None:
    """Raises unless ``array`` is of the library of ``like`` and may be written to."""
    kind = check_kind("scores", like)
    if check_kind(name, array) is not kind:
        raise TypeError(f"{name}: expected a {kind.__name__}, as scores are, got {type(array)}")
    if kind is np.ndarray and not array.flags.writeable:
        raise ValueError(f"{name}: expected a writable array, got a read-only one")
    if kind is not np.ndarray and array.requires_grad:
        raise ValueError(f"{name}: expected a tensor that requires no grad, got one that does")


def readable(array: Array) -> Array:
    """The same memory in a form that DLPack exports for reading."""
    if isinstance(array, np.ndarray) and not array.flags.writeable:
        return np.asarray(_Unlocked(array))
    return array
