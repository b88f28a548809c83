"""Calls that map what they select, with arguments that they refuse or must not trust."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import tl_topk
from harness import Target
from test_mapped import mapping


@pytest.fixture
def target(target: Target) -> Target:
    """Each that maps what it selects."""
    return mapping(target)


class TestErrors:
    """Refused by name, with nothing written."""

    ROWS, WIDTH, K = 4, 300, 6

    @pytest.fixture
    def canary(self, target: Target) -> Iterator[Any]:
        out = target.put(np.full((self.ROWS, self.K), -9, np.int32))
        yield out
        assert (target.get(out) == -9).all()

    def paged(self, target: Target, out: Any, name: str, **given: Any) -> None:
        options = {"page_size": 16, "page_table": np.zeros((self.ROWS, 19), np.int32)} | given
        arrays = {
            # As they are for NumPy: a copy would have other strides and memory.
            key: target.put(value)
            if isinstance(value, np.ndarray) and target.library != "numpy"
            else value
            for key, value in options.items()
        }
        scores = target.put(np.zeros((self.ROWS, self.WIDTH), np.float32))
        with pytest.raises((ValueError, TypeError), match=rf"\b{name}\b.*got"):
            tl_topk.topk_paged(scores, self.K, out=out, **arrays)

    @pytest.mark.parametrize(
        "wrong",
        [
            np.zeros((3, 19), np.int32),
            np.zeros(19, np.int32),
            np.zeros((1, 4, 19), np.int32),
            np.zeros((4, 19), np.int64),
            np.zeros((4, 19), np.float32),
            None,
            "table",
        ],
    )
    def test_page_table(self, target: Target, canary: Any, wrong: Any) -> None:
        self.paged(target, canary, "page_table", page_table=wrong)

    def test_page_table_with_gaps(self, target: Target, canary: Any) -> None:
        gaps = target.view(target.put(np.zeros(4 * 38, np.int32)), (4, 19), (38, 2), 0)
        self.paged(target, canary, "page_table", page_table=gaps)

    @pytest.mark.parametrize("wrong", [0, -1, 3, 48, 2**31, True, 16.0, None])
    def test_page_size(self, target: Target, canary: Any, wrong: Any) -> None:
        self.paged(target, canary, "page_size", page_size=wrong)

    @pytest.mark.parametrize("name", ["next_n", "compress_ratio"])
    @pytest.mark.parametrize("wrong", [0, -1, 2**31, True, 1.5])
    def test_counts(self, target: Target, canary: Any, name: str, wrong: Any) -> None:
        self.paged(target, canary, name, **{name: wrong})

    def test_next_n_divides_the_rows(self, target: Target, canary: Any) -> None:
        self.paged(target, canary, "next_n", next_n=3)

    @pytest.mark.parametrize("name", ["next_n", "compress_ratio"])
    def test_counts_need_lengths(self, target: Target, canary: Any, name: str) -> None:
        table_ = np.zeros((2 if name == "next_n" else 4, 19), np.int32)
        self.paged(target, canary, "lengths", page_table=table_, **{name: 2})

    @pytest.mark.parametrize(
        ("name", "size"),
        [
            ("lengths", 3),
            ("lengths", 8),
            ("row_starts", 5),
            ("page_starts", 3),
            ("row_to_request", 1),
            ("query_starts", 4),
        ],
    )
    def test_vectors(self, target: Target, canary: Any, name: str, size: int) -> None:
        for wrong in (
            np.zeros(size, np.int32),
            np.zeros(size, np.float32),
            np.zeros((4, 2), np.int32),
            7,
        ):
            self.paged(target, canary, name, **{name: wrong})

    def test_lengths_for_each_row(self, target: Target, canary: Any) -> None:
        gaps = target.put(np.zeros((2, 4), np.int32))[:, ::2]
        for wrong in (np.zeros((4, 2), np.int32), np.zeros(4, np.int32), gaps):
            table_ = np.zeros((2, 19), np.int32)
            self.paged(target, canary, "lengths", page_table=table_, next_n=2, lengths=wrong)

    def test_one_way_to_name_requests(self, target: Target, canary: Any) -> None:
        rows, starts = np.zeros(4, np.int32), np.zeros(5, np.int32)
        self.paged(target, canary, "query_starts", row_to_request=rows, query_starts=starts)
        for name, value in (("row_to_request", rows), ("query_starts", starts)):
            given = {"next_n": 2, "lengths": np.zeros(2, np.int32), name: value}
            self.paged(target, canary, name, **given)

    def test_offsets(self, target: Target, canary: Any) -> None:
        scores = target.put(np.zeros((self.ROWS, self.WIDTH), np.float32))
        for wrong in (np.zeros(3, np.int32), np.zeros(4, np.float32), np.zeros((4, 1), np.int32)):
            with pytest.raises((ValueError, TypeError), match=r"^offsets: expected"):
                tl_topk.topk_ragged(scores, self.K, target.put(wrong), out=canary)
        for wrong in (None, 4, [0] * 4):
            with pytest.raises((ValueError, TypeError), match=r"^offsets: expected"):
                tl_topk.topk_ragged(scores, self.K, wrong, out=canary)
        self.paged(target, canary, "offsets", offsets=np.zeros(4, np.int32))
        self.paged(target, canary, "offsets", out_ragged=np.zeros((4, 6), np.int32))

    @pytest.mark.parametrize("name", ["out_indices", "out_ragged"])
    def test_outputs(self, target: Target, canary: Any, name: str) -> None:
        offsets = {"offsets": np.zeros(4, np.int32)} if name == "out_ragged" else {}
        for wrong in (np.zeros((4, 5), np.int32), np.zeros((4, 6), np.int64), 3):
            self.paged(target, canary, name.replace("_", " "), **{name: wrong}, **offsets)

    def test_shared_memory(self, target: Target, canary: Any) -> None:
        words = "memory of its own"
        self.paged(target, canary, words, out_indices=canary)
        pages = target.put(np.full((4, 19), -9, np.int32))
        scores = target.put(np.zeros((4, 300), np.float32))
        with pytest.raises(ValueError, match=words):
            tl_topk.topk_paged(scores, 6, pages, page_size=16, out=pages[:, :6])
        offsets = canary[0, :4]
        with pytest.raises(ValueError, match=words):
            tl_topk.topk_ragged(scores, 6, offsets, out=canary)

    def test_a_backend_that_cannot(self) -> None:
        """Before anything is launched, so also where there is no GPU."""
        scores, vector = torch.zeros(2, 100), torch.zeros(2, dtype=torch.int32)
        options: dict[str, Any] = {"backend": "pipelined"}
        with pytest.raises(ValueError, match="backend: expected 'auto' or 'dsmem' for slots"):
            tl_topk.topk_paged(scores, 5, vector[:, None], page_size=128, **options)
        with pytest.raises(ValueError, match="backend: expected 'auto' or 'dsmem' for slots"):
            tl_topk.topk_ragged(scores, 5, vector, **options)

    def test_no_output(self) -> None:
        plan = tl_topk.TopKPlan(1, 10, 2, values=False)
        with pytest.raises(ValueError, match=r"\bout\b"):
            plan.run_mapped(np.zeros(10, np.float32))
        with_values = tl_topk.TopKPlan(1, 10, 2)
        with pytest.raises(ValueError, match=r"\bvalues\b"):
            with_values.run_mapped(np.zeros(10, np.float32), np.zeros(2, np.int32))

    def test_pages_beyond_the_cache(self) -> None:
        plan = tl_topk.TopKPlan(1, 10, 10, order="index", values=False)
        scores, slots = np.zeros((1, 10), np.float32), np.zeros((1, 10), np.int32)
        table = np.array([[3, 7, -1, 2**31 - 1, 6]], np.int32)
        known = [6, 7, 14, 15, -1, -1, 2**32 - 2, 2**32 - 1, 12, 13]
        plan.run_mapped(scores, slots=slots, page_table=table, page_size=2)
        assert (slots == np.array(known, np.int64).astype(np.int32)).all()
        plan.run_mapped(scores, slots=slots, page_table=table, page_size=2, cache_pages=7)
        assert slots.tolist() == [[6, 7, -1, -1, -1, -1, -1, -1, 12, 13]]
        with pytest.raises(ValueError, match=r"cache_pages: expected 1 to 2147483648, got 0"):
            plan.run_mapped(scores, slots=slots, page_table=table, cache_pages=0)

    def test_row_ends(self) -> None:
        plan = tl_topk.TopKPlan(2, 10, 3, values=False)
        scores = np.tile(np.arange(10, dtype=np.float32), (2, 1))
        out = np.zeros((2, 3), np.int32)
        starts, ends = np.array([2, -5]), np.array([6, 2], np.int32)
        plan.run_mapped(scores, out, row_starts=starts, row_ends=ends)
        assert np.sort(out, axis=1).tolist() == [[1, 2, 3], [-1, 0, 1]]
        for end in (2, 1, 0, -1, -(2**63)):
            plan.run_mapped(scores, out, row_starts=np.array([2, 3]), row_ends=np.full(2, end))
            assert (out == -1).all()
        with pytest.raises(ValueError, match="lengths: expected None, as row_ends is given"):
            plan.run_mapped(scores, out, lengths=ends, row_ends=ends)
