"""Arrays of libraries that are seldom installed, each checked where it is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import tl_topk
from tl_topk import TopK, topk, topk_indices
from tl_topk.dlpack import exported

LENGTHS = [4, 90, 0, 200]
STARTS = [10, 0, 3, -1]


@pytest.fixture(autouse=True)
def empty_cache() -> Iterator[None]:
    tl_topk.clear_plan_cache()
    yield
    tl_topk.clear_plan_cache()


def host_scores(dtype: str = "float32") -> torch.Tensor:
    return torch.randn(4, 200, generator=torch.Generator().manual_seed(5)).to(getattr(torch, dtype))


def reference(given: torch.Tensor, order: str = "value", **bounds: Any) -> TopK:
    return topk(given, 7, order=order, **{n: torch.tensor(b) for n, b in bounds.items()})


def bits(values: torch.Tensor) -> np.ndarray[Any, Any]:
    return values.view(torch.int32 if values.itemsize == 4 else torch.int16).numpy()


class Watched:
    """An array of a library that is asked for DLPack, and for which stream."""

    def __init__(self, array: torch.Tensor, device_type: int) -> None:
        self._array = array
        self._device_type = device_type
        self.streams: list[int | None] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device_type, 0

    def __dlpack__(self, *, stream: int | None = None) -> object:
        self.streams.append(stream)
        return self._array.__dlpack__()


class TestExported:
    @pytest.mark.parametrize(("device_type", "asked"), [(1, None), (2, 77)])
    def test_shares_memory_and_names_the_stream(self, device_type: int, asked: int | None) -> None:
        array = torch.arange(6, dtype=torch.float32).view(2, 3)
        watched = Watched(array, device_type)
        native = exported(watched, 77)
        assert tuple(native.shape) == (2, 3)
        array[1, 2] = 9
        assert torch.from_dlpack(native)[1, 2] == 9
        assert watched.streams == [asked]

    def test_what_is_no_array_is_left_as_it_is(self) -> None:
        assert exported(None, -1) is None
        assert exported("scores", -1) == "scores"


class TestBfloat16InNumpy:
    @pytest.fixture
    def given(self) -> np.ndarray[Any, Any]:
        ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
        return bits(host_scores("bfloat16")).view(ml_dtypes.bfloat16)

    def test_same_answers(self, given: np.ndarray[Any, Any]) -> None:
        expected = reference(host_scores("bfloat16"))
        found = topk(given, 7, order="value")
        assert found.values.dtype == given.dtype
        assert (found.indices == expected.indices.numpy()).all()
        assert (found.values.view(np.int16) == bits(expected.values)).all()
        assert (topk_indices(given[0], 7, order="value") == found.indices[0]).all()

    def test_out_and_strides(self, given: np.ndarray[Any, Any]) -> None:
        window = given[:, 20:150]
        expected = reference(host_scores("bfloat16")[:, 20:150])
        out = TopK(np.empty((4, 7), given.dtype), np.empty((4, 7), np.int32))
        assert topk(window, 7, order="value", out=out) is out
        assert (out.indices == expected.indices.numpy()).all()
        assert (out.values.view(np.int16) == bits(expected.values)).all()

    def test_read_only(self, given: np.ndarray[Any, Any]) -> None:
        given = given.copy()
        given.flags.writeable = False
        expected = reference(host_scores("bfloat16"))
        assert (topk(given, 7, order="value").indices == expected.indices.numpy()).all()

    def test_other_dtypes_are_refused(self, given: np.ndarray[Any, Any]) -> None:
        ml_dtypes = pytest.importorskip("ml_dtypes")
        with pytest.raises(TypeError, match=r"scores: expected 'float32', .* got 'float8_e4m3fn'"):
            topk(given.astype(ml_dtypes.float8_e4m3fn), 7)
        with pytest.raises(TypeError, match="out values: expected bfloat16, got float16"):
            topk(given, 7, out=(np.empty((4, 7), np.float16), np.empty((4, 7), np.int32)))
        out = np.empty((4, 7), given.dtype), np.empty((4, 7), np.int32)
        with pytest.raises(TypeError, match="out values: expected float32, got bfloat16"):
            topk(given.astype(np.float32), 7, out=out)


class TestJax:
    @pytest.fixture(params=["cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
    def device(self, request: pytest.FixtureRequest) -> Any:
        # Others share the GPU: JAX would take three quarters of its memory, or find them taken. It
        # reads this when it first looks for devices.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        jax = pytest.importorskip("jax", reason="jax is not installed")
        try:
            return jax.devices(request.param)[0]
        except RuntimeError as error:
            pytest.skip(f"jax has no such device: {error}")

    @staticmethod
    def put(device: Any, tensor: torch.Tensor) -> Any:
        import jax
        import ml_dtypes

        kind = ml_dtypes.bfloat16 if tensor.dtype == torch.bfloat16 else str(tensor.dtype)[6:]
        array = bits(tensor).view(kind) if tensor.is_floating_point() else tensor.numpy()
        return jax.device_put(array, device)

    @pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
    def test_same_answers(self, device: Any, dtype: str) -> None:
        import jax

        given = host_scores(dtype)
        array = self.put(device, given)
        before = np.asarray(array).copy()
        expected = reference(given)
        for _ in range(3):
            found = topk(array, 7, order="value")
            assert isinstance(found.values, jax.Array)
            assert found.values.dtype == array.dtype
            assert found.values.devices() == found.indices.devices() == {device}
            assert (np.asarray(found.indices) == expected.indices.numpy()).all()
            assert (np.asarray(found.values).view(bits(given).dtype) == bits(expected.values)).all()
        alone = topk_indices(array[1], 7, order="value")
        assert (np.asarray(alone) == expected.indices[1].numpy()).all()
        assert (np.asarray(array) == before).all()

    def test_lengths(self, device: Any) -> None:
        given = host_scores()
        found = topk(
            self.put(device, given),
            7,
            order="value",
            lengths=self.put(device, torch.tensor(LENGTHS, dtype=torch.int32)),
            row_starts=self.put(device, torch.tensor(STARTS, dtype=torch.int32)),
        )
        expected = reference(given, lengths=LENGTHS, row_starts=STARTS)
        assert (np.asarray(found.indices) == expected.indices.numpy()).all()

    def test_results_are_their_own(self, device: Any) -> None:
        """No two results share memory, and what was computed waits for nothing that was freed."""
        import jax.numpy as jnp

        given = host_scores()
        found = []
        for scale in range(1, 20):
            array = self.put(device, given) * (-1.0 if scale % 2 else 1.0)
            found.append(topk_indices(array, 7, order="value"))
            del array
        ascending = topk_indices(-given, 7, order="value")
        descending = topk_indices(given, 7, order="value")
        for turn, indices in enumerate(found):
            expected = descending if turn % 2 else ascending
            assert (np.asarray(indices + jnp.int32(1)) == expected.numpy() + 1).all()

    def test_refused(self, device: Any) -> None:
        import jax

        array = self.put(device, host_scores())
        with pytest.raises(TypeError, match="out indices: expected None, as JAX arrays are immut"):
            topk_indices(array, 7, out=topk_indices(array, 7))
        with pytest.raises(TypeError, match="out indices: expected a JAX array"):
            topk_indices(array, 7, out=np.empty((4, 7), np.int32))
        with pytest.raises(TypeError, match=r"scores: expected 'float32', .* got 'int32'"):
            topk_indices(array.astype("int32"), 7)
        with pytest.raises((TypeError, ValueError), match="lengths"):
            topk_indices(array, 7, lengths=array[0])
        with pytest.raises(TypeError, match="scores: expected a concrete array"):
            jax.jit(lambda scores: topk_indices(scores, 7))(array)


@pytest.mark.gpu
class TestCupy:
    @pytest.fixture
    def cupy(self) -> Any:
        return pytest.importorskip("cupy", reason="cupy is not installed")

    @pytest.mark.parametrize("dtype", ["float32", "float16"])
    def test_same_answers(self, cupy: Any, dtype: str) -> None:
        given = host_scores(dtype)
        array = cupy.asarray(given.numpy())
        expected = reference(given, lengths=LENGTHS, row_starts=STARTS)
        out = TopK(cupy.empty((4, 7), dtype), cupy.empty((4, 7), "int32"))
        bounds = {
            "lengths": cupy.asarray(np.array(LENGTHS)),
            "row_starts": cupy.asarray(np.array(STARTS, np.int32)),
        }
        for _ in range(2):
            found = topk(array, 7, order="value", **bounds)
            assert isinstance(found.values, cupy.ndarray)
            assert topk(array, 7, order="value", out=out, **bounds) is out
            for result in (found, out):
                assert (result.indices.get() == expected.indices.numpy()).all()
                assert (result.values.get() == expected.values.numpy()).all()

    def test_the_current_stream(self, cupy: Any) -> None:
        """Scores that arrive late, on CuPy's current stream, are waited for, and nobody waits."""
        final = torch.randn(1, 70_000, device="cuda")
        expected = topk_indices(final, 2048, order="index")
        scores = cupy.zeros((1, 70_000), cupy.float32)
        scores[:] = cupy.from_dlpack(final) * 0  # CuPy compiles what it needs at its first use
        out = topk_indices(scores, 2048, order="index")
        cupy.cuda.Device().synchronize()
        torch.cuda.synchronize()
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            with torch.cuda.stream(torch.cuda.ExternalStream(stream.ptr)):
                torch.cuda._sleep(200_000_000)
            scores[:] = cupy.from_dlpack(final)
            topk_indices(scores, 2048, order="index", out=out)
            assert not stream.done
            stream.synchronize()
        assert (out.get() == expected.cpu().numpy()).all()

    def test_refused(self, cupy: Any) -> None:
        scores = cupy.zeros((2, 100), cupy.float32)
        with pytest.raises(ValueError, match="lengths: expected on cuda:0, got on the CPU"):
            topk_indices(scores, 7, lengths=np.ones(2, np.int32))
        with pytest.raises(TypeError, match="out indices: expected a CuPy array"):
            topk_indices(scores, 7, out=torch.empty(2, 7, dtype=torch.int32, device="cuda"))
        with pytest.raises(TypeError, match="out indices: expected int32"):
            topk_indices(scores, 7, out=cupy.empty((2, 7), "int64"))
        with pytest.raises(TypeError, match=r"scores: expected 'float32', .* got 'float64'"):
            topk_indices(scores.astype("float64"), 7)
