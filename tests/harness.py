"""How the tests reach the library: where scores live, how they lie in memory, what is guarded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

import tl_topk
from reference import DTYPES, Oracle, Order, Raw, assert_topk, bits_of, dtype_of, from_bits

CANARY = 0xA5  # every byte of memory that nothing may write
TORCH = {name: getattr(torch, name) for name in DTYPES}


@dataclass(frozen=True)
class Target:
    """A backend together with the kind of array it is called with."""

    backend: str
    library: Literal["torch", "numpy"]
    device: Literal["cpu", "cuda"]

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The score types that its arrays can hold."""
        return DTYPES if self.library == "torch" else ("float32", "float16")

    def put(self, array: NDArray[Any]) -> Any:
        """An array of the target's kind with the content of a NumPy array, raw scores included."""
        if self.library == "numpy":
            return array.copy()
        if array.dtype == np.uint16:
            bits = torch.from_numpy(np.array(array).view(np.int16))
            return bits.to(self.device).view(torch.bfloat16)
        return torch.from_numpy(np.array(array)).to(self.device)

    def get(self, array: Any) -> NDArray[Any]:
        """The content of one of the target's arrays, bfloat16 as raw bits."""
        if isinstance(array, np.ndarray):
            return array.copy()
        host = array.detach().cpu()
        if host.dtype == torch.bfloat16:
            return host.view(torch.int16).numpy().view(np.uint16)
        return host.numpy()

    def view(self, flat: Any, shape: Sequence[int], strides: Sequence[int], offset: int) -> Any:
        """A window on a flat array; strides and offset count elements."""
        if self.library == "torch":
            return torch.as_strided(flat, tuple(shape), tuple(strides), offset)
        return np.lib.stride_tricks.as_strided(
            flat[offset:], tuple(shape), [stride * flat.itemsize for stride in strides]
        )

    def place(self, raw: Raw, *, offset: int = 0, gap: int = 0, around: int = 0) -> Any:
        """The scores somewhere inside a larger buffer, filled with the bit pattern `around`."""
        matrix = bits_of(raw if raw.ndim == 2 else raw[np.newaxis])
        rows, width = matrix.shape
        stride = width + gap
        flat = np.full(offset + rows * stride + 64, around, dtype=matrix.dtype)
        flat[offset : offset + rows * stride].reshape(rows, stride)[:, :width] = matrix
        shape, strides = ((rows, width), (stride, 1)) if raw.ndim == 2 else ((width,), (1,))
        return self.view(self.put(from_bits(flat, dtype_of(raw))), shape, strides, offset)

    def options(self, oracle: Oracle) -> dict[str, Any]:
        """The keyword arguments that state an oracle's problem."""
        given: dict[str, Any] = {"largest": oracle.largest, "backend": self.backend}
        if oracle.lengths is not None:
            given["lengths"] = self.put(oracle.lengths)
        if oracle.row_starts is not None:
            given["row_starts"] = self.put(oracle.row_starts)
        return given

    def check(
        self, oracle: Oracle, ks: Sequence[int], orders: Sequence[Order], scores: Any = None
    ) -> None:
        """Every k in every order, with values, and once per k without them."""
        placed = self.put(oracle.scores) if scores is None else scores
        options = self.options(oracle)
        for k in ks:
            for order in orders:
                result = tl_topk.topk(placed, k, order=order, **options)
                self.judge(oracle, k, order, result)
            alone = tl_topk.topk_indices(placed, k, order=orders[0], **options)
            assert_topk(oracle, k, orders[0], self.get(alone))

    def judge(self, oracle: Oracle, k: int, order: Order, result: Any) -> None:
        assert_topk(oracle, k, order, self.get(result.indices), self.get(result.values))

    def __str__(self) -> str:
        return f"{self.backend}-{self.library}"


TORCH_CPU = Target("cpu", "torch", "cpu")
NUMPY_CPU = Target("cpu", "numpy", "cpu")
GPU = Target("dsmem", "torch", "cuda")
PIPELINED = Target("pipelined", "torch", "cuda")


@dataclass
class GuardedOutput:
    """Outputs inside larger buffers, at odd offsets, with every byte around them known."""

    target: Target
    shape: tuple[int, ...]
    dtype: str
    margin: int = 67
    buffers: tuple[Any, Any] = field(init=False)
    pair: tuple[Any, Any] = field(init=False)  # values, indices

    def __post_init__(self) -> None:
        size = int(np.prod(self.shape)) + 2 * self.margin
        strides = np.cumprod([1, *(max(n, 1) for n in self.shape[:0:-1])])[::-1]
        storage = {"float32": np.uint32, "float16": np.uint16, "bfloat16": np.uint16}[self.dtype]
        canaries = np.full(size * np.dtype(storage).itemsize, CANARY, np.uint8).view(storage)
        self.buffers = (
            self.target.put(from_bits(canaries, self.dtype)),
            self.target.put(np.full(size * 4, CANARY, np.uint8).view(np.int32)),
        )
        values, indices = (
            self.target.view(buffer, self.shape, strides.tolist(), self.margin)
            for buffer in self.buffers
        )
        self.pair = values, indices

    def assert_guards(self) -> None:
        """Nothing before or after the outputs was written."""
        for name, buffer in zip(("values", "indices"), self.buffers, strict=True):
            flat = self.target.get(buffer)
            for side in (flat[: self.margin], flat[-self.margin :]):
                assert (side.view(np.uint8) == CANARY).all(), f"wrote outside out {name}"

    def assert_untouched(self) -> None:
        """Nothing was written at all."""
        for name, buffer in zip(("values", "indices"), self.buffers, strict=True):
            flat = self.target.get(buffer)
            assert (flat.view(np.uint8) == CANARY).all(), f"{name} was written"
