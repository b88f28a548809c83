"""Other implementations of the same job. Each is used where it can be imported.

An adapter says how a peer is called, as its engine calls it, and what it does not serve; the
runner checks every answer like ours. None of them is needed.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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


class Peer(Contender):
    """What adapters share: which modules and functions a peer needs."""

    def __init__(self, name: str, needs: Sequence[str]) -> None:
        """``needs``: modules, or functions of modules as "module:function"."""
        self.name = name
        self._needs = needs

    def unavailable(self) -> str:
        return next(filter(None, map(_missing_need, self._needs)), "")


class IndexPeer(Peer):
    """A peer that is given scores, lengths and k, and returns indices alone, in any order."""

    def __init__(
        self,
        name: str,
        needs: Sequence[str],
        bind: Bind,
        *,
        dtypes: Sequence[str] = ("float32",),
        ks: Sequence[int] | None = None,
        crashes: Callable[[Case], bool] = lambda case: False,
    ) -> None:
        """``crashes``: which cases would take the whole run down with them."""
        super().__init__(name, needs)
        self._bind = bind
        self._dtypes = dtypes
        self._ks = ks
        self._crashes = crashes

    def refusal(self, case: Case) -> str:
        if case.values or case.order != "any" or case.row_starts:
            return "indices alone, in any order, of whole rows"
        if case.dtype not in self._dtypes:
            return f"no {case.dtype}"
        if self._ks is not None and case.k not in self._ks:
            return f"k is one of {', '.join(map(str, self._ks))}"
        return "its buffers overflow" if self._crashes(case) else ""

    def prepare(self, inputs: Inputs) -> list[Launch]:
        lengths = inputs.row_lengths()

        def launch(call: Callable[[], Tensor]) -> Answer:
            return Answer(call())

        k = inputs.case.k
        return [partial(launch, self._bind(scores, lengths, k)) for scores in inputs.scores]


class VllmOperator(IndexPeer):
    """One of vLLM's operators, which importing its Python wrappers registers."""

    def __init__(self, name: str, operator: str, bind: Bind, **served: Any) -> None:
        super().__init__(name, ["vllm._custom_ops"], bind, **served)
        self._operator = operator

    def unavailable(self) -> str:
        reason = super().unavailable()
        if not reason and not hasattr(torch.ops._C, self._operator):
            return f"vLLM has no operator {self._operator}"
        return reason


class PairPeer(Peer):
    """A peer that is given scores and k and returns (values, indices)."""

    def __init__(
        self, name: str, needs: str, call: Callable[[Tensor, int], tuple[Tensor, Tensor]]
    ) -> None:
        super().__init__(name, [needs])
        self._call = call

    def refusal(self, case: Case) -> str:
        if case.lengths is not None or case.row_starts:
            return "no lengths or row starts"
        return "no order" if case.order != "any" else ""

    def prepare(self, inputs: Inputs) -> list[Launch]:
        def launch(scores: Tensor) -> Answer:
            values, indices = self._call(scores, inputs.case.k)
            return Answer(indices, values)

        return [partial(launch, scores) for scores in inputs.scores]


