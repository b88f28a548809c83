"""torch tensors: imported when the first one is seen, never before."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import forward_ad

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
        unpack: Any = forward_ad.unpack_dual  # not typed
        if options.with_values and unpack(scores).tangent is not None:
            raise ValueError(
                "scores: expected without a forward-mode tangent, which is not carried on to the"
                " values: gather them by topk_indices instead"
            )
        return torch._C._len_torch_dispatch_stack() > 0 or (
            options.with_values and scores.requires_grad and torch.is_grad_enabled()
        )

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
        inputs = [_plain(array) for array in (scores, *others)]
        run(inputs[0], indices, values, *inputs[1:])  # TVM FFI asks torch for its current stream
        return values, indices


def _plain(array: torch.Tensor | None) -> torch.Tensor | None:
    """``array`` with its elements in memory as they are: a view such as ``x.conj().imag`` shows
    them negated, and says so in a bit that no reader of the memory sees.
    """
    return array.resolve_neg() if isinstance(array, torch.Tensor) else array


TORCH = TorchArrays()
