"""What a call costs the CPU: ours, torch's own, and a TVM FFI call that does nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import torch
import tvm_ffi

import tl_topk
from bench.cases import Case
from bench.contenders import our_plan
from bench.timing import host_time

__all__ = ["HOST_CALLS", "HOST_CASE", "measure_host"]

HOST_CASE = Case(1, 16_384)

Call = Callable[[], object]


def measure_host(device: str, starting: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """One result per call, in HOST_CALLS' order."""
    for name, call in _calls(device).items():
        starting(name)
        synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
        yield {"call": name} | asdict(host_time(call, synchronize))


def _calls(device: str) -> dict[str, Call]:
    case = HOST_CASE
    scores = torch.randn(case.rows, case.width, device=device)
    lengths = torch.full((case.rows,), case.width, dtype=torch.int32, device=device)
    indices = torch.empty(case.rows, case.k, dtype=torch.int32, device=device)
    values = torch.empty(case.rows, case.k, device=device)
    indices64 = torch.empty(case.rows, case.k, dtype=torch.int64, device=device)
    result = tl_topk.TopK(values, indices)
    plan = our_plan(case, device)
    nop = tvm_ffi.get_global_func("testing.nop")
    calls: list[Call] = [
        lambda: plan.run(scores, indices),
        lambda: plan.run(scores, indices, None, lengths),
        lambda: tl_topk.topk_indices(scores, case.k, out=indices),
        lambda: tl_topk.topk_indices(scores, case.k, lengths=lengths, out=indices),
        lambda: tl_topk.topk(scores, case.k, out=result),
        lambda: tl_topk.topk_indices(scores, case.k),
        lambda: nop(scores, indices),
        lambda: nop(scores, indices, values, lengths),
        lambda: indices.add_(1),
        lambda: torch.topk(scores, case.k, sorted=False, out=(values, indices64)),
        lambda: torch.empty(case.rows, case.k, dtype=torch.int32, device=device),
    ]
    return dict(zip(HOST_CALLS, calls, strict=True))


HOST_CALLS = (
    "plan.run(scores, indices)",
    "plan.run(scores, indices, None, lengths)",
    "topk_indices(scores, k, out=)",
    "topk_indices(scores, k, lengths=, out=)",
    "topk(scores, k, out=)",
    "topk_indices(scores, k)",
    "TVM FFI no-op, 2 tensors",
    "TVM FFI no-op, 4 tensors",
    "torch.Tensor.add_",
    "torch.topk(out=)",
    "torch.empty",
)
