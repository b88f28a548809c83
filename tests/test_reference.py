"""The oracle itself, against answers written by hand from the contract."""

from __future__ import annotations

import numpy as np
import pytest

from certificate import assert_certified
from harness import TORCH_CPU
from reference import (
    DTYPES,
    Oracle,
    Order,
    assert_topk,
    bits_of,
    from_bits,
    quantize,
    rank,
    span,
    widen,
)
from zoo import matrix, ordinary, special

NAN, INF = float("nan"), float("inf")


def floats(*numbers: float) -> np.ndarray:
    return np.array(numbers, dtype=np.float32)


@pytest.mark.parametrize(
    ("numbers", "largest", "expected"),
    [
        ((1, 3, 2), True, [1, 2, 0]),
        ((1, 3, 2), False, [0, 2, 1]),
        ((5, 5, 7, 5), True, [2, 0, 1, 3]),
        ((5, 5, 7, 5), False, [0, 1, 3, 2]),
        ((-0.0, 0.0, -0.0, 1), True, [3, 0, 1, 2]),
        ((0.0, -0.0, -1), False, [2, 0, 1]),
        ((NAN, -INF, NAN, INF), True, [3, 1, 0, 2]),
        ((NAN, -INF, NAN, INF), False, [1, 3, 0, 2]),
        ((1e-45, 0, -1e-45), True, [0, 1, 2]),
        ((), True, []),
    ],
)
def test_rank(numbers: tuple[float, ...], largest: bool, expected: list[int]) -> None:
    assert rank(floats(*numbers), largest).tolist() == expected


@pytest.mark.parametrize(
    ("length", "start", "expected"),
    [
        (None, None, (0, 10)),
        (4, None, (0, 4)),
        (4, 3, (3, 7)),
        (9, 3, (3, 10)),
        (None, 3, (3, 10)),
        (4, -3, (0, 4)),
        (None, -3, (0, 10)),
        (4, 10, (10, 10)),
        (4, 11, (10, 10)),
        (0, 3, (3, 3)),
        (-1, 3, (3, 3)),
        (2**31 - 1, 2**31 - 1, (10, 10)),
        (2**63 - 1, 1, (1, 10)),
        (2**63 - 1, 2**63 - 1, (10, 10)),
        (-(2**63), -(2**63), (0, 0)),
        (3, -(2**63), (0, 3)),
    ],
)
def test_span(length: int | None, start: int | None, expected: tuple[int, int]) -> None:
    assert span(10, length, start) == expected


def test_the_answer_is_relative_to_the_start_and_padded() -> None:
    scores = np.stack([floats(9, 1, 2, 3), floats(9, 9, 9, 9), floats(4, 3, 2, 1)])
    oracle = Oracle(scores, lengths=np.array([3, 0, 2]), row_starts=np.array([1, 0, 3]))
    answer = oracle.answer(2)
    assert answer.indices.tolist() == [[2, 1], [-1, -1], [0, -1]]
    assert answer.counts == [2, 0, 1]
    assert oracle.values(answer.indices).tolist() == [[3, 2], [-INF, -INF], [1, -INF]]


def test_padding_is_plus_inf_for_the_smallest() -> None:
    oracle = Oracle(floats(1, 2), largest=False)
    assert oracle.values(oracle.answer(3).indices).tolist() == [[1, 2, INF]]


def test_bfloat16_is_read_from_its_bits() -> None:
    raw = from_bits(np.array([0x3F80, 0xBF80, 0x7F80, 0x7FC1, 0x0001]), "bfloat16")
    assert widen(raw)[:3].tolist() == [1.0, -1.0, INF]
    assert np.isnan(widen(raw)[3])
    assert widen(raw)[4] > 0


def test_quantize_rounds_to_even() -> None:
    numbers = floats(1.0, 1.00390625, 1.01171875, 3.4e38, -INF, NAN)
    patterns = bits_of(quantize(numbers, "bfloat16")).tolist()
    assert patterns == [0x3F80, 0x3F80, 0x3F82, 0x7F80, 0xFF80, 0x7FC0]
    assert quantize(floats(65520.0), "float16")[0] == np.float16(INF)


