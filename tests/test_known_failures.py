"""Inputs on which other top-k kernels failed in the field, one test for each numbered class.

Classes 14 to 21 that need a GPU's streams, graphs or memory are in tests/gpu. Class 18 belongs
to compute-sanitizer, 22 and 23 to the launcher and the toolkit.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tl_topk
from certificate import assert_certified
from harness import Target
from reference import DTYPES, ORDERS, Oracle, quantize
from zoo import matrix, plateaus, special, ulps_above


def test_01_bfloat16_of_64_levels(engine: Target) -> None:
    row = (np.arange(65536) % 64) / 64
    oracle = Oracle(quantize(np.stack([row] * 4), "bfloat16"))
    scores = engine.put(oracle.scores)
    engine.check(oracle, (1024,), ORDERS, scores)
    assert (tl_topk.topk(scores, 1024, backend=engine.backend).values == 0.984375).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_02_a_narrow_range(engine: Target, dtype: str, rng: np.random.Generator) -> None:
    for width in (16384, 16385):
        oracle = Oracle(quantize(1 + 0.2449 * rng.random((33, width)), dtype))
        engine.check(oracle, (512, 1024, 2048), ("index",))


@pytest.mark.parametrize(("rows", "width"), [(64, 262144), (64, 1048576)])
def test_03_many_long_normal_rows(engine: Target, rows: int, width: int) -> None:
    """A buffer of 4096 candidates is too small for some row."""
    if engine.device == "cpu" and width > 300_000:
        rows = 8  # 256 MiB for nothing: the CPU has no such buffer
    generator = torch.Generator(engine.device).manual_seed(3)
    scores = torch.randn(rows, width, generator=generator, device=engine.device)
    values, indices = tl_topk.topk(scores, 2048, backend=engine.backend)
    assert_certified(scores, indices, values)


@pytest.mark.parametrize("distinct", [2049, 4097, 8193, 16385, 40_000])
def test_04_more_distinct_floats_in_a_bin_than_a_buffer_holds(
    engine: Target, distinct: int, rng: np.random.Generator
) -> None:
    width = 65_536
    rows = {}
    for name, filling in (("low rest", -1e3), ("spread rest", None), ("nearly all", 0.999)):
        row = rng.uniform(-1e3, 0.5, width) if filling is None else np.full(width, filling)
        raw = quantize(row, "float32")
        where = rng.choice(width, distinct, replace=False)
        raw[where] = ulps_above(1.0, rng.permutation(distinct), "float32")
        rows[name] = raw
        high = raw.copy()
        high[rng.choice(np.setdiff1d(np.arange(width), where), 20, replace=False)] = 1e3
        rows[name + " and high outliers"] = high
    scores, labels = matrix(rows)
    for largest in (True, False):
        oracle = Oracle(scores, largest=largest, labels=labels)
        engine.check(oracle, (512, 1024, 2048, 4096), ("index", "value"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [16384, 16448, 32768])
def test_05_monotonic_rows(engine: Target, dtype: str, width: int) -> None:
    up = np.linspace(-4, 4, width)
    integers = np.arange(width, dtype=np.float64) - width // 2
    scores = quantize(np.stack([up, -up, integers, -integers]), dtype)
    for largest in (True, False):
        oracle = Oracle(scores, largest=largest, labels=["up", "down", "integers", "integers down"])
        engine.check(oracle, (1, 512, 2048), ORDERS)


@pytest.mark.parametrize("dtype", DTYPES)
def test_06_ties_of_the_kth_value(engine: Target, dtype: str, rng: np.random.Generator) -> None:
    width, tied = 200_000, 131_075
    row = np.concatenate([np.full(tied, 1.0), rng.uniform(-1, 0.5, width - tied)])
    few_above = row.copy()
    few_above[:300] = 2.0
    scores = quantize(
        np.stack([row, row[::-1], rng.permutation(row), rng.permutation(few_above)]), dtype
    )
    engine.check(Oracle(scores), (512, 2048), ORDERS)


@pytest.mark.parametrize("dtype", DTYPES)
def test_07_infinities(engine: Target, dtype: str, rng: np.random.Generator) -> None:
    for width in (100, 3000, 20_000):
        one = rng.standard_normal(width)
        one[width // 2] = np.inf
        many = np.where(rng.random(width) < 0.3, np.inf, one)
        scores = quantize(
            np.stack([one, many, -one, rng.choice([np.inf, -np.inf], width), many * np.inf]), dtype
        )
        for largest in (True, False):
            engine.check(Oracle(scores, largest=largest), (1, 33, 2048), ORDERS)


@pytest.mark.parametrize("dtype", DTYPES)
def test_08_huge_and_tiny(engine: Target, dtype: str, rng: np.random.Generator) -> None:
    for width in (3000, 20_000):
        rows = special(width, dtype, rng)
        names = ("denormals", "-1e5 to -1e30", "beyond 65504", "any bits")
        scores, labels = matrix({name: rows[name] for name in names})
        for largest in (True, False):
            oracle = Oracle(scores, largest=largest, labels=labels)
            engine.check(oracle, (1, 512, 2048), ORDERS)


@pytest.mark.parametrize("dtype", DTYPES)
def test_09_winners_and_zeros(engine: Target, dtype: str, rng: np.random.Generator) -> None:
    row = np.zeros(8320)
    winners = rng.choice(8320, 100, replace=False)
    row[winners] = rng.uniform(1, 2, 100)
    oracle = Oracle(quantize(row, dtype))
    engine.check(oracle, (2048,), ORDERS)
    indices = engine.get(
        tl_topk.topk_indices(engine.put(oracle.scores), 2048, backend=engine.backend)
    )
    assert len(set(indices.tolist())) == 2048
    assert set(winners.tolist()) <= set(indices.tolist())
    for width in (8320, 20_000, 70_000):
        scores, labels = matrix(plateaus(width, 2048, dtype, rng))
        engine.check(Oracle(scores, labels=labels), (2048,), ORDERS)


@pytest.mark.parametrize("dtype", DTYPES)
def test_10_nan(engine: Target, dtype: str, rng: np.random.Generator) -> None:
    for width in (50, 3000, 20_000):
        normal = rng.standard_normal(width)
        share = np.array([[0.01], [0.5], [0.99], [1.0]])
        scores = quantize(np.where(rng.random((4, width)) < share, np.nan, normal), dtype)
        scores = np.concatenate([scores, special(width, dtype, rng)["all NaN, any payload"][None]])
        for largest in (True, False):
            engine.check(Oracle(scores, largest=largest), (1, 40, 2048, width), ORDERS)


@pytest.mark.parametrize("dtype", DTYPES)
def test_11_row_starts_of_long_rows(engine: Target, dtype: str, rng: np.random.Generator) -> None:
    for width in (5000, 16_385, 70_000):
        starts = np.array([1, 7, 129, 700], np.int32)
        scores = quantize(rng.standard_normal((4, width)), dtype)
        lengths = width - starts - np.array([0, 5, 0, 64], np.int32)
        engine.check(Oracle(scores, lengths, starts), (512, 2048), ORDERS)
        single = Oracle(scores[:1], lengths[:1], np.array([333], np.int32))
        engine.check(single, (512, 2048), ORDERS)


@pytest.mark.parametrize("index_type", [np.int32, np.int64])
def test_12_lengths_below_one(engine: Target, index_type: type, rng: np.random.Generator) -> None:
    for width in (30, 5000, 20_000):
        lengths = np.arange(-4, 2).astype(index_type)
        oracle = Oracle(rng.standard_normal((6, width)).astype(np.float32), lengths)
        engine.check(oracle, (1, 512, 2048), ORDERS)


@pytest.mark.parametrize("dtype", DTYPES)
def test_13_better_scores_just_past_the_length(
    engine: Target, dtype: str, rng: np.random.Generator
) -> None:
    width = 20_000
    for tail in (6e4, np.inf, np.nan):
        lengths = np.array([1, 31, 2047, 2048, 2049, 4095, 8191, 16_384, 16_385, 19_999])
        inside = np.arange(width) < lengths[:, None]
        scores = quantize(np.where(inside, rng.standard_normal((10, width)), tail), dtype)
        engine.check(Oracle(scores, lengths), (1, 512, 2048), ORDERS)


def test_24_several_k_in_one_process(engine: Target, rng: np.random.Generator) -> None:
    """A kernel compiled for one k must not run in place of that for another."""
    oracle = Oracle(rng.standard_normal((2, 20_000)).astype(np.float32))
    engine.check(oracle, (512, 2048, 1024, 512, 100, 2048, 4096, 1024), ("index", "any"))


@pytest.mark.parametrize("dtype", DTYPES)
def test_25_the_same_row_wherever_it_lies(
    engine: Target, dtype: str, rng: np.random.Generator
) -> None:
    width, k = 30_000, 2048
    row = quantize(np.maximum(rng.standard_normal(width) - 1.8, 0), dtype)
    expected = Oracle(row).answer(k).indices[0]

    def indices(scores: np.ndarray, lengths: np.ndarray | None = None) -> np.ndarray:
        options = {} if lengths is None else {"lengths": engine.put(lengths)}
        found = tl_topk.topk_indices(
            engine.put(scores), k, order="value", backend=engine.backend, **options
        )
        return engine.get(found)

    assert (indices(row) == expected).all()
    assert (indices(np.stack([row] * 40)) == expected).all()
    padded = np.full((3, 80_000), quantize(np.array([np.inf]), dtype)[0])
    padded[:, :width] = row
    assert (indices(padded, np.full(3, width)) == expected).all()
    assert (indices(row) == expected).all()
