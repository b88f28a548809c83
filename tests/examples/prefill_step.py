"""Prefill of a sparse-attention layer in plain torch: keys of all requests in one piece.

    python tests/examples/prefill_step.py [--device cuda] [--queries 40] [--k 64]

The queries of several requests are scored at once against the keys of all of them; each sees what
comes before it in its own request, which ``row_starts`` and ``lengths`` say. ``topk_ragged`` turns
its best keys into places in the common buffer in one launch. Checked against dense attention in
which every query masks what it has not chosen.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor

import tl_topk

HEADS, DIM = 8, 64


def prefill_step(
    scores: Tensor, queries: Tensor, keys_values: Tensor, starts: Tensor, lengths: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """Output (T, HEADS, DIM) and the places that were read (T, k)."""
    places = tl_topk.topk_ragged(scores, k, starts, row_starts=starts, lengths=lengths)
    chosen = keys_values[places.clamp(min=0)]  # (T, k, DIM)
    logits = (queries @ chosen.mT * DIM**-0.5).masked_fill((places < 0).unsqueeze(1), -torch.inf)
    return logits.softmax(dim=-1) @ chosen, places


def dense_step(
    scores: Tensor, queries: Tensor, keys_values: Tensor, starts: Tensor, lengths: Tensor, k: int
) -> Tensor:
    places = torch.arange(len(keys_values), device=scores.device)
    seen = (places >= starts.unsqueeze(1)) & (places < (starts + lengths).unsqueeze(1))
    masked = scores.masked_fill(~seen, -torch.inf)
    best = torch.zeros_like(seen).scatter_(1, masked.topk(min(k, len(places))).indices, True)
    logits = queries @ keys_values.T * DIM**-0.5
    return logits.masked_fill(~(best & seen).unsqueeze(1), -torch.inf).softmax(-1) @ keys_values


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--queries", type=int, default=40, help="of each request")
    parser.add_argument("--k", type=int, default=64)
    options = parser.parse_args(arguments)

    torch.manual_seed(5)
    contexts = [300, 41, 1000]  # tokens of each request, the queries being the last of them
    begins = [sum(contexts[:request]) for request in range(len(contexts))]
    queries_of_each = [min(options.queries, context) for context in contexts]
    starts = torch.tensor(begins).repeat_interleave(torch.tensor(queries_of_each))
    lengths = torch.cat(
        [
            torch.arange(context - queries, context) + 1
            for context, queries in zip(contexts, queries_of_each, strict=True)
        ]
    )
    rows, total = len(starts), sum(contexts)
    scores, queries, keys_values, starts, lengths = (
        each.to(options.device)
        for each in (
            torch.randn(rows, total),
            torch.randn(rows, HEADS, DIM),
            torch.randn(total, DIM),
            starts.int(),
            lengths.int(),
        )
    )
    output, places = prefill_step(scores, queries, keys_values, starts, lengths, options.k)
    dense = dense_step(scores, queries, keys_values, starts, lengths, options.k)
    error = (output - dense).abs().max().item()
    print(
        f"{rows} queries of {len(contexts)} requests attended to"
        f" {int((places >= 0).sum())} places; differs from dense attention by {error:.1e}"
    )
    if error > 1e-4:
        raise SystemExit("the step is wrong")


if __name__ == "__main__":
    main()
