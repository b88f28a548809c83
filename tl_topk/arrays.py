"""What kind of array is it? Everything the API must know of an array library, NumPy's included.

A library that is not installed is never imported: each joins in when the first of its arrays is
seen (``tl_topk.torch_arrays``, ``tl_topk.cupy_arrays``, ``tl_topk.jax_arrays``).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Hashable
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from tl_topk._ffi import exports

if TYPE_CHECKING:
    from tl_topk.select import Options

__all__ = ["LIBRARIES", "ArrayLibrary", "find_library"]

# Any, because no library may be imported for its types: np.ndarray, torch.Tensor and so on.
Array: TypeAlias = Any

#: Runs a plan: ``run(scores, indices, values, lengths, row_starts, workspace)``.
Run: TypeAlias = Callable[..., None]


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
        """Must the call go through torch's dispatcher, for gradients or whoever watches it?"""

    def workspace(self, scores: Array, size: int) -> Array:
        """``size`` zeroed bytes that no other stream uses, on the scores' device."""

    def launch(
        self, run: Run, scores: Array, indices: Array, values: Array | None, *others: Array | None
    ) -> tuple[Array | None, Array]:
        """Runs a plan on the library's current stream; (values, indices) as the caller gets them.

        ``others`` are lengths, row_starts and workspace.
        """


class NumpyArrays:
    """NumPy: always on the CPU; with ml_dtypes installed, bfloat16 as well."""

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

    def launch(
        self, run: Run, scores: Array, indices: Array, values: Array | None, *others: Array | None
    ) -> tuple[Array | None, Array]:
        scores = as_bfloat16(scores)
        run(scores, indices, None if values is None else as_bfloat16(values), *others)
        return values, indices


def as_bfloat16(array: np.ndarray[Any, Any]) -> Any:
    """``array``, in the native library's form if it is of ml_dtypes' bfloat16, which NumPy exports
    to nobody.
    """
    if array.dtype.kind != "V" or array.dtype.name != "bfloat16":
        return array
    bits: Any = array.view(np.uint16)
    return exports.as_bfloat16(bits)


class _Unlocked:
    """A read-only array as the buffer protocol's writable one: DLPack exports no other kind.

    Only inputs are passed through it, and the native library takes its inputs as const.
    """

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._owner = array
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface


NUMPY = NumpyArrays()

#: The libraries seen so far, by the exact type of their arrays: the hot path's only question.
LIBRARIES: dict[type, ArrayLibrary] = {np.ndarray: NUMPY}

#: The base class of each library's arrays, and what an array of it is called.
_KINDS = {
    "numpy": ("ndarray", "a NumPy array"),
    "torch": ("Tensor", "a torch tensor"),
    "cupy": ("ndarray", "a CuPy array"),
    "jax": ("Array", "a JAX array"),
}


class _NoTensor:
    """No array is of this type."""


#: torch.Tensor and torch.int32, once :func:`adopt_torch` has put them here.
Tensor: Any = _NoTensor
int32: Any = None


def is_tracing() -> bool:
    """Is torch.compile tracing this call? :func:`adopt_torch` puts torch's own question here."""
    return False


class _NoForwardAd:
    _current_level = -1


#: torch.autograd.forward_ad, once :func:`adopt_torch` has put it here: its ``_current_level`` is
#: negative while no tensor can have a forward-mode tangent.
forward_ad: Any = _NoForwardAd


def dispatch_modes() -> int:
    """How many of torch's dispatch modes (``make_fx`` is one) watch this thread's operators?
    :func:`adopt_torch` puts torch's own question here.
    """
    return 0


def adopt_torch() -> None:
    """From now on torch's tensors are known by type.

    Importing tl_topk after torch does it at once, else the first tensor seen does.
    """
    global Tensor, int32, is_tracing, dispatch_modes, forward_ad
    import torch
    import torch.autograd.forward_ad

    from tl_topk.torch_arrays import TORCH

    Tensor, int32 = torch.Tensor, torch.int32
    LIBRARIES[torch.Tensor] = TORCH
    is_tracing = torch.compiler.is_dynamo_compiling
    dispatch_modes = torch._C._len_torch_dispatch_stack
    forward_ad = torch.autograd.forward_ad


def find_library(array: object) -> ArrayLibrary | None:
    """The library ``array`` belongs to; None for one that only torch's dispatcher understands.

    Raises TypeError for anything that is no array.
    """
    owner = owner_of("scores", array)
    if owner == "numpy":
        return NUMPY
    if owner == "torch":
        import torch

        if torch.compiler.is_dynamo_compiling():
            return None  # adopting torch here would change what the trace has just read
        adopt_torch()
        return LIBRARIES.get(type(array))
    adopted: ModuleType = importlib.import_module(f"tl_topk.{owner}_arrays")
    return LIBRARIES.setdefault(type(array), adopted.LIBRARY)


def owner_of(name: str, array: object) -> str:
    """The module whose array ``array`` is; TypeError if it is none of those known."""
    for module, (kind, _) in _KINDS.items():
        base = getattr(sys.modules.get(module), kind, None)
        if base is not None and isinstance(array, base):
            return module
    kinds = [called for _, called in _KINDS.values()]
    raise TypeError(
        f"{name}: expected {', '.join(kinds[:-1])} or {kinds[-1]}, got {type(array).__name__}"
    )


def check_memory(name: str, array: Array) -> None:
    """Raises unless ``array`` is an array with elements in memory."""
    if owner_of(name, array) != "torch":
        return
    try:
        array.data_ptr()
    except RuntimeError:  # sparse, or inside a transform of torch.func
        raise TypeError(
            f"{name}: expected a tensor with memory of its own, got none; batch rows in place of"
            " torch.vmap"
        ) from None


def check_same_library(name: str, array: Array, like: Array) -> str:
    """The module whose array ``like`` is; raises unless ``array`` is of the same."""
    owner = owner_of("scores", like)
    if owner_of(name, array) != owner:
        raise TypeError(
            f"{name}: expected {_KINDS[owner][1]}, as scores are, got {type(array).__name__}"
        )
    return owner


def check_output(name: str, array: Array, like: Array) -> None:
    """Raises unless ``array`` is of the library of ``like`` and may be written to."""
    owner = check_same_library(name, array, like)
    if owner == "numpy" and not array.flags.writeable:
        raise ValueError(f"{name}: expected a writable array, got a read-only one")
    if owner == "torch" and array.requires_grad:
        raise ValueError(f"{name}: expected a tensor that requires no grad, got one that does")
    if owner == "torch" and not is_tracing() and array.is_neg():
        raise ValueError(f"{name}: expected a tensor that holds its values, got one that negates")
    if owner == "jax":
        raise TypeError(f"{name}: expected None, as JAX arrays are immutable, got one")


def readable(array: Array) -> Array:
    """The same memory in a form that DLPack exports for reading."""
    if not isinstance(array, np.ndarray) or array.flags.writeable:
        return array
    if array.dtype.kind == "V":  # whose name would not survive
        return np.asarray(_Unlocked(array.view(np.uint16))).view(array.dtype)
    return np.asarray(_Unlocked(array))
