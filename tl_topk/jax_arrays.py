"""JAX arrays. They are immutable: results are always new arrays.

On the CPU NumPy sees their memory. On a GPU they go through DLPack, on the stream that JAX keeps
for work from outside. JAX cannot be told when that is done with its inputs, and not every version
has that stream wait for what JAX has queued, so the call waits before and after.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import tvm_ffi

from tl_topk._ffi import exports
from tl_topk.arrays import NUMPY, Array, Run, readable
from tl_topk.dlpack import exported

if TYPE_CHECKING:
    from tl_topk.select import Options

__all__ = ["LIBRARY", "JaxArrays"]


class JaxArrays:
    """JAX on the CPU and on CUDA devices, outside of ``jax.jit``."""

    def device_key(self, array: Array) -> Hashable:
        return "jax", _device(array)

    def device(self, array: Array) -> tuple[str, int]:
        device = _device(array)
        if device.platform == "cpu":
            return "cpu", 0
        return ("cuda" if device.platform == "gpu" else device.platform), device.local_hardware_id

    def dtype_name(self, array: Array) -> str:
        return str(array.dtype.name)

    def allocator(
        self, scores: Array, shape: tuple[int, ...], dtype: str | None = None
    ) -> Callable[[], Array]:
        device, kind = _device(scores), dtype or scores.dtype
        if device.platform == "cpu":
            return partial(np.empty, shape, kind)
        return partial(jnp.empty, shape, kind, device=device)

    def needs_operator(self, scores: Array, options: Options) -> bool:
        return False

    def workspace(self, scores: Array, size: int) -> Array:
        return jnp.zeros(size, jnp.uint8, device=_device(scores))

    def launch(
        self, run: Run, scores: Array, indices: Array, values: Array | None, *others: Array | None
    ) -> tuple[Array | None, Array]:
        device = _device(scores)
        if device.platform == "cpu":
            lengths, row_starts, workspace = (_on_host(array) for array in others)
            NUMPY.launch(run, _on_host(scores), indices, values, lengths, row_starts, workspace)
            return _on_device(values, device), _on_device(indices, device)
        jax.block_until_ready([a for a in (scores, indices, values, *others) if a is not None])
        stream = device.get_stream_for_external_ready_events()
        arrays = [exported(a, stream) for a in (scores, indices, values, *others)]
        with tvm_ffi.use_raw_stream(tvm_ffi.device("cuda", device.local_hardware_id), stream):
            run(*arrays)
            exports.wait_for_device(device.local_hardware_id)
        # JAX has seen none of the outputs' new content: they come back as arrays of their own.
        found = [None if a is None else jax.dlpack.from_dlpack(a) for a in arrays[1:3]]
        jax.block_until_ready(found)
        return found[1], found[0]


def _device(array: Array) -> Any:
    if isinstance(array, jax.core.Tracer):
        raise TypeError("scores: expected a concrete array, got one that JAX is tracing")
    devices = array.devices()
    if len(devices) != 1:
        raise ValueError(f"scores: expected on one device, got on {len(devices)}")
    return next(iter(devices))


def _on_host(array: Array | None) -> Any:
    return readable(np.asarray(array)) if isinstance(array, jax.Array) else array


def _on_device(array: Any, device: Any) -> Array:
    return None if array is None else jax.device_put(array, device)


LIBRARY = JaxArrays()
