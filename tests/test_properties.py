"""Any problem at all: hypothesis draws bit patterns, shapes, layouts, spans, k and options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given, note, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import tl_topk
from harness import GuardedOutput, Target
from reference import DTYPES, ORDERS, PATTERN, Oracle, Order, Raw, bits_of, dtype_of, from_bits

# Zeros, denormals, 1 and its neighbours, the largest finite, infinity, and NaNs of both kinds.
NOTABLE = {
    "float32": (
        *(0, 1, 2, 0x007FFFFF, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x477FE000),
        *(0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF),
    ),
    "float16": (0, 1, 2, 0x3FF, 0x3BFF, 0x3C00, 0x3C01, 0x7BFF, 0x7C00, 0x7C01, 0x7E00, 0x7FFF),
    "bfloat16": (0, 1, 2, 0x7F, 0x3F7F, 0x3F80, 0x3F81, 0x7F7F, 0x7F80, 0x7F81, 0x7FC0, 0x7FFF),
}
SIZES = (1, 31, 32, 33, 127, 128, 129, 512, 1023, 1025, 2047, 2048, 2049, 4096, 4097, 8193, 16_385)
EXTREMES = (-(2**31), 2**31 - 1)
EXTREMES_64 = (-(2**63), 2**63 - 1, 2**32, 2**32 + 1, -(2**32) + 1)


@dataclass(frozen=True)
class Problem:
    oracle: Oracle
    k: int
    order: Order


def patterns(dtype: str) -> st.SearchStrategy[int]:
    sign = 1 << (31 if dtype == "float32" else 15)
    notable = st.sampled_from([bits | s for bits in NOTABLE[dtype] for s in (0, sign)])
    return notable | st.integers(0, 2 * sign - 1)


def sizes(most: int) -> st.SearchStrategy[int]:
    return st.integers(0, 40) | st.sampled_from([n for n in SIZES if n <= most])


@st.composite
def raw_scores(draw: st.DrawFn, dtype: str) -> Raw:
    """Small arrays bit by bit; larger ones as a drawn palette, scattered, ramped or repeated."""
    width = draw(sizes(16_385))
    rows = draw(st.integers(0, 5) if width < 3000 else st.integers(0, 3))
    if width <= 40 and draw(st.booleans()):
        return from_bits(
            draw(arrays(PATTERN[dtype], (rows, width), elements=patterns(dtype))), dtype
        )
    palette = draw(
        arrays(PATTERN[dtype], st.integers(1, 12), elements=patterns(dtype), unique=True)
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scattered = palette[rng.integers(0, len(palette), (rows, width))]
    if draw(st.booleans()):  # near the palette, a few steps away, rather than on it
        steps = draw(st.sampled_from([1, 3, 1000, 2**14]))
        away = rng.integers(0, steps, scattered.shape, endpoint=True)
        scattered = scattered + away.astype(PATTERN[dtype])
    arrangement = draw(st.sampled_from(["scattered", "sorted", "repeated"]))
    if arrangement == "sorted":
        scattered = np.sort(scattered, axis=1)
    elif arrangement == "repeated" and width:
        period = draw(st.integers(1, 200))
        scattered = scattered[:, np.arange(width) % min(period, width)]
    return from_bits(scattered, dtype)


@st.composite
def bounds(draw: st.DrawFn, rows: int, width: int) -> np.ndarray | None:
    """Lengths or starts: mostly near the ends of the row, sometimes far beyond."""
    if draw(st.booleans()):
        return None
    index_type = draw(st.sampled_from([np.int32, np.int64]))
    far = EXTREMES if index_type == np.int32 else EXTREMES + EXTREMES_64
    near = st.integers(-3, 3) | st.integers(width - 3, width + 3) | st.integers(0, max(width, 1))
    return draw(arrays(index_type, rows, elements=near | st.sampled_from(far)))


@st.composite
def problems(draw: st.DrawFn, dtypes: tuple[str, ...] = DTYPES) -> Problem:
    scores = draw(raw_scores(draw(st.sampled_from(dtypes))))
    rows, width = scores.shape
    lengths, starts = draw(bounds(rows, width)), draw(bounds(rows, width))
    if rows == 1 and draw(st.booleans()):
        scores = scores[0]
    k = draw(sizes(4097) | st.integers(max(0, width - 1), width + 5))
    oracle = Oracle(scores, lengths, starts, draw(st.booleans()))
    return Problem(oracle, k, draw(st.sampled_from(ORDERS)))


def solve(target: Target, problem: Problem, scores: Any, out: Any = None) -> tl_topk.TopK:
    return tl_topk.topk(
        scores, problem.k, order=problem.order, out=out, **target.options(problem.oracle)
    )


@settings(max_examples=1000)
@given(data=st.data())
def test_any_problem_in_any_layout(target: Target, data: st.DataObject) -> None:
    """The reference's answer, bit for bit, and nothing written outside the outputs."""
    problem = data.draw(problems(target.dtypes))
    offset, gap = data.draw(st.integers(0, 17)), data.draw(st.integers(0, 9))
    around = data.draw(patterns(dtype_of(problem.oracle.scores)))
    scores = target.place(problem.oracle.scores, offset=offset, gap=gap, around=around)
    shape = (*problem.oracle.scores.shape[:-1], problem.k)
    guarded = GuardedOutput(target, shape, dtype_of(problem.oracle.scores))
    note(f"shape {problem.oracle.scores.shape}, offset {offset}, gap {gap}")
    result = solve(target, problem, scores, guarded.pair)
    target.judge(problem.oracle, problem.k, problem.order, result)
    guarded.assert_guards()


@settings(max_examples=400)
@given(data=st.data())
def test_nothing_outside_a_span_matters(target: Target, data: st.DataObject) -> None:
    """The same answer, slot for slot, with anything at all around the rows and their spans."""
    problem = data.draw(problems(target.dtypes))
    oracle, dtype = problem.oracle, dtype_of(problem.oracle.scores)
    outside = np.ones(oracle.matrix.shape, bool)
    for row, (begin, end) in enumerate(oracle.spans):
        outside[row, begin:end] = False
    answers = []
    for poison in data.draw(st.lists(patterns(dtype), min_size=2, max_size=3, unique=True)):
        poisoned = bits_of(oracle.matrix).copy()
        poisoned[outside] = poison
        raw = from_bits(poisoned.reshape(oracle.scores.shape), dtype)
        scores = target.place(raw, offset=3, gap=5, around=poison)
        result = solve(target, problem, scores)
        target.judge(oracle, problem.k, problem.order, result)
        answers.append(target.get(result.indices))
    if problem.order != "any":
        assert all((answer == answers[0]).all() for answer in answers)


@settings(max_examples=100)
@given(problem=problems())
def test_the_k_smallest_are_the_k_largest_of_the_negated(engine: Target, problem: Problem) -> None:
    """Mirrored rules; NaN, last both ways, loses only its sign."""
    oracle, dtype = problem.oracle, dtype_of(problem.oracle.scores)
    sign = 1 << (31 if dtype == "float32" else 15)
    negated = from_bits(bits_of(oracle.scores) ^ PATTERN[dtype](sign), dtype)
    mirrored = Oracle(negated, oracle.lengths, oracle.row_starts, not oracle.largest)
    order = "value" if problem.order == "any" else problem.order
    one, other = (
        tl_topk.topk_indices(
            engine.put(each.scores), problem.k, order=order, **engine.options(each)
        )
        for each in (oracle, mirrored)
    )
    assert (engine.get(one) == engine.get(other)).all()
