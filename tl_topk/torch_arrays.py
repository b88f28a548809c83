"""torch tensors: imported when the first one is seen, never before."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch

from tl_topk.plans import ClockCache

if TYPE_CHECKING:
    from tl_topk.arrays import Run
    from tl_topk.select import Options

__all__ = ["TORCH", "WORKSPACES", "TorchArrays"]


@dataclass(slots=True)
class _Workspace:
    memory: torch.Tensor
    recent: bool = False


#: By (device, stream): launches on one stream follow one another and each leaves its workspace
#: zeroed, so they share. Dropping one is safe while launches are queued: torch's allocator gives
#: the memory only to later work of the same stream.
WORKSPACES: ClockCache[_Workspace] = ClockCache(capacity=256)


class TorchArrays:
    """torch on the CPU and on CUDA devices."""

    # The index alone: -1 for the CPU. Half the price of hashing a torch.device.
    device_key = staticmethod(torch.Tensor.get_device)

    def device(self, array: torch.Tensor) -> tuple[str, int]:
        device = array.device
        return device.type, device.index or 0

    def dtype_name(self, array: torch.Tensor) -> str:
        if array.layout != torch.strided:
            return f"{array.layout} {array.dtype}"
        return str(array.dtype).removeprefix("torch.")

    def allocator(
        self, scores: torch.Tensor, shape: tuple[int, ...], dtype: str | None = None
    ) -> Callable[[], torch.Tensor]:
        kind = scores.dtype if dtype is None else getattr(torch, dtype)
        # A third cheaper than torch.empty, for the same tensor.
        strides = (max(shape[-1], 1), 1)[-len(shape) :]
        return partial(torch.empty_strided, shape, strides, dtype=kind, device=scores.device)

    def needs_operator(self, scores: torch.Tensor, options: Options) -> bool:
        return options.with_values and scores.requires_grad and torch.is_grad_enabled()

    def workspace(self, scores: torch.Tensor, size: int) -> torch.Tensor:
        device = scores.device.index
        if torch.cuda.current_device() != device:
            with torch.cuda.device(device):
                return self.workspace(scores, size)
        if torch.cuda.is_current_stream_capturing():
            # From the graph's own pool, zeroed by a node of the graph: two graphs never share one,
            # and nothing outlives the graph.
            return torch.zeros(size, dtype=torch.uint8, device=scores.device)
        key: Hashable = (device, torch.cuda.current_stream(device).cuda_stream)
        found = WORKSPACES.find(key)
        if found is not None and found.memory.numel() >= size:
            found.recent = True
            return found.memory
        fresh = _Workspace(torch.zeros(size, dtype=torch.uint8, device=scores.device))
        return WORKSPACES.replace(key, fresh).memory

    def launch(
        self,
        run: Run,
        scores: torch.Tensor,
        indices: torch.Tensor,
        values: torch.Tensor | None,
        *others: torch.Tensor | None,
    ) -> tuple[torch.Tensor | None, torch.Tensor]:
        run(scores, indices, values, *others)  # TVM FFI asks torch for its current stream
        return values, indices


TORCH = TorchArrays()
