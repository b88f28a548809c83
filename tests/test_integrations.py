"""The engines' functions: each against its peer's semantics, written down here from the peers'
signatures, and put into stand-ins for the engines, none of which is installed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import tl_topk
from harness import Target
from tl_topk.integrations import flashinfer, sglang, tilelang, vllm

LENGTHS = [9000, 4000, 65, 64, 63, 1, 0]
ROWS, WIDTH, K = len(LENGTHS), 9000, 64


@pytest.fixture
def scores(engine: Target, rng: np.random.Generator) -> Tensor:
    return engine.put(rng.standard_normal((ROWS, WIDTH)).astype(np.float32))


def ints(engine: Target, numbers: Any) -> Tensor:
    return engine.put(np.asarray(numbers, np.int32))


def best(row: Tensor, k: int = K) -> list[int]:
    """Indices by value, equal ones by index (all scores here are distinct)."""
    return row.cpu().topk(min(k, len(row))).indices.tolist()


def assert_rows(found: Tensor, expected: list[list[int]], *, k: int = K, pad: int = -1) -> None:
    """The same sets, rows no longer than k in order, padding last."""
    assert found.dtype == torch.int32
    assert found.shape == (len(expected), k)
    for row, wanted in zip(found.tolist(), expected, strict=True):
        assert row[len(wanted) :] == [pad] * (k - len(wanted))
        if len(wanted) < k:
            assert row[: len(wanted)] == wanted
        assert sorted(row[: len(wanted)]) == sorted(wanted)


def selected(scores: Tensor, starts: list[int], lengths: list[int]) -> list[list[int]]:
    """Relative to each row's start; rows no longer than k in order."""
    rows = []
    for row, start, length in zip(scores, starts, lengths, strict=True):
        part = row[start : start + max(length, 0)]
        rows.append(list(range(len(part))) if len(part) <= K else best(part))
    return rows


