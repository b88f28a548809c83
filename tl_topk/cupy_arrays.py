"""CuPy arrays: through DLPack, on CuPy's current stream of the scores' device."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

import cupy
import tvm_ffi

from tl_topk.arrays import Array, Run
from tl_topk.dlpack import exported

if TYPE_CHECKING:
    from tl_topk.select import Options

__all__ = ["LIBRARY", "CupyArrays"]

_SAME_STREAM = -1


class CupyArrays:
    """CuPy on CUDA devices."""

    def device_key(self, array: Array) -> Hashable:
        return "cupy", array.device.id

    def device(self, array: Array) -> tuple[str, int]:
        return "cuda", array.device.id

    def dtype_name(self, array: Array) -> str:
        return str(array.dtype.name)

    def allocator(
        self, scores: Array, shape: tuple[int, ...], dtype: str | None = None
    ) -> Callable[[], Array]:
        device, kind = scores.device.id, dtype or scores.dtype

        def empty() -> Array:
            with cupy.cuda.Device(device):
                return cupy.empty(shape, kind)

        return empty

    def needs_operator(self, scores: Array, options: Options) -> bool:
        return False

    def workspace(self, scores: Array, size: int) -> Array:
        # Of this launch alone. Freed afterwards, CuPy gives it only to later work of the stream.
        with scores.device:
            return cupy.zeros(size, cupy.uint8)

    def launch(
        self, run: Run, scores: Array, indices: Array, values: Array | None, *others: Array | None
    ) -> tuple[Array | None, Array]:
        device = scores.device
        with device:
            stream = cupy.cuda.get_current_stream().ptr
        arrays = [exported(a, _SAME_STREAM) for a in (scores, indices, values, *others)]
        with tvm_ffi.use_raw_stream(tvm_ffi.device("cuda", device.id), stream):
            run(*arrays)
        return values, indices


LIBRARY = CupyArrays()