def test_a_right_result_passes_in_its_order_only() -> None:
    oracle = Oracle(floats(1, 3, 2, 3))
    best = np.array([1, 3, 2], dtype=np.int32)
    ascending = np.array([1, 2, 3], dtype=np.int32)
    assert_topk(oracle, 3, "value", best, floats(3, 3, 2))
    assert_topk(oracle, 3, "index", ascending, floats(3, 2, 3))
    assert_topk(oracle, 3, "any", best[::-1].copy(), floats(2, 3, 3))
    with pytest.raises(AssertionError, match="order is not: slot 1 holds"):
        assert_topk(oracle, 3, "value", ascending)


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ([1, 1, 2, -1], "repeated"),
        ([1, 0, 9, -1], "out of range"),
        ([1, 0, -2, -1], "out of range"),
        ([0, 1, -1, 2], "padding is not at the end"),
        ([0, 1, -1, -1], "missing"),
    ],
)
def test_a_wrong_set_is_explained(indices: list[int], message: str) -> None:
    oracle = Oracle(floats(1, 2, 3), labels=["three"])
    with pytest.raises(AssertionError, match=message):
        assert_topk(oracle, 4, "any", np.array(indices, dtype=np.int32))


def test_a_lower_index_wins_among_equals() -> None:
    oracle = Oracle(floats(0, 1, 1, 1), labels=["ties"])
    with pytest.raises(AssertionError, match=r"row 0 \(ties\)(.|\n)*missing(.|\n)*not wanted"):
        assert_topk(oracle, 2, "any", np.array([1, 3], dtype=np.int32))


def test_values_are_compared_by_bits() -> None:
    zeros = floats(-0.0, 0.0)
    oracle = Oracle(zeros)
    both = np.array([0, 1], dtype=np.int32)
    assert_topk(oracle, 2, "value", both, zeros)
    with pytest.raises(AssertionError, match=r"slot 0 .* has bits 0x0, not 0x80000000"):
        assert_topk(oracle, 2, "value", both, floats(0.0, 0.0))


def test_shape_and_type_are_checked() -> None:
    oracle = Oracle(floats(1, 2))
    with pytest.raises(AssertionError, match="int64"):
        assert_topk(oracle, 1, "any", np.array([1]))  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match="shape"):
        assert_topk(oracle, 1, "any", np.array([[1]], dtype=np.int32))
    with pytest.raises(AssertionError, match="values are float16"):
        assert_topk(oracle, 1, "any", np.array([1], dtype=np.int32), np.array([2], np.float16))


class TestCertificate:
    """The sorting-free proof accepts what the oracle says, and nothing else."""

    @pytest.mark.parametrize("largest", [True, False])
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_it_agrees_with_the_oracle(
        self, dtype: str, largest: bool, rng: np.random.Generator
    ) -> None:
        scores, _ = matrix(ordinary(300, dtype, rng) | special(300, dtype, rng))
        lengths = rng.integers(-2, 305, len(scores))
        starts = rng.integers(-2, 200, len(scores))
        oracle = Oracle(scores, lengths, starts, largest)
        for k in (1, 7, 310):
            indices = oracle.answer(k).indices
            put = TORCH_CPU.put
            assert_certified(
                put(scores),
                put(indices),
                put(oracle.values(indices)),
                lengths=put(lengths),
                row_starts=put(starts),
                largest=largest,
                order="value",
            )

    @pytest.mark.parametrize(
        ("indices", "order", "message"),
        [
            ([2, 0, 1, 0], "any", "padded"),
            ([3, 0], "any", "in range"),
            ([2, 2], "any", "distinct"),
            ([2, 1], "any", "the right set"),
            ([2, 0], "index", "in order"),
            ([0, 2], "value", "in order"),
        ],
    )
    def test_it_refuses(self, indices: list[int], order: Order, message: str) -> None:
        scores = TORCH_CPU.put(floats(1, 1, 2, 9)[None])
        wrong = TORCH_CPU.put(np.array([indices], np.int32))
        lengths = TORCH_CPU.put(np.array([3]))
        with pytest.raises(AssertionError, match=message):
            assert_certified(scores, wrong, lengths=lengths, order=order)

    def test_it_compares_values_by_bits(self) -> None:
        zeros = TORCH_CPU.put(floats(-0.0, 0.0)[None])
        both = TORCH_CPU.put(np.array([[0, 1]], np.int32))
        assert_certified(zeros, both, zeros)
        with pytest.raises(AssertionError, match="right in value"):
            assert_certified(zeros, both, zeros + 0.0)