class TestSGLang:
    def test_fast_topk_v2(self, engine: Target, scores: Tensor) -> None:
        found = sglang.fast_topk_v2(scores, ints(engine, LENGTHS), K)
        assert_rows(found, selected(scores, [0] * ROWS, LENGTHS))
        starts, lengths = [7, 0, 8990, 3, 100, 0, 9], [500, 300, 99, 64, 63, 1, -4]
        found = sglang.fast_topk_v2(
            scores, ints(engine, lengths), topk=K, row_starts=ints(engine, starts)
        )
        assert_rows(found, selected(scores, starts, lengths))

    def test_decoding(self, engine: Target, scores: Tensor) -> None:
        pages = torch.randperm(ROWS * WIDTH).view(ROWS, WIDTH).int()
        found = sglang.fast_topk_transform_fused(
            score=scores,
            lengths=ints(engine, LENGTHS),
            page_table_size_1=pages.to(scores.device),
            cu_seqlens_q=ints(engine, range(ROWS + 1)),
            topk=K,
        )
        expected = selected(scores, [0] * ROWS, LENGTHS)
        assert_rows(found, [pages[r, row].tolist() for r, row in enumerate(expected)])

    def test_prefill(self, engine: Target, scores: Tensor) -> None:
        """Requests of 3, 0 and 4 rows, whose keys lie one after another."""
        pages = torch.randperm(3 * 5000).view(3, 5000).int()
        starts, lengths = [0, 0, 0, 4000, 4000, 4000, 4000], [2998, 2999, 3000, 61, 62, 63, 4000]
        found = sglang.fast_topk_transform_fused(
            scores,
            ints(engine, lengths),
            pages.to(scores.device),
            ints(engine, [0, 3, 3, 7]),
            K,
            row_starts=ints(engine, starts),
        )
        expected = selected(scores, starts, lengths)
        requests = [0, 0, 0, 2, 2, 2, 2]
        assert_rows(
            found, [pages[b, row].tolist() for b, row in zip(requests, expected, strict=True)]
        )

    def test_ragged(self, engine: Target, scores: Tensor) -> None:
        offsets = [0, 10, 20, 10**6, 3, 2, 1]
        found = sglang.fast_topk_transform_ragged_fused(
            score=scores,
            lengths=ints(engine, LENGTHS),
            topk_indices_offset=ints(engine, offsets),
            topk=K,
        )
        expected = selected(scores, [0] * ROWS, LENGTHS)
        assert_rows(found, [[i + o for i in row] for row, o in zip(expected, offsets, strict=True)])

    @pytest.mark.parametrize("page_size", [1, 64, 256])
    def test_v4(self, engine: Target, scores: Tensor, page_size: int) -> None:
        pages = torch.randperm(ROWS * WIDTH).view(ROWS, WIDTH)[:, : -(-WIDTH // page_size)].int()
        lengths = ints(engine, LENGTHS)
        out, raw = (scores.new_empty((ROWS, K), dtype=torch.int32) for _ in range(2))
        metadata = sglang.plan_topk_v2(lengths)
        assert metadata.shape == (ROWS + 1, 2)
        assert metadata.dtype == torch.int32
        given = (scores, lengths, pages.to(scores.device), out, page_size, metadata)
        assert sglang.topk_transform_512_v2(*given, out_raw_indices=raw) is None
        expected = selected(scores, [0] * ROWS, LENGTHS)
        assert_rows(raw, expected)
        slots = [
            [int(pages[r, i // page_size]) * page_size + i % page_size for i in row]
            for r, row in enumerate(expected)
        ]
        assert_rows(out, slots)
        sglang.topk_transform_512_v2(scores, lengths, None, out, page_size, None, raw)
        assert_rows(out, expected)
        assert_rows(raw, expected)


class TestVLLM:
    def decode(self, logits: Tensor, next_n: int, seq_lens: Tensor, k: int = K) -> Tensor:
        buffer = logits.new_full((len(logits) + 1, k + 2), -9, dtype=torch.int32)
        vllm.top_k_per_row_decode(
            logits, next_n, seq_lens, buffer, len(logits), logits.stride(0), logits.stride(1), k
        )
        assert (buffer[-1] == -9).all()
        assert (buffer[:, k:] == -9).all()
        return buffer[:-1, :k]

    def test_decode(self, engine: Target, scores: Tensor) -> None:
        expected = selected(scores, [0] * ROWS, LENGTHS)
        assert_rows(self.decode(scores, 1, ints(engine, LENGTHS)), expected)
        assert_rows(self.decode(scores, 1, ints(engine, LENGTHS).unsqueeze(1)), expected)

    def test_speculative(self, engine: Target, scores: Tensor) -> None:
        """Two queries each of three requests."""
        expected = selected(scores[:6], [0] * 6, [8999, 9000, 65, 66, 0, 1])
        assert_rows(self.decode(scores[:6], 2, ints(engine, [9000, 66, 1])), expected)
        own = [[9000, 70], [3, 64], [0, 5]]
        expected = selected(scores[:6], [0] * 6, [n for pair in own for n in pair])
        assert_rows(self.decode(scores[:6], 2, ints(engine, own)), expected)

    def test_prefill(self, engine: Target, scores: Tensor) -> None:
        starts, ends = [0, 10, 4000, 0, 8000, 5, 6], [9000, 300, 4064, 0, 9000, 4, 7]
        out = scores.new_empty((ROWS, K), dtype=torch.int32)
        vllm.top_k_per_row_prefill(
            scores, ints(engine, starts), ints(engine, ends), out, ROWS, WIDTH, 1, K
        )
        lengths = [end - start for start, end in zip(starts, ends, strict=True)]
        assert_rows(out, selected(scores, starts, lengths))

    @pytest.mark.parametrize("function", [vllm.persistent_topk, vllm.cooperative_topk])
    def test_workspace(self, engine: Target, scores: Tensor, function: Any) -> None:
        workspace = torch.full((64,), 7, dtype=torch.uint8, device=scores.device)
        for shape in ((ROWS,), (ROWS, 1)):
            out = scores.new_empty((ROWS, K), dtype=torch.int32)
            function(scores, ints(engine, LENGTHS).view(shape), out, workspace, K, WIDTH)
            assert_rows(out, selected(scores, [0] * ROWS, LENGTHS))
        assert (workspace == 7).all()

    def test_errors(self, engine: Target, scores: Tensor) -> None:
        out = scores.new_empty((ROWS, K), dtype=torch.int32)
        lengths = ints(engine, LENGTHS)

        def refused(name: str, rows: int, stride0: int, stride1: int) -> None:
            with pytest.raises(ValueError, match=rf"^{name}: expected .* got "):
                vllm.top_k_per_row_decode(scores, 1, lengths, out, rows, stride0, stride1, K)

        refused("num_rows", ROWS + 1, WIDTH, 1)
        refused("stride0", ROWS, WIDTH + 1, 1)
        refused("stride1", ROWS, WIDTH, 2)


class TestFlashInfer:
    def test_top_k(self, engine: Target, scores: Tensor) -> None:
        values, indices = flashinfer.top_k(scores, K)
        assert indices.dtype == torch.int64
        assert torch.equal(values, scores.gather(1, indices))
        assert_rows(indices.int(), [best(row) for row in scores])
        values, indices = flashinfer.top_k(scores, K, sorted=True)
        assert indices.tolist() == [best(row) for row in scores]
        _, indices = flashinfer.top_k(scores, K, deterministic=True, tie_break=1)
        assert indices.tolist() == [sorted(best(row)) for row in scores]

    def test_page_table(self, engine: Target, scores: Tensor) -> None:
        pages = torch.randperm(4 * 600).view(4, 600).int()
        requests = [0, 0, 1, 1, 2, 3, 3]
        out, raw = (scores.new_empty((ROWS, K), dtype=torch.int32) for _ in range(2))
        found = flashinfer.top_k_page_table_transform(
            scores,
            pages.to(scores.device),
            ints(engine, LENGTHS),
            K,
            ints(engine, requests),
            page_size=16,
            out=out,
            out_raw_indices=raw,
        )
        assert found is out
        expected = selected(scores, [0] * ROWS, LENGTHS)
        assert_rows(raw, expected)
        slots = [
            [int(pages[b, i // 16]) * 16 + i % 16 for i in row]
            for b, row in zip(requests, expected, strict=True)
        ]
        assert_rows(out, slots)

    def test_row_starts(self, engine: Target, scores: Tensor) -> None:
        """They shift the table by as many entries, or it has starts of its own."""
        pages = torch.randperm(ROWS * WIDTH).view(ROWS, WIDTH).int()
        starts, lengths = [7, 0, 8990, 3, 100, 0, 9], [500, 300, 10, 64, 63, 1, 0]
        expected = selected(scores, starts, lengths)
        given = (scores, pages.to(scores.device), ints(engine, lengths), K)
        both = {"row_starts": ints(engine, starts), "page_table_row_starts": ints(engine, [2] * 7)}
        found = flashinfer.top_k_page_table_transform(*given, row_starts=both["row_starts"])
        assert_rows(
            found,
            [[int(pages[r, starts[r] + i]) for i in row] for r, row in enumerate(expected)],
        )
        found = flashinfer.top_k_page_table_transform(*given, **both, page_size=4)
        assert_rows(
            found,
            [
                [int(pages[r, 2 + i // 4]) * 4 + i % 4 for i in row]
                for r, row in enumerate(expected)
            ],
        )
        with pytest.raises(ValueError, match=r"^page_table_row_starts: expected"):
            flashinfer.top_k_page_table_transform(
                *given, row_starts=both["row_starts"], page_size=4
            )

    def test_ragged(self, engine: Target, scores: Tensor) -> None:
        offsets = [0, 10, 20, 10**6, 3, 2, 1]
        found = flashinfer.top_k_ragged_transform(
            scores, ints(engine, offsets), ints(engine, LENGTHS), K, deterministic=True
        )
        expected = selected(scores, [0] * ROWS, LENGTHS)
        assert_rows(found, [[i + o for i in row] for row, o in zip(expected, offsets, strict=True)])
        assert all(row == sorted(row) for row in found[:2].tolist())

    def test_errors(self, scores: Tensor) -> None:
        with pytest.raises(ValueError, match=r"^tie_break: expected"):
            flashinfer.top_k(scores, K, tie_break=2)
        with pytest.raises(ValueError, match=r"^k: expected"):
            flashinfer.top_k(scores, WIDTH + 1)


class TestTileLang:
    def test_absolute_and_zero_padded(self, engine: Target, scores: Tensor) -> None:
        starts, ends = [0, 10, 4000, 0, 8000, 5, 6], [9000, 300, 4064, 0, 9000, 4, 7]
        lengths = [end - start for start, end in zip(starts, ends, strict=True)]
        expected = [
            [i + start for i in row]
            for row, start in zip(selected(scores, starts, lengths), starts, strict=True)
        ]
        given = scores, ints(engine, starts), ints(engine, ends)
        assert_rows(tilelang.tl_topk(*given, K), expected, pad=0)
        index = scores.new_empty((ROWS, K), dtype=torch.int32)
        tilelang.tl_topk_impl(K)(scores, index, *given[1:])
        assert_rows(index, expected, pad=0)
        with pytest.raises(ValueError, match=r"^out_dtype: expected"):
            tilelang.tl_topk_impl(K, out_dtype="int64")


@pytest.mark.parametrize("order", ["any"])
def test_rows_no_longer_than_k_are_listed_in_order(engine: Target, order: str) -> None:
    """What engines rely on, although the contract leaves it open."""
    for width, k in ((5, 9), (2048, 2048), (9000, 9000), (20000, 30000)):
        found = tl_topk.topk_indices(engine.put(np.zeros((2, width), np.float32)), k, order=order)
        assert (engine.get(found)[:, :width] == np.arange(width)).all()


class TestInstall:
    """Stand-ins for engines, with the signatures of peers.md."""

    @pytest.fixture
    def module(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ModuleType]:
        def make(name: str, code: str) -> ModuleType:
            made = ModuleType(name)
            monkeypatch.setitem(sys.modules, name, made)
            exec(code, made.__dict__)
            return made

        return make

    SGL = """
def fast_topk_v2(score, lengths, topk, row_starts=None): return "theirs"
def fast_topk_transform_fused(
    score, lengths, page_table_size_1, cu_seqlens_q, topk, row_starts=None): return "theirs"
def fast_topk_transform_ragged_fused(
    score, lengths, topk_indices_offset, topk, row_starts=None): return "theirs"
"""

    def test_sglang(self, module: Callable[..., ModuleType]) -> None:
        kernels = module("sgl_kernel", self.SGL)
        user = module("sglang_user", "from sgl_kernel import fast_topk_v2 as select")
        scores, lengths = torch.randn(1, 9), torch.tensor([9])
        with sglang.install():
            assert user.select(scores, lengths, 2).shape == (1, 2)
            assert kernels.fast_topk_transform_fused is sglang.fast_topk_transform_fused
        assert user.select(scores, lengths, 2) == "theirs"
        assert kernels.fast_topk_transform_fused(1, 2, 3, 4, 5) == "theirs"

    def test_sglang_v4(self, module: Callable[..., ModuleType]) -> None:
        module("sgl_kernel", self.SGL)
        jit = module(
            "sglang_jit",
            "def plan_topk_v2(seq_lens, static_threshold=0): return 'theirs'\n"
            "def topk_transform_512_v2(scores, seq_lens, page_tables, out_page_indices, page_size,"
            " metadata): return 'theirs'",  # as it was before raw indices
        )
        with sglang.install(jit_module="sglang_jit"):
            assert jit.topk_transform_512_v2 is sglang.topk_transform_512_v2
        assert jit.plan_topk_v2(1) == "theirs"

    def test_another_version(self, module: Callable[..., ModuleType]) -> None:
        changed = self.SGL.replace("(score, lengths, topk, row", "(score, topk, lengths, row")
        kernels = module("sgl_kernel", changed)
        before = dict(kernels.__dict__)
        message = r"sgl_kernel\.fast_topk_v2: expected the signature \(score.* got \(score, topk"
        with pytest.raises(ValueError, match=message), sglang.install():
            pass
        assert kernels.__dict__ == before
        more = self.SGL.replace("lengths, topk, row_starts=None)", "lengths, topk, best=1)", 1)
        module("sgl_kernel", more)
        with pytest.raises(ValueError, match="fast_topk_v2"), sglang.install():
            pass
        module("sgl_kernel", "")
        with pytest.raises(ValueError, match="none of them"), sglang.install():
            pass

    @pytest.mark.parametrize("engine_", [sglang, vllm, flashinfer, tilelang])
    def test_not_there(self, engine_: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("sgl_kernel", "vllm", "vllm._custom_ops", "flashinfer", "topk_selector"):
            monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(ImportError, match="importable"), engine_.install():
            pass

    def test_flashinfer(self, module: Callable[..., ModuleType]) -> None:
        package = module("flashinfer", "")
        code = (
            "def top_k(input, k, sorted=False): return 'theirs'\n"
            "def top_k_page_table_transform(input, src_page_table, lengths, k, row_to_batch=None,"
            " *, page_size=1, out=None, out_raw_indices=None): return 'theirs'\n"
            "topk = top_k"
        )
        inner = module("flashinfer.topk", code)
        package.top_k = inner.top_k  # type: ignore[attr-defined]
        with flashinfer.install():
            assert package.top_k is inner.topk is flashinfer.top_k
        assert package.top_k(1, 2) == inner.topk(1, 2) == "theirs"

    def test_flashinfer_itself(self) -> None:
        """Where it is installed: 0.7.4 was, when this was written."""
        engine = pytest.importorskip("flashinfer", reason="FlashInfer is not installed")
        theirs = engine.top_k
        scores = torch.randn(2, 100)
        with flashinfer.install():
            assert engine.top_k is engine.topk.top_k is flashinfer.top_k
            values, indices = engine.top_k(scores, 5, sorted=True)
        assert engine.top_k is theirs
        expected = torch.topk(scores, 5)
        assert torch.equal(values, expected.values)
        assert torch.equal(indices, expected.indices)

    def test_tilelang(self, module: Callable[..., ModuleType]) -> None:
        example = module("topk_selector", "def tl_topk(input, starts, ends, topk): return 0")
        with tilelang.install():
            assert example.tl_topk is tilelang.tl_topk
        assert example.tl_topk(1, 2, 3, 4) == 0

    DECODE = (
        "top_k_per_row_decode(Tensor logits, int next_n, Tensor seq_lens, Tensor! indices,"
        " int numRows, int stride0, int stride1, int topK) -> ()"
    )
    PERSISTENT = (
        "persistent_topk(Tensor logits, Tensor lengths, Tensor! output, Tensor workspace, int k,"
        " int max_seq_len) -> ()"
    )

    @pytest.fixture
    def operators(self, module: Callable[..., ModuleType]) -> Iterator[Callable[..., None]]:
        libraries = []
        module("vllm", "")
        module("vllm._custom_ops", "")

        def define(*schemas: str) -> None:
            library = torch.library.Library("_C", "FRAGMENT")
            libraries.append(library)
            for schema in schemas:
                library.define(schema)

        yield define
        for library in libraries:
            library._destroy()
        for name in ("top_k_per_row_decode", "persistent_topk"):
            if name in torch.ops._C.__dict__:
                delattr(torch.ops._C, name)

    def test_vllm(self, operators: Callable[..., None]) -> None:
        operators(self.DECODE, self.PERSISTENT)
        before = torch.ops._C.persistent_topk
        scores, out = torch.randn(2, 9), torch.zeros(2, 3, dtype=torch.int32)
        lengths = torch.tensor([9, 2], dtype=torch.int32)
        with vllm.install():
            torch.ops._C.persistent_topk(scores, lengths, out, None, 3, 9)
            assert out[1].tolist() == [0, 1, -1]
            torch.ops._C.top_k_per_row_decode(scores, 1, lengths, out, 2, 9, 1, 3)
        assert torch.ops._C.persistent_topk is before

    def test_vllm_of_another_version(self, operators: Callable[..., None]) -> None:
        operators(self.PERSISTENT.replace("Tensor workspace, ", ""))
        message = r"persistent_topk: expected the arguments .* got \(logits, lengths, output, k"
        with pytest.raises(ValueError, match=message), vllm.install():
            pass

    def test_vllm_without_them(self, operators: Callable[..., None]) -> None:
        with pytest.raises(ValueError, match=r"torch\.ops\._C: expected one of"), vllm.install():
            pass


def test_importing_adapters_imports_no_engine() -> None:
    for name in ("sgl_kernel", "sglang", "vllm", "flashinfer"):
        assert name not in sys.modules
