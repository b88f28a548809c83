"""Decoding steps of a sparse-attention layer in plain torch, with a paged cache.

    python tests/examples/decode_step.py [--device cuda] [--requests 3] [--tokens 5000] [--k 2048]

In every step, for every request: the indexer scores all cached tokens, ``topk_paged`` turns the
best of them into slots of the cache in one launch, attention reads the cache at these slots alone.
Each step is checked against dense attention over the request's tokens in their logical order, with
all but the chosen ones masked. The cache's pages lie in no order and requests differ in length, as
in an engine; lengths and page tables stay on the device.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

import tl_topk

PAGE = 64  # tokens
INDEX_HEADS, INDEX_DIM = 64, 128  # of the indexer, as in DeepSeek V3.2
HEADS, LATENT, ROPE = 16, 512, 64  # of attention on compressed keys and values

#: Slots of the best tokens: ``select(scores, k, page_table, lengths)``, (B, k), -1 for none.
Select: TypeAlias = Callable[[Tensor, int, Tensor, Tensor], Tensor]


@dataclass
class Cache:
    """What the layer remembers of all requests, in pages."""

    index_keys: Tensor  # (pages, PAGE, INDEX_DIM)
    latents: Tensor  # (pages, PAGE, LATENT + ROPE)
    page_table: Tensor  # int32 (B, most pages of a request); -1: none yet
    lengths: Tensor  # int32 (B,): tokens of each request


@dataclass
class Queries:
    """Of one step: one token of each request."""

    index: Tensor  # (B, INDEX_HEADS, INDEX_DIM)
    weights: Tensor  # (B, INDEX_HEADS)
    attention: Tensor  # (B, HEADS, LATENT + ROPE)


def indexer_scores(queries: Queries, cache: Cache) -> Tensor:
    """``sum_h w[h] * relu(q[h] . k[s])`` for every place a token could have: (B, pages * PAGE).

    Places past a request's length hold garbage, which the selection never looks at.
    """
    keys = cache.index_keys[cache.page_table.clamp(min=0)].flatten(1, 2)
    products = torch.relu_(queries.index @ keys.mT).float()
    return (queries.weights.float().unsqueeze(1) @ products).squeeze(1)


def select_ours(scores: Tensor, k: int, page_table: Tensor, lengths: Tensor) -> Tensor:
    return tl_topk.topk_paged(scores, k, page_table, page_size=PAGE, lengths=lengths)


def select_torch(scores: Tensor, k: int, page_table: Tensor, lengths: Tensor) -> Tensor:
    """The same with ``torch.topk``: a mask before it, the mapping after it."""
    outside = torch.arange(scores.shape[1], device=scores.device) >= lengths.unsqueeze(1)
    masked = scores.masked_fill(outside, -torch.inf)
    indices = masked.topk(min(k, scores.shape[1]), sorted=False).indices
    slots = page_table.gather(1, indices // PAGE) * PAGE + indices % PAGE
    slots = torch.where(indices < lengths.unsqueeze(1), slots, -1)
    return torch.nn.functional.pad(slots, (0, k - slots.shape[1]), value=-1)


def attend(queries: Tensor, latents: Tensor, chosen: Tensor) -> Tensor:
    """Attention of (B, HEADS, LATENT + ROPE) over (B, n, ...) where ``chosen`` (B, n) is true."""
    logits = queries @ latents.mT * (LATENT + ROPE) ** -0.5
    probabilities = logits.masked_fill(~chosen.unsqueeze(1), -torch.inf).softmax(dim=-1)
    return probabilities @ latents[..., :LATENT]


def decode_step(queries: Queries, cache: Cache, k: int, select: Select) -> tuple[Tensor, Tensor]:
    """Output (B, HEADS, LATENT) and the slots that were read (B, k). Reads nothing on the host."""
    scores = indexer_scores(queries, cache)
    slots = select(scores, k, cache.page_table, cache.lengths)
    latents = cache.latents.flatten(0, 1)[slots.clamp(min=0)]
    return attend(queries.attention, latents, slots >= 0), slots


def dense_step(queries: Queries, cache: Cache, k: int) -> Tensor:
    """The same output from all tokens of a request at once, all but the best k masked."""
    scores = indexer_scores(queries, cache)
    latents = cache.latents[cache.page_table.clamp(min=0)].flatten(1, 2)
    chosen = torch.zeros_like(scores, dtype=torch.bool)
    for request, length in enumerate(cache.lengths.tolist()):
        best = scores[request, :length].topk(min(k, length)).indices
        chosen[request, best] = True
    return attend(queries.attention, latents, chosen)


class Decoder:
    """Stands in for the rest of the model: makes queries, and a token for each request a step."""

    TURN = 0.7  # how far queries turn in a step

    def __init__(self, lengths: list[int], steps: int, device: str, dtype: torch.dtype) -> None:
        self._generator = torch.Generator(device).manual_seed(11)
        self._options = {"generator": self._generator, "device": device, "dtype": dtype}
        most = -(-(max(lengths) + steps) // PAGE)
        pages = len(lengths) * most
        order = torch.randperm(pages, generator=self._generator, device=device)
        table = order.to(torch.int32).view(len(lengths), most)
        counts = torch.tensor(lengths, dtype=torch.int32, device=device)
        first = torch.arange(most, device=device) * PAGE
        self._pages = table
        self.cache = Cache(
            index_keys=self._normal(pages, PAGE, INDEX_DIM),
            latents=self._normal(pages, PAGE, LATENT + ROPE),
            page_table=torch.where(first < counts.unsqueeze(1), table, -1),
            lengths=counts,
        )
        self.queries = Queries(
            index=self._normal(len(lengths), INDEX_HEADS, INDEX_DIM),
            weights=self._normal(len(lengths), INDEX_HEADS),
            attention=self._normal(len(lengths), HEADS, LATENT + ROPE),
        )

    def _normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, **self._options)  # type: ignore[arg-type]

    def advance(self) -> None:
        """One token more for each request, and queries that have turned a little."""
        cache, queries = self.cache, self.queries
        rows = torch.arange(len(cache.lengths), device=cache.lengths.device)
        page, place = cache.lengths // PAGE, cache.lengths % PAGE
        cache.page_table[rows, page] = self._pages[rows, page]
        cache.index_keys[self._pages[rows, page], place] = self._normal(len(rows), INDEX_DIM)
        cache.latents[self._pages[rows, page], place] = self._normal(len(rows), LATENT + ROPE)
        cache.lengths += 1
        for each in (queries.index, queries.attention):
            each.mul_((1 - self.TURN**2) ** 0.5).add_(self._normal(*each.shape) * self.TURN)


def shared(slots: Tensor, before: Tensor) -> float:
    """The part of the selection that was in the previous step's."""
    common = [
        len(set(now.tolist()) & set(then.tolist()) - {-1}) / max(1, int((now >= 0).sum()))
        for now, then in zip(slots, before, strict=True)
    ]
    return sum(common) / len(common)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--requests", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=5000, help="of the longest request")
    parser.add_argument("--k", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=4)
    options = parser.parse_args(arguments)

    lengths = [options.tokens // (1 + request) for request in range(options.requests)]
    decoder = Decoder(lengths, options.steps, options.device, torch.float32)
    slots = None
    for step in range(options.steps):
        before = slots
        output, slots = decode_step(decoder.queries, decoder.cache, options.k, select_ours)
        error = (output - dense_step(decoder.queries, decoder.cache, options.k)).abs().max().item()
        _, theirs = decode_step(decoder.queries, decoder.cache, options.k, select_torch)
        same = torch.equal(slots.sort(dim=1).values.long(), theirs.sort(dim=1).values.long())
        again = "" if before is None else f", {shared(slots, before):.0%} as in the step before"
        print(
            f"step {step}: tokens {decoder.cache.lengths.tolist()}, attended to"
            f" {(slots >= 0).sum(dim=1).tolist()}{again}; differs from dense attention by"
            f" {error:.1e}, from torch.topk's slots {'nowhere' if same else 'SOMEWHERE'}"
        )
        if error > 1e-4 or not same:
            raise SystemExit("the step is wrong")
        decoder.advance()


if __name__ == "__main__":
    main()
