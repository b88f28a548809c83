"""Random calls of the indexer, and what a float64 reference says about their scores."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import tl_topk
from reference import Oracle, assert_topk

PAGE, DIM = 64, 128
FP8, BF16 = torch.float8_e4m3fn, torch.bfloat16

#: How far a score may lie from the float64 reference, as a share of the sum of the absolute values
#: of all the products that go into it. A Hopper tensor core aligns 32 products to the largest of
#: them and keeps 13 bits behind its leading one; float32 does the rest.
BOUND = 2.0**-9


@dataclass(frozen=True)
class Way:
    """Where the tensors lie, and the backend that is asked for."""

    device: str
    backend: str

    def __str__(self) -> str:
        return self.backend


CPU, UNFUSED, FUSED = Way("cpu", "cpu"), Way("cuda", "dsmem"), Way("cuda", "pipelined")


@dataclass(frozen=True)
class Call:
    """Arguments of ``indexer_topk``, on the CPU, and the keys that each row can see by position.

    Attributes:
        seen: for each row the float64 scores of its range, from the quantised values.
        slack: the bound on each score's error.
    """

    arguments: dict[str, Any]
    k: int
    seen: list[NDArray[np.float64]]
    slack: list[NDArray[np.float64]]
    starts: list[int]

    def on(self, device: str) -> dict[str, Any]:
        return {
            name: value.to(device) if isinstance(value, Tensor) else value
            for name, value in self.arguments.items()
        }

    def with_arguments(self, **changes: Any) -> Call:
        return replace(self, arguments=self.arguments | changes)

    def check(self, way: Way, order: str = "any") -> None:
        """Scores within the bound, and the selection exact with respect to them."""
        host = self.check_selection(way, order)
        for row, (exact, slack, start) in enumerate(
            zip(self.seen, self.slack, self.starts, strict=True)
        ):
            got = host[row, start : start + len(exact)].astype(np.float64)
            there = np.isfinite(exact)
            assert (got[~there] == exact[~there]).all(), f"row {row}: a score where no key is"
            error = np.abs(got[there] - exact[there])
            assert (error <= slack[there]).all(), f"row {row}: scores off by {error.max()}"
            assert (host[row, :start] == -np.inf).all()
            assert (host[row, start + len(exact) :] == -np.inf).all()

    def check_selection(self, way: Way, order: str = "any") -> NDArray[np.float32]:
        """The selection is exact with respect to the scores, which are returned."""
        given = {**self.on(way.device), "k": self.k, "order": order, "backend": way.backend}
        indices, scores = tl_topk.indexer_topk(return_scores=True, **given)
        alone = tl_topk.indexer_topk(**given)
        host = scores.cpu().numpy()
        oracle = Oracle(
            host,
            lengths=np.array([len(row) for row in self.seen], np.int32),
            row_starts=np.array(self.starts, np.int32),
        )
        for answer in (indices, alone):
            assert_topk(oracle, self.k, order, answer.cpu().numpy())  # type: ignore[arg-type]
        return host


def quantized(rng: np.random.Generator, *shape: int, dtype: torch.dtype) -> Tensor:
    return torch.from_numpy(rng.standard_normal(shape, np.float32) * 2).to(dtype)


def exact_scores(
    q: Tensor, keys: Tensor, weights: Tensor, scales: Tensor | None
) -> tuple[Any, Any]:
    """The float64 scores of one query, and the bound on their error."""
    wide = keys.double().numpy()
    query, weight = q.double().numpy(), weights.double().numpy()
    scale = np.ones(len(wide)) if scales is None else scales.double().numpy()
    exact = weight @ np.maximum(query @ wide.T, 0) * scale
    size = np.abs(weight) @ (np.abs(query) @ np.abs(wide).T) * np.abs(scale)
    return exact, BOUND * size


def paged_call(
    rng: np.random.Generator,
    lens: list[int] | list[list[int]],
    *,
    k: int = 64,
    heads: int = 64,
    next_n: int = 1,
    ratio: int = 1,
    dtype: torch.dtype = FP8,
    max_blocks: int | None = None,
    missing: float = 0.0,
) -> Call:
    """Sequences on pages in random places, a share ``missing`` of them out of range."""
    lens_array = np.array(lens, np.int32)
    sequences = len(lens_array)
    per_query = lens_array.reshape(sequences, -1)
    if per_query.shape[1] != next_n:
        per_query = per_query - next_n + 1 + np.arange(next_n)
    if lens_array.ndim == 2:
        per_query = lens_array
    seen = np.maximum(per_query // ratio, 0)
    if max_blocks is None:
        max_blocks = max(1, -(-int(seen.max(initial=1)) // PAGE))
    pages = sequences * max_blocks + 3
    keys = quantized(rng, pages, PAGE, DIM, dtype=dtype)
    scales = torch.from_numpy(rng.uniform(0.5, 1.5, (pages, PAGE)).astype(np.float32))
    table = rng.permutation(pages)[: sequences * max_blocks].reshape(sequences, max_blocks)
    lost = rng.random(table.shape) < missing
    wild = np.array([-1, pages, -(2**31), 2**31 - 1])
    table = np.where(lost, rng.choice(wild, table.shape), table)
    q = quantized(rng, sequences, next_n, heads, DIM, dtype=dtype)
    weights = torch.from_numpy(rng.standard_normal((sequences * next_n, heads), np.float32))

    rows: list[tuple[Any, Any]] = []
    for sequence in range(sequences):
        for query in range(next_n):
            length = min(int(seen[sequence, query]), max_blocks * PAGE)
            position = np.arange(length)
            page = table[sequence, position // PAGE]
            there = (page >= 0) & (page < pages)
            at = np.where(there, page, 0), position % PAGE
            exact, slack = exact_scores(
                q[sequence, query],
                keys[at],
                weights[sequence * next_n + query],
                scales[at] if dtype == FP8 else None,
            )
            rows.append((np.where(there, exact, -np.inf), slack))
    stored = keys.view(pages, PAGE, 1, DIM)
    if dtype == FP8:
        content = [keys.view(torch.uint8).flatten(1), scales.view(torch.uint8).flatten(1)]
        stored = torch.cat(content, dim=1).view(pages, PAGE, 1, DIM + 4)
    return Call(
        {
            "q": q,
            "keys": stored,
            "weights": weights,
            "block_table": torch.from_numpy(table.astype(np.int32)),
            "context_lens": torch.from_numpy(lens_array),
            "next_n": next_n,
            "compress_ratio": ratio,
        },
        k,
        [exact for exact, _ in rows],
        [slack for _, slack in rows],
        [0] * len(rows),
    )


def contiguous_call(
    rng: np.random.Generator,
    rows: int,
    keys: int,
    *,
    k: int = 64,
    heads: int = 64,
    dtype: torch.dtype = FP8,
    starts: list[int] | None = None,
    ends: list[int] | None = None,
) -> Call:
    q = quantized(rng, rows, heads, DIM, dtype=dtype)
    stored = quantized(rng, keys, DIM, dtype=dtype)
    scales = torch.from_numpy(rng.uniform(0.5, 1.5, keys).astype(np.float32))
    weights = torch.from_numpy(rng.standard_normal((rows, heads), np.float32))
    arguments: dict[str, Any] = {"q": q, "keys": stored, "weights": weights}
    if dtype == FP8:
        arguments["key_scales"] = scales
    for name, given in (("row_starts", starts), ("row_ends", ends)):
        if given is not None:
            arguments[name] = torch.tensor(given, dtype=torch.int32)
    seen, slack, begins = [], [], []
    for row in range(rows):
        begin = min(max(starts[row], 0), keys) if starts else 0
        end = min(max(ends[row], 0), keys) if ends else keys
        span = slice(begin, max(begin, end))
        exact, bound = exact_scores(
            q[row], stored[span], weights[row], scales[span] if dtype == FP8 else None
        )
        seen.append(exact)
        slack.append(bound)
        begins.append(begin)
    return Call(arguments, k, seen, slack, begins)
