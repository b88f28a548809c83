"""Host arrays to whichever device a backend needs, and back, for the command line.

bfloat16 travels as the uint16 of its bits: NumPy does not know it.
"""

from __future__ import annotations

import importlib.util
from typing import Any, TypeAlias

import numpy as np

from tl_topk.arrays import Array
from tl_topk.backends import BACKENDS, Backend

__all__ = ["BITS", "best_backend", "bits_of", "device_type_of", "place", "synchronize"]

Ndarray: TypeAlias = "np.ndarray[Any, Any]"

#: The unsigned integer that holds a score's bits.
BITS = {"float32": np.uint32, "float16": np.uint16, "bfloat16": np.uint16}


def device_type_of(backend: str) -> str:
    """Where host scores must go for ``backend``; ``"auto"`` leaves them where they are."""
    return "cpu" if backend == "auto" else BACKENDS[backend].device_type


def place(array: Ndarray, dtype: str, device_type: str) -> Array:
    """``array`` (of any dtype with the bits of ``dtype``) as an array on the device.

    On the CPU it is the same memory; NumPy's where NumPy knows the dtype.
    """
    if device_type == "cpu" and dtype != "bfloat16":
        return array.view(dtype)
    import torch

    signed = array.view(f"int{8 * array.itemsize}")
    return torch.from_numpy(signed).view(getattr(torch, dtype)).to(device_type)


def bits_of(array: Array) -> Ndarray:
    """The bits of a placed array, back on the host."""
    if not isinstance(array, np.ndarray):
        import torch

        array = array.detach().view(getattr(torch, f"int{8 * array.itemsize}")).cpu().numpy()
    return np.asarray(array.view(f"uint{8 * array.itemsize}"))


def synchronize(device_type: str) -> None:
    """Waits for the device, for the sake of honest times."""
    if device_type == "cuda":
        import torch

        torch.cuda.synchronize()


def best_backend() -> str:
    """The first backend that runs here and that host scores can be placed for."""
    able = (backend.name for backend in BACKENDS.values() if _reachable(backend))
    return next(able)


def _reachable(backend: Backend) -> bool:
    if backend.unavailable() is not None:
        return False
    if backend.device_type == "cpu":
        return True
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()
