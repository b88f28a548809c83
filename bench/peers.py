"""Other implementations of the same job. Each is used where it can be imported.

An adapter says how a peer is called, as its engine calls it, and what it does not serve; the
runner checks every answer like ours. None of them is needed.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from bench.cases import Case
from bench.contenders import Contender, missing, optional
from bench.exact import Answer
from bench.inputs import Inputs
from bench.timing import Launch

__all__ = ["find_peers"]

#: From (scores, lengths, k) to a call that returns indices (rows, k).
Bind: TypeAlias = Callable[[Tensor, Tensor, int], Callable[[], Tensor]]

_LENGTH_K = (512, 1024, 2048)


class IndexPeer(Contender):
    """A peer that is given scores, lengths and k, and returns indices alone, in any order."""

    def __init__(
        self,
        name: str,
        modules: Sequence[str],
        bind: Bind,
        *,
        dtypes: Sequence[str] = ("float32",),
        ks: Sequence[int] | None = None,
        max_width: int | None = None,
    ) -> None:
        self.name = name
        self._modules = modules
        self._bind = bind
        self._dtypes = dtypes
        self._ks = ks
        self._max_width = max_width

    def unavailable(self) -> str:
        return next(filter(None, map(missing, self._modules)), "")

    def refusal(self, case: Case) -> str:
        if case.values or case.order != "any" or case.row_starts:
            return "indices alone, in any order, of whole rows"
        if case.dtype not in self._dtypes:
            return f"no {case.dtype}"
        if self._ks is not None and case.k not in self._ks:
            return f"k is one of {', '.join(map(str, self._ks))}"
        if self._max_width is not None and case.width > self._max_width:
            return f"rows beyond {self._max_width} overflow its buffers"
        return ""

    def prepare(self, inputs: Inputs) -> list[Launch]:
        lengths = inputs.row_lengths()

        def launch(call: Callable[[], Tensor]) -> Answer:
            return Answer(call())

        k = inputs.case.k
        return [partial(launch, self._bind(scores, lengths, k)) for scores in inputs.scores]


class PairPeer(Contender):
    """A peer that is given scores and k and returns (values, indices)."""

    def __init__(
        self, name: str, module: str, call: Callable[[Tensor, int], tuple[Tensor, Tensor]]
    ) -> None:
        self.name = name
        self._module = module
        self._call = call

    def unavailable(self) -> str:
        return missing(self._module)

    def refusal(self, case: Case) -> str:
        if case.lengths is not None or case.row_starts:
            return "no lengths or row starts"
        return "no order" if case.order != "any" else ""

    def prepare(self, inputs: Inputs) -> list[Launch]:
        def launch(scores: Tensor) -> Answer:
            values, indices = self._call(scores, inputs.case.k)
            return Answer(indices, values)

        return [partial(launch, scores) for scores in inputs.scores]


def find_peers() -> list[Contender]:
    """All that are known; ask each whether it is available."""
    return [
        *(_flashinfer(algorithm) for algorithm in ("auto", "filtered", "multi_cta", "clusters")),
        IndexPeer("SGLang fast_topk_v2", ["sgl_kernel"], _bind_sglang_v1, ks=(2048,)),
        _sglang_v2(),
        IndexPeer("vLLM top_k_per_row_decode", ["vllm._C"], _bind_vllm_per_row),
        *_vllm_functions(),
        PairPeer("RAFT AIR", "air_topk", lambda x, k: optional("air_topk").topk(x, k)),
        *_sgl_peers(),
        IndexPeer(
            "TileLang example",
            ["tilelang", "topk_selector"],  # the second from its examples/deepseek_v32
            _bind_tilelang_example,
            max_width=131072,
        ),
    ]


def _flashinfer(algorithm: str) -> Contender:
    def call(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        # Read by the library at each call.
        os.environ["FLASHINFER_TOPK_ALGO"] = algorithm
        try:
            values, indices = optional("flashinfer").top_k(scores, k)
        finally:
            del os.environ["FLASHINFER_TOPK_ALGO"]
        return values, indices

    return PairPeer(f"FlashInfer {algorithm}", "flashinfer", call)


def _bind_sglang_v1(scores: Tensor, lengths: Tensor, k: int) -> Callable[[], Tensor]:
    select = optional("sgl_kernel").fast_topk_v2
    return lambda: select(scores, lengths, k)


_SGLANG_V2_MODULES = ("sglang.kernels.ops.attention.dsv4", "sglang.jit_kernel.dsv4")


def _sglang_v2() -> Contender:
    """Its module has moved between versions."""
    there = [module for module in _SGLANG_V2_MODULES if not missing(module)]
    module = there[0] if there else _SGLANG_V2_MODULES[0]

    def bind(scores: Tensor, lengths: Tensor, k: int) -> Callable[[], Tensor]:
        topk = optional(module)
        rows, width = scores.shape
        page = 64
        pages = torch.arange(-(-width // page), dtype=torch.int32, device=scores.device)
        table = pages.expand(rows, -1).contiguous()
        slots, raw = (torch.empty(rows, k, dtype=torch.int32, device=scores.device) for _ in "ab")
        plan = topk.plan_topk_v2(lengths)

        def call() -> Tensor:
            topk.topk_transform_512_v2(scores, lengths, table, slots, page, plan, raw)
            return raw

        return call

    return IndexPeer("SGLang topk_v2", [module], bind, ks=_LENGTH_K)


def _bind_vllm_per_row(scores: Tensor, lengths: Tensor, k: int) -> Callable[[], Tensor]:
    rows = len(scores)
    indices = torch.empty(rows, k, dtype=torch.int32, device=scores.device)

    def call() -> Tensor:
        torch.ops._C.top_k_per_row_decode(
            scores, 1, lengths, indices, rows, scores.stride(0), scores.stride(1), k
        )
        return indices

    return call


def _vllm_functions() -> list[Contender]:
    """From ``vllm_topk``, a module that wraps vLLM's two kernels, or from vLLM itself."""

    def wrapped(function: str) -> Bind:
        def bind(scores: Tensor, lengths: Tensor, k: int) -> Callable[[], Tensor]:
            select = getattr(optional("vllm_topk"), function)
            return lambda: select(scores, lengths, k)

        return bind

    def own(function: str) -> Bind:
        def bind(scores: Tensor, lengths: Tensor, k: int) -> Callable[[], Tensor]:
            select = getattr(torch.ops._C, function)
            indices = torch.empty(len(scores), k, dtype=torch.int32, device=scores.device)
            workspace = torch.zeros(1 << 20, dtype=torch.uint8, device=scores.device)

            def call() -> Tensor:
                select(scores, lengths, indices, workspace, k, scores.shape[1])
                return indices

            return call

        return bind

    alone = not missing("vllm_topk")
    module, binding = ("vllm_topk", wrapped) if alone else ("vllm._C", own)
    return [
        IndexPeer(f"vLLM {kind}", [module], binding(f"{kind}_topk"), ks=_LENGTH_K)
        for kind in ("cooperative", "persistent")
    ]


def _sgl_peers() -> list[Contender]:
    """Every function ``peer_NAME(scores, lengths, k) -> indices`` of a module ``sgl_peers``."""
    if missing("sgl_peers"):
        return [IndexPeer("sgl_peers", ["sgl_peers"], _bind_sglang_v1)]

    def bound(function: Any) -> Bind:
        return lambda scores, lengths, k: lambda: function(scores, lengths, k)

    functions = inspect.getmembers(optional("sgl_peers"), callable)
    return [
        IndexPeer(name.removeprefix("peer_"), ["sgl_peers"], bound(function))
        for name, function in functions
        if name.startswith("peer_")
    ]


def _bind_tilelang_example(scores: Tensor, lengths: Tensor, k: int) -> Callable[[], Tensor]:
    select = optional("topk_selector").tl_topk
    starts = torch.zeros_like(lengths)
    return lambda: select(scores, starts, lengths, k)