class FlashInfer(PairPeer):
    """FlashInfer's ``top_k`` with the algorithm that its environment variable names.

    "auto" is the variable unset; it knows no such value, and would leave out CUB's kernel.
    """

    _VARIABLE = "FLASHINFER_TOPK_ALGO"

    def __init__(self, algorithm: str) -> None:
        super().__init__(f"FlashInfer {algorithm}", "flashinfer:top_k", self._top_k)
        self._algorithm = None if algorithm == "auto" else algorithm

    def unavailable(self) -> str:
        reason = super().unavailable()
        if not reason and self._algorithm == "clusters" and not _is_blackwell():
            return "needs compute capability 10; elsewhere another algorithm takes its place"
        return reason

    def _top_k(self, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        with _environment(self._VARIABLE, self._algorithm):  # read by the library at each call
            values, indices = optional("flashinfer").top_k(scores, k)
        return values, indices


def find_peers() -> list[Contender]:
    """All that are known; ask each whether it is available."""
    return [
        *map(FlashInfer, ("auto", "cub", "filtered", "multi_cta", "clusters")),
        IndexPeer(
            "SGLang fast_topk_v2",
            ["sgl_kernel:fast_topk_v2"],
            _function("sgl_kernel", "fast_topk_v2"),
            ks=(2048,),
        ),
        _sglang_v2(),
        VllmOperator("vLLM top_k_per_row_decode", "top_k_per_row_decode", _bind_vllm_per_row),
        *_vllm_functions(),
        PairPeer("RAFT AIR", "air_topk:topk", lambda x, k: optional("air_topk").topk(x, k)),
        *_sgl_peers(),
        IndexPeer(
            "TileLang example",
            ["tilelang", "topk_selector:tl_topk"],  # the second from its examples/deepseek_v32
            _bind_tilelang_example,
            crashes=lambda case: case.width > 131072 or case.distribution != "normal",
        ),
    ]


def _missing_need(need: str) -> str:
    """Why a module or its function is not there; empty if it is."""
    module, _, function = need.partition(":")
    reason = missing(module)
    if not reason and function and not callable(getattr(optional(module), function, None)):
        return f"{module} has no function {function}"
    return reason


def _is_blackwell() -> bool:
    return torch.cuda.is_available() and torch.cuda.get_device_capability()[0] == 10


@contextmanager
def _environment(name: str, value: str | None) -> Iterator[None]:
    """With the variable set, or unset where ``value`` is None; as it was before afterwards."""
    before = os.environ.pop(name, None)
    if value is not None:
        os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name, None)
        if before is not None:
            os.environ[name] = before


def _function(module: str, name: str) -> Bind:
    """``module.name(scores, lengths, k) -> indices``."""

    def bind(scores: Tensor, lengths: Tensor, k: int) -> Callable[[], Tensor]:
        select = getattr(optional(module), name)
        return lambda: select(scores, lengths, k)

    return bind


_SGLANG_V2_MODULES = ("sglang.kernels.ops.attention.dsv4", "sglang.jit_kernel.dsv4")


def _sglang_v2() -> Contender:
    """Its module has moved between versions, and so has the way to the raw indices."""
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
        transform = topk.topk_transform_512_v2
        gives_raw = "out_raw_indices" in inspect.signature(transform).parameters

        def call() -> Tensor:
            if gives_raw:
                transform(scores, lengths, table, slots, page, plan, raw)
            else:  # then no page table means raw indices
                transform(scores, lengths, None, raw, page, plan)
            return raw

        return call

    needs = [f"{module}:plan_topk_v2", f"{module}:topk_transform_512_v2"]
    return IndexPeer("SGLang topk_v2", needs, bind, ks=_LENGTH_K)


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

    def peer(kind: str) -> Contender:
        name, function = f"vLLM {kind}", f"{kind}_topk"
        if missing("vllm_topk"):
            return VllmOperator(name, function, own(function), ks=_LENGTH_K)
        bind = _function("vllm_topk", function)
        return IndexPeer(name, [f"vllm_topk:{function}"], bind, ks=_LENGTH_K)

    return [peer("cooperative"), peer("persistent")]


def _sgl_peers() -> list[Contender]:
    """Every function ``peer_NAME(scores, lengths, k) -> indices`` of a module ``sgl_peers``."""
    module = "sgl_peers"
    functions: list[tuple[str, Any]] = []
    if not missing(module):
        functions = inspect.getmembers(optional(module), callable)
    names = [name for name, _ in functions if name.startswith("peer_")]
    if not names:  # the adapter that says why
        return [IndexPeer(module, [f"{module}:peer_*"], _function(module, "peer_*"))]
    return [
        IndexPeer(name.removeprefix("peer_"), [module], _function(module, name)) for name in names
    ]


def _bind_tilelang_example(scores: Tensor, lengths: Tensor, k: int) -> Callable[[], Tensor]:
    select = optional("topk_selector").tl_topk
    starts = torch.zeros_like(lengths)
    return lambda: select(scores, starts, lengths, k)
