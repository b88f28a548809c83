"""The contract table, row by row, over every backend, score type and order."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

import tl_topk
from harness import NUMPY_CPU, TORCH, TORCH_CPU, GuardedOutput, Target
from reference import DTYPES, ORDERS, STORAGE, Oracle, bits_of, from_bits, quantize
from zoo import matrix, ordinary, special

KS = (0, 1, 2, 31, 32, 33, 255, 512, 1000, 2048, 4096, 4097, 10000)
NARROW = (1, 2, 3, 5, 7, 8, 9, 31, 32, 33, 63, 65, 100, 127, 128, 129, 255, 256, 257, 511, 513)
MIDDLE = (1000, 1023, 1025, 2047, 2048, 2049, 4095, 4096, 4097, 8191, 8192, 8193, 8320)
WIDE = (16383, 16384, 16385, 65535, 65536, 65537, 131072, 262144, 1_048_579)


def normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return quantize(rng.standard_normal(shape), dtype)


def few(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Scores of few values, so that ties are everywhere."""
    return quantize(rng.integers(-3, 4, shape).astype(np.float64), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("largest", [True, False], ids=["largest", "smallest"])
class TestSizes:
    """Scores, k, which elements, the order of slots: at every size that a kernel may stage by."""

    def test_narrow(
        self, engine: Target, dtype: str, largest: bool, rng: np.random.Generator
    ) -> None:
        for width in NARROW:
            scores, labels = matrix(ordinary(width, dtype, rng) | special(width, dtype, rng))
            oracle = Oracle(scores, largest=largest, labels=labels)
            ks = {k for k in KS if k <= 2 * width} | {width - 1, width, width + 5, 600}
            engine.check(oracle, sorted(ks), ORDERS)

    @pytest.mark.parametrize("width", MIDDLE)
    def test_middle(
        self, engine: Target, dtype: str, largest: bool, width: int, rng: np.random.Generator
    ) -> None:
        rows = ordinary(width, dtype, rng) | special(width, dtype, rng)
        scores, labels = matrix(rows)
        oracle = Oracle(scores, largest=largest, labels=labels)
        engine.check(oracle, sorted({*KS, width - 1, width, width + 5}), ORDERS)

    @pytest.mark.parametrize("width", WIDE)
    def test_wide(
        self, engine: Target, dtype: str, largest: bool, width: int, rng: np.random.Generator
    ) -> None:
        rows = {
            "normal": normal(rng, (width,), dtype),
            "few values": few(rng, (width,), dtype),
            "any bits": special(width, dtype, rng)["any bits"],
        }
        scores, labels = matrix(rows)
        oracle = Oracle(scores, largest=largest, labels=labels)
        ks = set(KS) if width < 200_000 else {1, 33, 512, 2048, 4096, 4097, 10000}
        if width < 70_000:
            ks |= {width, width + 5}
        engine.check(oracle, sorted(ks), ("index", "value"))
        engine.check(oracle, (512, 2048), ("any",))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [0, 1, 2, 3, 7, 64, 300])
def test_rows(engine: Target, rows: int, dtype: str, rng: np.random.Generator) -> None:
    for width, ks in ((0, (0, 3)), (1, (0, 1, 4)), (37, (0, 5, 40)), (2500, (0, 1, 512, 2048))):
        for make in (normal, few):
            engine.check(Oracle(make(rng, (rows, width), dtype)), ks, ORDERS)


def test_many_rows_more_than_any_grid_dimension(engine: Target, rng: np.random.Generator) -> None:
    """65,535 is the limit of two of the three dimensions of a grid."""
    engine.check(Oracle(few(rng, (70_000, 9), "float32")), (4,), ("index",))


