"""Host arrays to whichever device a backend needs, and back, for the command line.

Arrays are known by their dtype's name and travel as bits: NumPy does not know bfloat16.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tl_topk.arrays import Array
from tl_topk.backends import BACKENDS, Backend
from tl_topk.dispatch import AUTO, require

__all__ = ["BITS", "Placement", "best_backend", "bits_of"]

Ndarray: TypeAlias = "np.ndarray[Any, Any]"

#: The unsigned integer that holds a score's bits.
BITS = {"float32": np.uint32, "float16": np.uint16, "bfloat16": np.uint16}


@dataclass(frozen=True)
class Placement:
    """Where the arrays of a call lie, and whose they are."""

    device_type: str
    with_torch: bool

    @classmethod
    def of(cls, backend: str, dtype: str) -> Placement:
        """For scores of ``dtype`` on ``backend``; ``"auto"`` leaves them on the host.

        Raises ValueError when the backend cannot run here.
        """
        if backend == AUTO:
            device_type = "cpu"
        else:
            require(backend)
            device_type = BACKENDS[backend].device_type
        return cls(device_type, with_torch=device_type != "cpu" or dtype == "bfloat16")

    def put(self, array: Ndarray, dtype: str) -> Array:
        """``array``, whose elements have the bits of ``dtype``; the same memory on the CPU."""
        if not self.with_torch:
            return array.view(dtype)
        import torch

        signed = array.view(f"int{8 * array.itemsize}")
        return torch.from_numpy(signed).view(getattr(torch, dtype)).to(self.device_type)

    def synchronize(self) -> None:
        """Waits for the device, for the sake of honest times."""
        if self.device_type == "cuda":
            import torch

            torch.cuda.synchronize()


def bits_of(array: Array) -> Ndarray:
    """The bits of an array, on the host."""
    if not isinstance(array, np.ndarray):
        import torch

        array = array.detach().view(getattr(torch, f"int{8 * array.itemsize}")).cpu().numpy()
    return np.asarray(array.view(f"uint{8 * array.itemsize}"))


def best_backend() -> str:
    """The first backend that runs here and that host scores can be placed for."""
    return next(backend.name for backend in BACKENDS.values() if _reachable(backend))


def _reachable(backend: Backend) -> bool:
    if backend.unavailable() is not None:
        return False
    if backend.device_type == "cpu":
        return True
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()
