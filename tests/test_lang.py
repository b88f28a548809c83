"""tl_topk.lang in somebody's own TileLang kernel: its answers, by emulation and on a GPU."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from reference import DTYPES, Oracle, assert_topk, bits_of, from_bits, quantize, widen
from tile_emulator import EmulatedKernel, missing_sanitizer
from tl_topk.tile.compiler import Program
from tl_topk.tile.library import load
from tl_topk.tile.toolchain import architecture, missing_language, missing_tool

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(missing_language() is not None, reason=str(missing_language())),
]
N, K, BINS = 3000, 40, 16
LENGTHS = np.array([N, N - 1, 17], np.int32)


def program(dtype: str, threads: int) -> Program:
    """Everything that is called under ``T.Kernel``, in one kernel."""

    def trace() -> object:
        import tilelang.language as T  # noqa: N812

        from tl_topk import lang as tk

        rows = T.dynamic("rows")

        @T.prim_func
        def uses(
            x: T.Tensor((rows, N), dtype),  # type: ignore[valid-type]
            n: T.Tensor((rows,), "int32"),  # type: ignore[valid-type]
            worst: T.Tensor((rows, K), "int32"),  # type: ignore[valid-type]
            best: T.Tensor((rows, K), "int32"),  # type: ignore[valid-type]
            values: T.Tensor((rows, K), dtype),  # type: ignore[valid-type]
            keys: T.Tensor((rows, N), "uint32"),  # type: ignore[valid-type]
            bins: T.Tensor((rows, N), "int32"),  # type: ignore[valid-type]
        ):
            with T.Kernel(rows, threads=threads) as row:
                scores = T.alloc_shared((N,), dtype)
                chosen = T.alloc_shared((K,), "int32")
                T.copy(x[row, 0], scores)
                tk.block_topk(scores, n[row], K, chosen, order="index", largest=False)
                T.copy(chosen, worst[row, 0])
                tk.row_topk(x[row, 0], n[row], K, best[row, 0], values[row, 0], order="value")
                thread = T.get_thread_binding()
                for step in T.serial(T.ceildiv(N, threads)):
                    i = step * threads + thread
                    if i < N:
                        keys[row, i] = tk.order_key(x[row, i])
                        bins[row, i] = tk.linear_bin(x[row, i], T.float32(-1), T.float32(1), BINS)

        return uses

    names = ("x", "rows", "n", "worst", "best", "values", "keys", "bins")
    return Program(f"lang-{dtype}-{threads}", trace, names)


def rows_of(rng: np.random.Generator) -> NDArray[Any]:
    normal = rng.standard_normal((3, N))
    normal[1, ::7] = np.nan
    normal[1, 1::7] = -0.0
    normal[1, 2::7] = 0.0
    normal[2] = np.round(normal[2])
    normal[2, :3] = np.inf, -np.inf, 1e-30
    return normal


def problem(scores: NDArray[Any]) -> dict[str, Any]:
    rows = len(scores)
    return {
        "x": bits_of(scores), "rows": rows, "n": LENGTHS,
        "worst": np.full((rows, K), -7, np.int32), "best": np.full((rows, K), -7, np.int32),
        "values": np.zeros((rows, K), bits_of(scores).dtype),
        "keys": np.zeros((rows, N), np.uint32), "bins": np.zeros((rows, N), np.int32),
    }  # fmt: skip


@pytest.mark.parametrize("threads", [32, 96, 256, 1024])
@pytest.mark.parametrize("dtype", DTYPES)
def test_everything(dtype: str, threads: int, tmp_path: Path, rng: np.random.Generator) -> None:
    scores = quantize(rows_of(rng), dtype)
    given = problem(scores)
    EmulatedKernel.build(program(dtype, threads), tmp_path)(given, len(scores), turns=threads % 3)
    judge(scores, dtype, given)


@pytest.mark.gpu
@pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool()))
@pytest.mark.parametrize("dtype", DTYPES)
def test_on_a_gpu(dtype: str, rng: np.random.Generator) -> None:
    import torch

    scores = quantize(rows_of(rng), dtype)
    which = program(dtype, 96)
    module = load(which, architecture(10 * torch.cuda.get_device_capability()[0]))
    module["prepare"]()
    given = problem(scores)
    there = {
        name: torch.from_numpy(value.view(f"i{value.itemsize}")).cuda()
        for name, value in given.items()
        if name != "rows"
    }
    pointers = {name: ctypes.c_void_p(array.data_ptr()) for name, array in there.items()}
    arguments = [len(scores) if name == "rows" else pointers[name] for name in which.arguments]
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    module["launch"](*arguments, len(scores), stream)
    for name, array in there.items():
        given[name] = array.cpu().numpy().view(given[name].dtype)
    judge(scores, dtype, given)


def judge(scores: NDArray[Any], dtype: str, given: dict[str, Any]) -> None:
    assert_topk(Oracle(scores, LENGTHS, largest=False), K, "index", given["worst"])
    values = from_bits(given["values"], dtype)
    assert_topk(Oracle(scores, LENGTHS), K, "value", given["best"], values)
    for score, keys, bins in zip(widen(scores), given["keys"], given["bins"], strict=True):
        number = ~np.isnan(score)
        assert (keys[~number] == 0).all()
        assert (bins[~number] == 0).all()
        by_key = np.argsort(keys[number], kind="stable")
        assert (by_key == np.argsort(score[number], kind="stable")).all()
        expected = np.clip(np.floor((score[number].astype(np.float64) + 1) * BINS / 2), 0, BINS - 1)
        assert np.abs(bins[number] - expected).max() <= 1
        assert (np.diff(bins[number][by_key]) >= 0).all()


def test_no_races(tmp_path: Path, rng: np.random.Generator) -> None:
    if reason := missing_sanitizer(tmp_path):
        pytest.skip(reason)
    watched = EmulatedKernel.build_watched(program("float32", 96), tmp_path)
    watched(problem(quantize(rows_of(rng), "float32")), 3)
