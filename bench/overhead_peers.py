"""Other ways for Python to launch a kernel, for :mod:`bench.host_overhead`."""

from __future__ import annotations

import importlib.util
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import tl_topk

__all__ = ["Launcher", "custom_op", "pybind11_call", "tilelang_call"]

_NATIVE = Path(__file__).parent / "native"


def custom_op(plan: tl_topk.TopKPlan) -> Callable[[Tensor, Tensor, Tensor], None]:
    """torch's recommended way to register an operator, around the same plan."""

    def topk(scores: Tensor, indices: Tensor, values: Tensor) -> None:
        plan.run(scores, indices, values)

    operator: Any = torch.library.custom_op(
        "tl_topk_bench::topk",
        topk,
        mutates_args=("indices", "values"),
        schema="(Tensor scores, Tensor(a!) indices, Tensor(b!) values) -> ()",
    )
    called: Callable[[Tensor, Tensor, Tensor], None] = operator
    return called


@dataclass(frozen=True)
class Launcher:
    """Where bench/native's launch lies, and what to give it."""

    address: int
    scores: Tensor
    indices: Tensor
    values: Tensor


def pybind11_call(launcher: Launcher) -> Callable[[], object]:
    """The same launch through a pybind11 function that takes pointers, compiled here and now.

    Nothing is checked on the way, as is usual.
    """
    import pybind11  # type: ignore[import-not-found]

    name = "tl_topk_pybind_call"
    library = Path(tempfile.mkdtemp()) / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
    subprocess.run(
        [
            *("c++", "-std=c++17", "-O2", "-shared", "-fPIC", "-fvisibility=hidden"),
            *("-I", pybind11.get_include(), "-I", sysconfig.get_paths()["include"]),
            *(str(_NATIVE / "pybind_call.cc"), "-o", str(library)),
        ],
        check=True,
        capture_output=True,
    )
    spec = importlib.util.spec_from_file_location(name, library)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.use(launcher.address)
    run, scores, indices, values = module.run, launcher.scores, launcher.indices, launcher.values
    width, k, device = scores.shape[1], indices.shape[1], scores.device

    def call() -> None:
        stream = torch.cuda.current_stream(device).cuda_stream
        run(scores.data_ptr(), width, indices.data_ptr(), k, values.data_ptr(), stream)

    return call


def tilelang_call(scores: Tensor) -> Callable[[], object]:
    """A kernel that copies one block: what calling any TileLang kernel costs."""
    import tilelang
    import tilelang.language as T  # noqa: N812 - all call it so

    block = 256

    @T.prim_func  # type: ignore[untyped-decorator]
    def copy(source: T.Tensor((block,), "float32"), target: T.Tensor((block,), "float32")):  # type: ignore[no-untyped-def, valid-type]
        with T.Kernel(1, threads=block) as _:
            for i in T.Parallel(block):
                target[i] = source[i]

    kernel = tilelang.compile(copy, target="cuda")
    source, target = scores[0, :block].clone(), torch.empty_like(scores[0, :block])
    return lambda: kernel(source, target)
