"""Bad input of every kind: one error that names the argument, and nothing written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tl_topk
from harness import GPU, NUMPY_CPU, TORCH_CPU, GuardedOutput, Target

ROWS, WIDTH, K = 3, 50, 7
Make = Callable[[Target], Any]


def good(target: Target, *shape: int) -> Any:
    numbers = np.random.default_rng(1).standard_normal(shape or (ROWS, WIDTH))
    return target.put(numbers.astype(np.float32))


def refused(target: Target, name: str, scores: Any, k: Any = K, **options: Any) -> None:
    """Both functions refuse, naming the argument, before they write to `out`."""
    options = {"backend": target.backend, **options}
    expected = pytest.raises((ValueError, TypeError), match=rf"\b{name}\b")
    for function, select in ((tl_topk.topk, slice(None)), (tl_topk.topk_indices, 1)):
        guarded = GuardedOutput(target, (ROWS, K), "float32")
        with expected:
            function(scores, k, **options)
        with expected:
            function(scores, k, **{"out": guarded.pair[select], **options})
        guarded.assert_untouched()


def integers(target: Target, *numbers: int, dtype: type = np.int32) -> Any:
    return target.put(np.array(numbers, dtype))


@pytest.mark.parametrize(
    "dtype", [np.float64, np.int8, np.int32, np.int64, np.uint8, np.bool_, np.complex64]
)
def test_scores_of_a_wrong_type(target: Target, dtype: type) -> None:
    refused(target, "scores", target.put(np.ones((ROWS, WIDTH), dtype)))


@pytest.mark.parametrize("shape", [(), (2, 3, 4), (1, 1, 1, 1)])
def test_scores_of_a_wrong_rank(target: Target, shape: tuple[int, ...]) -> None:
    refused(target, "scores", target.put(np.ones(shape, np.float32)))


@pytest.mark.parametrize("scores", [None, 3.0, [1.0, 2.0], "scores", object()])
def test_scores_that_are_no_array(scores: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=r"\bscores\b"):
        tl_topk.topk(scores, 1)
    with pytest.raises((ValueError, TypeError), match=r"\bscores\b"):
        tl_topk.topk_indices(scores, 1)


def test_scores_with_a_stride_in_the_last_dimension(target: Target) -> None:
    refused(target, "scores", good(target, ROWS, 2 * WIDTH)[:, ::2])
    refused(target, "scores", good(target, WIDTH, ROWS).T)
    refused(target, "scores", good(target, 2 * WIDTH)[::2])


def test_numpy_scores_that_are_odd() -> None:
    target = NUMPY_CPU
    refused(target, "scores", np.ones((ROWS, WIDTH), ">f4"))
    refused(target, "scores", np.ones((ROWS, WIDTH), object))
    refused(target, "scores", np.ones((ROWS, WIDTH), np.longdouble))
    refused(target, "scores", good(target)[:, ::-1])


def test_torch_scores_that_are_odd() -> None:
    target = TORCH_CPU
    refused(target, "scores", good(target).to_sparse())
    refused(target, "scores", torch.ones(ROWS, WIDTH, device="meta"))
    refused(target, "scores", good(target).to(torch.float8_e4m3fn))


@pytest.mark.parametrize("k", [-1, -(2**63), 2**63, 2**64, 2.0, 2.5, "2", None, [2], np.float32(2)])
def test_bad_k(target: Target, k: Any) -> None:
    refused(target, "k", good(target), k)


@pytest.mark.parametrize("order", ["", "best", "VALUE", "sorted", None, 1, b"value", ["value"]])
def test_bad_order(target: Target, order: Any) -> None:
    refused(target, "order", good(target), order=order)


@pytest.mark.parametrize("largest", ["no", "False", None, 2, 0.5, []])
def test_bad_largest(target: Target, largest: Any) -> None:
    refused(target, "largest", good(target), largest=largest)


@pytest.mark.parametrize("backend", ["", "cuda", "CPU", None, 0, ["cpu"]])
def test_bad_backend(target: Target, backend: Any) -> None:
    refused(target, "backend", good(target), backend=backend)


@pytest.mark.parametrize("name", ["lengths", "row_starts"])
class TestBounds:
    @pytest.mark.parametrize("dtype", [np.float32, np.int16, np.uint8, np.bool_, np.float64])
    def test_wrong_type(self, target: Target, name: str, dtype: type) -> None:
        refused(target, name, good(target), **{name: target.put(np.ones(ROWS, dtype))})

    @pytest.mark.parametrize("shape", [(), (1,), (2,), (4,), (0,), (3, 1), (1, 3)])
    def test_wrong_shape(self, target: Target, name: str, shape: tuple[int, ...]) -> None:
        refused(target, name, good(target), **{name: target.put(np.ones(shape, np.int32))})

    @pytest.mark.parametrize("bad", [5, 5.0, "5", [1, 2, 3], (1, 2, 3), object()])
    def test_no_array(self, target: Target, name: str, bad: Any) -> None:
        refused(target, name, good(target), **{name: bad})

    def test_one_dimension_takes_one(self, target: Target, name: str) -> None:
        for bad in (integers(target, 1, 2), target.put(np.array(1, np.int32))):
            with pytest.raises((ValueError, TypeError), match=rf"\b{name}\b"):
                tl_topk.topk(good(target, WIDTH), 2, backend=target.backend, **{name: bad})

    def test_a_stride_is_refused_or_obeyed(self, target: Target, name: str) -> None:
        scores = good(target)
        every_other = integers(target, 5, 99, 6, 99, 7)[::2]
        plain = integers(target, 5, 6, 7)
        expected = tl_topk.topk_indices(scores, K, order="index", **{name: plain})
        try:
            found = tl_topk.topk_indices(scores, K, order="index", **{name: every_other})
        except (ValueError, TypeError) as error:
            assert name in str(error)  # noqa: PT017 - either way is right
        else:
            assert (target.get(found) == target.get(expected)).all()


class TestOut:
    @staticmethod
    def refused(target: Target, out: Any, scores: Any = None, *, both: bool = True) -> None:
        expected = pytest.raises((ValueError, TypeError), match=r"\bout\b")
        scores = good(target) if scores is None else scores
        with expected:
            tl_topk.topk(scores, K, out=out, backend=target.backend)
        if both:
            with expected:
                tl_topk.topk_indices(scores, K, out=out[1], backend=target.backend)

    @staticmethod
    def pair(
        target: Target,
        shapes: tuple[tuple[int, ...], tuple[int, ...]] = ((ROWS, K), (ROWS, K)),
        types: tuple[type, type] = (np.float32, np.int32),
    ) -> tuple[Any, Any]:
        values, indices = (
            target.put(np.full(shape, 77, dtype))
            for shape, dtype in zip(shapes, types, strict=True)
        )
        return values, indices

    @pytest.mark.parametrize("shape", [(ROWS, K + 1), (ROWS + 1, K), (K,), (ROWS * K,), (K, ROWS)])
    def test_wrong_shape(self, target: Target, shape: tuple[int, ...]) -> None:
        right = (ROWS, K)
        self.refused(target, self.pair(target, (right, shape)))
        self.refused(target, self.pair(target, (shape, right)), both=False)

    def test_wrong_rank_for_one_dimension(self, target: Target) -> None:
        self.refused(target, self.pair(target, ((1, K), (1, K))), good(target, WIDTH))

    @pytest.mark.parametrize("dtype", [np.int64, np.int16, np.uint32, np.float32])
    def test_indices_of_a_wrong_type(self, target: Target, dtype: type) -> None:
        self.refused(target, self.pair(target, types=(np.float32, dtype)))

    @pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32])
    def test_values_of_a_wrong_type(self, target: Target, dtype: type) -> None:
        pair = self.pair(target, types=(dtype, np.int32))
        self.refused(target, pair, both=False)
        assert (target.get(pair[1]) == 77).all()

    @pytest.mark.parametrize("bad", [3, "out", object(), (), (1, 2), (None, None)])
    def test_no_arrays(self, target: Target, bad: Any) -> None:
        self.refused(target, bad, both=False)
        with pytest.raises((ValueError, TypeError), match=r"\bout\b"):
            tl_topk.topk_indices(good(target), K, out=bad, backend=target.backend)

    def test_one_for_two_and_two_for_one(self, target: Target) -> None:
        pair = self.pair(target)
        self.refused(target, pair[1], both=False)
        self.refused(target, pair[:1], both=False)
        self.refused(target, (*pair, pair[1]), both=False)
        self.refused(target, pair[::-1], both=False)
        with pytest.raises((ValueError, TypeError), match=r"\bout\b"):
            tl_topk.topk_indices(good(target), K, out=pair, backend=target.backend)

    def test_overlapping_memory(self, target: Target) -> None:
        """Outputs that share bytes with the scores, the bounds or one another."""
        scores = good(target, ROWS, WIDTH)
        before = target.get(scores)
        flat = target.put(np.zeros(ROWS * K, np.float32))
        as_int = (
            (lambda a: a.view(torch.int32))
            if target.library == "torch"
            else (lambda a: a.view(np.int32))
        )
        values, indices = self.pair(target)
        inside = target.view(scores.reshape(-1), (ROWS, K), (K, 1), 20)
        self.refused(target, (inside, indices), scores, both=False)
        self.refused(target, (values, as_int(inside)), scores)
        both = target.view(flat, (ROWS, K), (K, 1), 0)
        self.refused(target, (both, as_int(both)), scores, both=False)
        assert (target.get(scores) == before).all()
        for name in ("lengths", "row_starts"):
            bound = indices.reshape(-1)[5 : 5 + ROWS]
            with pytest.raises((ValueError, TypeError), match=rf"\b(out|{name})\b"):
                tl_topk.topk_indices(
                    scores, K, out=indices, backend=target.backend, **{name: bound}
                )
        assert (target.get(indices) == 77).all()

    def test_a_stride_is_refused_or_obeyed(self, target: Target) -> None:
        scores = good(target)
        expected = target.get(tl_topk.topk_indices(scores, K, order="index"))
        for wide, window in (
            (np.full((ROWS, 2 * K), 77, np.int32), (slice(None), slice(None, K))),
            (np.full((ROWS, 2 * K), 77, np.int32), (slice(None), slice(None, None, 2))),
            (np.full((2 * ROWS, K), 77, np.int32), (slice(None, None, 2), slice(None))),
        ):
            whole = target.put(wide)
            try:
                tl_topk.topk_indices(scores, K, order="index", out=whole[window])
            except (ValueError, TypeError) as error:
                assert "out" in str(error)  # noqa: PT017 - either way is right
                assert (target.get(whole) == 77).all()
            else:
                wide[window] = expected
                assert (target.get(whole) == wide).all()

    def test_rows_of_the_output_that_overlap(self, target: Target) -> None:
        flat = target.put(np.full(ROWS * K, 77, np.int32))
        expanded = target.view(flat, (ROWS, K), (0, 1), 0)
        with pytest.raises((ValueError, TypeError), match=r"\bout\b"):
            tl_topk.topk_indices(good(target), K, out=expanded, backend=target.backend)
        assert (target.get(flat) == 77).all()

    def test_read_only_numpy(self) -> None:
        target = NUMPY_CPU
        for locked in (0, 1):
            pair = self.pair(target)
            pair[locked].flags.writeable = False
            self.refused(target, pair, both=locked == 1)
            assert (pair[1] == 77).all()

    def test_of_another_library(self) -> None:
        self.refused(NUMPY_CPU, self.pair(TORCH_CPU))
        self.refused(TORCH_CPU, self.pair(NUMPY_CPU))

    def test_torch_outputs_that_require_grad(self) -> None:
        """torch refuses an in-place write to a leaf that requires a gradient; so does this."""
        target = TORCH_CPU
        values, indices = self.pair(target)
        self.refused(target, (values.requires_grad_(), indices), both=False)
        scores = good(target).requires_grad_()
        self.refused(target, self.pair(target), scores, both=False)


def test_positional_options_are_refused(target: Target) -> None:
    scores = good(target)
    for call in (
        lambda: tl_topk.topk(scores, K, None),  # type: ignore[arg-type]
        lambda: tl_topk.topk_indices(scores, K, None, None),  # type: ignore[arg-type]
        lambda: tl_topk.topk_paged(scores, K, scores, 1),  # type: ignore[arg-type]
        lambda: tl_topk.topk_ragged(scores, K, scores, 1),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError, match="by position and the rest by keyword"):
            call()


def test_dsmem_needs_a_gpu() -> None:
    for target in (Target("dsmem", "torch", "cpu"), Target("dsmem", "numpy", "cpu")):
        refused(target, "(backend|scores)", good(target))


@pytest.mark.gpu
class TestDevices:
    """Everything lies on one device, and that is the backend's."""

    def test_cpu_backend_with_gpu_scores(self) -> None:
        refused(Target("cpu", "torch", "cuda"), "(backend|scores)", torch.ones(ROWS, WIDTH).cuda())

    @pytest.mark.parametrize("name", ["lengths", "row_starts"])
    def test_bounds_elsewhere(self, name: str) -> None:
        cpu, gpu = TORCH_CPU, GPU
        refused(gpu, name, good(gpu), **{name: integers(cpu, 1, 2, 3)})
        refused(cpu, name, good(cpu), **{name: integers(gpu, 1, 2, 3)})

    def test_out_elsewhere(self) -> None:
        cpu, gpu = TORCH_CPU, GPU
        TestOut.refused(gpu, TestOut.pair(cpu))
        TestOut.refused(cpu, TestOut.pair(gpu))