@pytest.mark.parametrize("width", [0, 1, 2, 100, 2049, 70_001])
def test_one_dimension(target: Target, width: int, rng: np.random.Generator) -> None:
    """1-D in, 1-D out, with lengths and starts of shape (1,)."""
    for dtype in target.dtypes:
        scores = few(rng, (width,), dtype)
        for lengths, starts in ((None, None), ([width // 2], None), ([width], [width // 3])):
            oracle = Oracle(
                scores,
                None if lengths is None else np.array(lengths, np.int32),
                None if starts is None else np.array(starts, np.int64),
            )
            target.check(oracle, (0, 1, 33, 2048, width, width + 5), ORDERS)


class TestLayout:
    """Unit stride in the last dimension; any row stride, any base alignment, odd widths."""

    @pytest.mark.parametrize("width", [1, 5, 127, 1030, 4099, 33_001])
    def test_offsets_and_gaps(self, target: Target, width: int, rng: np.random.Generator) -> None:
        for dtype in target.dtypes:
            oracle = Oracle(few(rng, (3, width), dtype))
            inf = oracle.padding_bits ^ (1 << (31 if dtype == "float32" else 15))
            for offset in (0, 1, 2, 3, 4, 5, 7, 8, 9, 15):
                for gap in (0, 1, 3, 4, 8, 13):
                    scores = target.place(oracle.scores, offset=offset, gap=gap, around=inf)
                    target.check(oracle, (7, 512), ("index",), scores)

    @pytest.mark.parametrize("stride", [0, 1, 50])
    def test_rows_that_overlap(self, target: Target, stride: int, rng: np.random.Generator) -> None:
        """A row stride below the width, as expand and sliding windows make."""
        rows, width = 5, 333
        for dtype in target.dtypes:
            flat = normal(rng, (width + rows * stride,), dtype)
            windows = np.stack([flat[stride * r : stride * r + width] for r in range(rows)])
            view = target.view(target.put(flat), (rows, width), (stride, 1), 0)
            target.check(Oracle(windows), (1, 40, 400), ORDERS, view)

    def test_every_other_row_and_a_column_slice(
        self, target: Target, rng: np.random.Generator
    ) -> None:
        scores = normal(rng, (9, 700), "float32")
        view = target.put(scores)[1::2, 33:602]
        target.check(Oracle(scores[1::2, 33:602]), (1, 40, 600), ORDERS, view)

    def test_numpy_rows_upside_down(self, rng: np.random.Generator) -> None:
        """A negative row stride is a row stride."""
        scores = normal(rng, (4, 100), "float32")
        target = NUMPY_CPU
        target.check(Oracle(scores[::-1]), (1, 40), ORDERS, scores[::-1])

    def test_read_only_numpy(self, rng: np.random.Generator) -> None:
        """As np.load(mmap_mode="r") gives; scores are only read."""
        scores = normal(rng, (4, 100), "float32")
        scores.flags.writeable = False
        NUMPY_CPU.check(Oracle(scores), (1, 40), ORDERS, scores)

    @pytest.mark.parametrize("dtype", ["float32", "float16"])
    def test_more_than_2_32_elements_apart(
        self, dtype: str, rng: np.random.Generator, tmp_path: Path
    ) -> None:
        """64-bit offsets, in a sparse file of which only the rows exist."""
        stride, width = 2**31 + 5, 3001
        file = tmp_path / "sparse"
        flat = np.memmap(file, STORAGE[dtype], "w+", shape=(2 * stride + width,))
        target = NUMPY_CPU
        view = target.view(flat, (3, width), (stride, 1), 0)
        view[:] = few(rng, (3, width), dtype)
        target.check(Oracle(np.array(view)), (1, 2048), ORDERS, view)


class TestSpans:
    """lengths and row_starts: clamped, signed, 64 bits wide, and nothing outside is selected."""

    LENGTHS = (-(2**31), -4, -1, 0, 1, 2, 31, 32, 33, 512, 699, 700, 701, 2**31 - 1)
    STARTS = (-(2**31), -5, -1, 0, 1, 2, 3, 64, 350, 698, 699, 700, 701, 2**31 - 1)

    @pytest.mark.parametrize("index_type", [np.int32, np.int64])
    @pytest.mark.parametrize("largest", [True, False], ids=["largest", "smallest"])
    def test_all_pairs(
        self, target: Target, index_type: type, largest: bool, rng: np.random.Generator
    ) -> None:
        lengths, starts = (
            grid.ravel().astype(index_type) for grid in np.meshgrid(self.LENGTHS, self.STARTS)
        )
        if index_type is np.int64:
            wide = {-(2**31): -(2**63), 2**31 - 1: 2**63 - 1}
            lengths = np.array([wide.get(n, n) for n in lengths.tolist()])
            starts = np.array([wide.get(n, n) for n in starts.tolist()])
        labels = [f"length {n}, start {s}" for n, s in zip(lengths, starts, strict=True)]
        for dtype in target.dtypes:
            scores = few(rng, (len(lengths), 700), dtype)
            for some_lengths, some_starts in ((lengths, starts), (lengths, None), (None, starts)):
                oracle = Oracle(scores, some_lengths, some_starts, largest, labels)
                target.check(oracle, (0, 1, 40, 512, 705), ORDERS)

    def test_sums_in_64_bits(self, target: Target, rng: np.random.Generator) -> None:
        """Starts and lengths whose sum, or whose low 32 bits, would lie inside the row."""
        lengths = np.array([2**32 + 3, 2**32, 5, -(2**32) + 5, 2**63 - 1, 2**33, 2**63 - 1])
        starts = np.array([0, 7, 2**32 + 1, 0, 2, -(2**40), 2**63 - 1])
        oracle = Oracle(normal(rng, (7, 90), "float32"), lengths, starts)
        target.check(oracle, (1, 40, 95), ORDERS)

    def test_types_may_differ(self, target: Target, rng: np.random.Generator) -> None:
        lengths, starts = np.array([50, 3], np.int32), np.array([9, 80], np.int64)
        oracle = Oracle(normal(rng, (2, 90), "float32"), lengths, starts)
        target.check(oracle, (1, 40), ORDERS)

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("poison", ["inf", "nan", "huge", "-inf"])
    def test_long_rows_surrounded(
        self, engine: Target, dtype: str, poison: str, rng: np.random.Generator
    ) -> None:
        """Better, and worse, elements just outside of long spans change nothing."""
        width = 50_000
        lengths = np.array([4095, 4096, 4097, 20_000, 33_333, 49_990, 49_999, 50_000])
        starts = np.array([1, 3, 4096, 12_345, 16_667, 5, 1, 0])
        good = {"inf": np.inf, "nan": np.nan, "huge": 6e4, "-inf": -np.inf}[poison]
        scores = np.full((8, width), quantize(np.array([good]), dtype)[0])
        for row, (start, length) in enumerate(zip(starts, lengths, strict=True)):
            scores[row, start : start + length] = normal(rng, (length,), dtype)
        for largest in (True, False):
            oracle = Oracle(scores, lengths, starts, largest)
            engine.check(oracle, (1, 512, 2048, 5000), ("index",))


def test_lengths_around_every_staging_size(engine: Target, rng: np.random.Generator) -> None:
    """One batch, each row of another length: powers of two and multiples of 512 to 4096, +-1."""
    sizes = {2**p for p in range(15)} | {m * n for m in (512, 1024, 4096) for n in range(1, 16)}
    lengths = np.array(sorted({max(0, n + d) for n in sizes for d in (-1, 0, 1)}))
    width = int(lengths.max()) + 3
    for make in (normal, few):
        oracle = Oracle(make(rng, (len(lengths), width), "float32"), lengths)
        engine.check(oracle, (512, 2048), ("index", "any"))


class TestOutputs:
    def test_kinds(self, target: Target, rng: np.random.Generator) -> None:
        """Arrays of the library and device of the scores; a named pair."""
        for dtype in target.dtypes:
            scores = target.put(normal(rng, (2, 50), dtype))
            result = tl_topk.topk(scores, 5, backend=target.backend)
            values, indices = result
            assert isinstance(result, tl_topk.TopK)
            assert result.values is values
            assert result.indices is indices
            assert type(values) is type(indices) is type(scores)
            assert values.dtype == scores.dtype
            assert type(tl_topk.topk_indices(scores, 5, backend=target.backend)) is type(scores)
            if target.library == "torch":
                assert values.device == indices.device == scores.device
                assert indices.dtype == torch.int32

    @pytest.mark.parametrize("shape", [(50,), (1, 50), (3, 50), (3, 5000), (0, 50), (2, 0)])
    def test_out(self, target: Target, shape: tuple[int, ...], rng: np.random.Generator) -> None:
        """Results land in `out`, which is returned, and nowhere else."""
        for dtype in target.dtypes:
            oracle = Oracle(few(rng, shape, dtype))
            scores, options = target.put(oracle.scores), target.options(oracle)
            for k in (0, 1, 7, 60, 2048):
                for order in ORDERS:
                    guarded = GuardedOutput(target, (*shape[:-1], k), dtype)
                    out = guarded.pair if order == "any" else tl_topk.TopK(*guarded.pair)
                    result = tl_topk.topk(scores, k, order=order, out=out, **options)
                    assert result.values is guarded.pair[0]
                    assert result.indices is guarded.pair[1]
                    target.judge(oracle, k, order, result)
                    guarded.assert_guards()
                    guarded = GuardedOutput(target, (*shape[:-1], k), dtype)
                    out = guarded.pair[1]
                    assert tl_topk.topk_indices(scores, k, order=order, out=out, **options) is out
                    guarded.assert_guards()

    def test_the_scores_are_left_alone(self, target: Target, rng: np.random.Generator) -> None:
        for dtype in target.dtypes:
            raw = special(3000, dtype, rng)["any bits"]
            scores = target.put(raw)
            tl_topk.topk(scores, 600, backend=target.backend)
            assert (bits_of(target.get(scores)) == bits_of(raw)).all()

    def test_k_may_be_any_integer(self, target: Target) -> None:
        scores = target.put(np.array([1, 3, 2], np.float32))
        result = tl_topk.topk(scores, np.int64(2), order="value", backend=target.backend)
        assert target.get(result.indices).tolist() == [1, 2]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("largest", [True, False], ids=["largest", "smallest"])
def test_every_16_bit_pattern(
    engine: Target, dtype: str, largest: bool, rng: np.random.Generator
) -> None:
    """All 2^16 scores in one row: the whole order of the type, and every bit copied."""
    scores = from_bits(rng.permutation(2**16), dtype)
    oracle = Oracle(scores, largest=largest)
    engine.check(oracle, (1, 2048, 40_000, 2**16), ("value", "index"))


def test_values_keep_their_bits(engine: Target) -> None:
    """Zeros keep their sign, NaNs their sign and payload, signalling ones too."""
    for dtype in DTYPES:
        top = {"float32": 0x7F800000, "float16": 0x7C00, "bfloat16": 0x7F80}[dtype]
        sign = 0x80000000 if dtype == "float32" else 0x8000
        magnitudes = [0, 1, top - 1, top, top + 1, top + 5, 2 * sign - 1 & ~sign]
        patterns = np.array([bits | s for s in (0, sign) for bits in magnitudes])
        for largest in (True, False):
            oracle = Oracle(from_bits(patterns, dtype), largest=largest)
            engine.check(oracle, (14, 20), ORDERS)


class TestSetIsUnique:
    """The same row gives the same answer whatever is around it."""

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_alone_in_a_batch_and_padded(
        self, engine: Target, dtype: str, rng: np.random.Generator
    ) -> None:
        row = few(rng, (6000,), dtype)
        alone = Oracle(row)
        expected = alone.answer(700).indices[0]
        for rows in (1, 2, 17, 140):
            for width in (6000, 6001, 20_000, 70_000):
                if rows * width > 3_000_000:
                    continue
                scores = few(rng, (rows, width), dtype)
                scores[:, :6000] = row
                lengths = engine.put(np.full(rows, 6000))
                indices = tl_topk.topk_indices(
                    engine.put(scores), 700, lengths=lengths, order="value", backend=engine.backend
                )
                assert (engine.get(indices) == expected).all(), (rows, width)

    def test_run_to_run(self, engine: Target, rng: np.random.Generator) -> None:
        scores = engine.put(few(rng, (5, 40_000), "float32"))
        for order in ("index", "value"):
            first = engine.get(tl_topk.topk_indices(scores, 2048, order=order))
            for _ in range(20):
                again = engine.get(tl_topk.topk_indices(scores, 2048, order=order))
                assert (again == first).all()


def test_threads_do_not_disturb_one_another(target: Target, rng: np.random.Generator) -> None:
    """Eight Python threads, all in the library at once, half of them on one same problem."""
    same = Oracle(few(rng, (3, 9000), "float32"))
    oracles = [same] * 4 + [Oracle(few(rng, (2, n), "float32")) for n in (50, 9000, 9001, 40_000)]

    def work(oracle: Oracle) -> None:
        for _ in range(20):
            target.check(oracle, (600, 2048), ("index", "value"))

    with ThreadPoolExecutor(len(oracles)) as pool:
        for done in [pool.submit(work, oracle) for oracle in oracles]:
            done.result()


def test_backends_agree(rng: np.random.Generator) -> None:
    """auto is one of the backends, with the same answer."""
    scores = few(rng, (3, 5000), "float32")
    oracle = Oracle(scores)
    for given in (scores, torch.from_numpy(scores)):
        result = tl_topk.topk(given, 600, order="value")
        TORCH_CPU.judge(oracle, 600, "value", result)


class TestGradient:
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_values_are_a_gather(
        self, engine: Target, dtype: str, rng: np.random.Generator
    ) -> None:
        """Gradients reach the selected scores, none comes from padding, nor to the rest."""
        raw = normal(rng, (3, 40), dtype)
        lengths, starts = np.array([40, 3, 0]), np.array([4, 30, 0])
        oracle = Oracle(raw, lengths, starts)
        scores = engine.put(raw).requires_grad_()
        result = tl_topk.topk(scores, 6, order="value", **engine.options(oracle))
        engine.judge(oracle, 6, "value", result)
        weights = torch.arange(1, 19, device=scores.device, dtype=torch.float32).reshape(3, 6)
        weights = weights.to(TORCH[dtype])
        (scores_grad,) = torch.autograd.grad(result.values, scores, weights)
        expected = np.zeros((3, 40))
        for row, best in enumerate(oracle.answer(6).indices):
            for slot, index in enumerate(best):
                if index >= 0:
                    expected[row, starts[row] + index] = 6 * row + slot + 1
        assert scores_grad.dtype == scores.dtype
        assert np.array_equal(scores_grad.float().cpu().numpy(), expected)
        assert not result.indices.requires_grad

    def test_one_dimension(self, engine: Target) -> None:
        scores = engine.put(np.array([1, 5, 3], np.float32)).requires_grad_()
        tl_topk.topk(scores, 2, backend=engine.backend).values.sum().backward()
        assert scores.grad is not None
        assert scores.grad.tolist() == [0, 1, 1]

    def test_no_gradient_where_none_is_asked_for(self, engine: Target) -> None:
        scores = engine.put(np.array([1, 5, 3], np.float32)).requires_grad_()
        with torch.no_grad():
            assert not tl_topk.topk(scores, 2, backend=engine.backend).values.requires_grad
        assert not tl_topk.topk_indices(scores, 2, backend=engine.backend).requires_grad
        assert not tl_topk.topk(scores.detach(), 2, backend=engine.backend).values.requires_grad


class TestPlan:
    """A plan answers as the functions do."""

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_run(self, engine: Target, dtype: str, rng: np.random.Generator) -> None:
        rows, width, k = 4, 9001, 600
        for order in ORDERS:
            for largest in (True, False):
                plan = tl_topk.TopKPlan(
                    rows, width, k, dtype, order, largest, True, engine.device, 0, 0
                )
                for lengths in (None, np.array([0, 5, 700, 9001], np.int32)):
                    oracle = Oracle(few(rng, (rows, width), dtype), lengths, None, largest)
                    guarded = GuardedOutput(engine, (rows, k), dtype)
                    values, indices = guarded.pair
                    plan.run(
                        engine.put(oracle.scores),
                        indices,
                        values,
                        None if lengths is None else engine.put(lengths),
                    )
                    engine.judge(oracle, k, order, tl_topk.TopK(values, indices))
                    guarded.assert_guards()

    @pytest.mark.parametrize("threads", [1, 2, 3, 7, 64])
    def test_any_number_of_threads(self, threads: int, rng: np.random.Generator) -> None:
        """However rows, or parts of one row, are dealt to threads, the answer is the same."""
        for rows, width in ((1, 300_007), (2, 150_001), (5, 40_000), (33, 9001), (3, 60)):
            plain = quantize(rng.standard_normal((rows, width)), "float32")
            for scores in (plain, np.maximum(plain - 2, 0), few(rng, (rows, width), "float32")):
                oracle = Oracle(scores)
                for k, order in ((2048, "index"), (512, "value"), (5000, "index")):
                    plan = tl_topk.TopKPlan(
                        rows, width, k, "float32", order, True, True, "cpu", 0, threads
                    )
                    values, indices = GuardedOutput(TORCH_CPU, (rows, k), "float32").pair
                    plan.run(TORCH_CPU.put(scores), indices, values)
                    TORCH_CPU.judge(oracle, k, order, tl_topk.TopK(values, indices))
