"""The two methods: local selection, collectives, merge. rule.py says what they are about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tl_topk.distributed.agreement import Agreement
from tl_topk.distributed.exchange import all_gather, all_reduce
from tl_topk.distributed.results import Results
from tl_topk.distributed.rule import SAMPLE_BYTES, part_bytes, slots_of, whole_quads
from tl_topk.select import Options, select_eagerly
from tl_topk.torch_arrays import TORCH

__all__ = ["gathered_bytes", "run", "select_own"]

Maybe = torch.Tensor | None


def gathered_bytes(agreement: Agreement) -> int:
    """Of what the all-gather of an agreement brings together."""
    request, count = agreement.request, agreement.count
    if agreement.method == "gather":
        each = part_bytes(request.rows, whole_quads(count), request.element_bytes)
    else:
        each = request.rows * (count // agreement.stride) * SAMPLE_BYTES
    return agreement.ranks * each


def run(
    agreement: Agreement,
    group: Any,
    scores: torch.Tensor,
    lengths: Maybe,
    results: Results,
) -> None:
    """Fills the results on the current stream; neither reads anything back nor waits.

    ``scores`` are (rows, width), ``lengths`` those of whole rows.
    """
    request = agreement.request
    if request.rows == 0 or request.k == 0:
        return
    if lengths is not None:
        local = torch.empty(request.rows, dtype=torch.int32, device=scores.device)
        agreement.shards.local_lengths(lengths, local)
        lengths = local
    gathered = torch.empty(gathered_bytes(agreement), dtype=torch.uint8, device=scores.device)
    method: Callable[..., None] = _METHODS[agreement.method]
    method(agreement, group, scores, lengths, results, gathered)


def select_own(
    agreement: Agreement,
    scores: torch.Tensor,
    lengths: Maybe,
    order: str,
    values: torch.Tensor,
    indices: torch.Tensor,
) -> None:
    """This rank's own best, as positions in its shard, as many as ``indices`` has slots."""
    options = Options(indices.shape[1], agreement.request.largest, order, "auto", True)
    select_eagerly(TORCH, options, scores, lengths, None, values, indices)


def _gather(
    agreement: Agreement,
    group: Any,
    scores: torch.Tensor,
    lengths: Maybe,
    results: Results,
    gathered: torch.Tensor,
) -> None:
    """Selects right into this rank's part, gathers all parts in place, merges them."""
    request, count = agreement.request, whole_quads(agreement.count)
    parts = gathered.view(agreement.ranks, -1)
    own = parts[agreement.shards.rank]
    if count > 0:
        pairs = request.rows * count
        own_indices = own[: 4 * pairs].view(torch.int32).view(request.rows, count)
        own_values = own[4 * pairs : (4 + request.element_bytes) * pairs].view(scores.dtype)
        select_own(
            agreement, scores, lengths, "any", own_values.view(request.rows, count), own_indices
        )
        all_gather(parts, own, group)
    values, indices, local = results
    agreement.shards.merge_parts(
        parts, count, indices, values, local, request.largest, request.order
    )


def _threshold(
    agreement: Agreement,
    group: Any,
    scores: torch.Tensor,
    lengths: Maybe,
    results: Results,
    gathered: torch.Tensor,
) -> None:
    """Sorts, finds the common bound from samples, adds up what reaches it, merges that."""
    request, count = agreement.request, agreement.count
    shards, stride = agreement.shards, agreement.stride
    rows, device = request.rows, scores.device
    own_values = torch.empty(rows, count, dtype=scores.dtype, device=device)
    own_indices = torch.empty(rows, count, dtype=torch.int32, device=device)
    select_own(agreement, scores, lengths, "value", own_values, own_indices)
    samples = gathered.view(torch.int64).view(agreement.ranks, -1)
    own = samples[shards.rank]
    if own.numel() > 0:
        shards.sample(own_indices, own_values, request.largest, stride, own.view(rows, -1))
        all_gather(samples, own, group)
    slots = slots_of(agreement.ranks, agreement.wanted)
    words = torch.empty(rows, slots, dtype=torch.int64, device=device)
    shards.contribute(
        own_indices, own_values, samples, request.largest, agreement.wanted, stride, words
    )
    all_reduce(words, group)
    values, indices, local = results
    shards.merge_words(words, indices, values, local, request.largest, request.order)


_METHODS = {"gather": _gather, "threshold": _threshold}
