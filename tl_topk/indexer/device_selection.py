"""Two launches on the current stream: a kernel that scores, and ``dsmem``, which selects behind it.

The second is launched during the first (programmatic dependent launch) and waits on the GPU until
all scores are written: what is left of a launch between the two is the hand-over. Until it waits it
reads and writes nothing in global memory, so no launch before can be disturbed either. It also
makes slots and ragged indices of the positions.
"""

from __future__ import annotations

from functools import lru_cache

from torch import Tensor

from tl_topk._ffi.plan import TopKPlan
from tl_topk.arrays import find_library
from tl_topk.indexer.arguments import Arguments
from tl_topk.indexer.device_scores import compute_scores
from tl_topk.indexer.sizes import PAGE

__all__ = ["score_and_select"]


def score_and_select(a: Arguments, scores: Tensor, indices: Tensor) -> None:
    """Fills ``scores`` ``(rows, width)`` where rows see keys, and ``indices`` ``(rows, k)`` with
    the whole result.
    """
    plan = _plan(a.rows, a.width, a.k, a.order, a.device.index)
    workspace = None  # made ready first: nothing may come between the two launches
    if plan.workspace_bytes > 0:
        library = find_library(scores)
        assert library is not None  # it knows its own tensors
        workspace = library.workspace(scores, plan.workspace_bytes)
    starts, lengths = compute_scores(a, scores)
    if a.result == "positions":
        plan.run(scores, indices, None, lengths, starts, workspace)
    elif a.result == "ragged":
        plan.run_mapped(
            scores, ragged=indices, lengths=lengths, row_starts=starts, offsets=a.offsets,
            workspace=workspace,
        )  # fmt: skip
    else:
        plan.run_mapped(
            scores, slots=indices, lengths=lengths.view(-1, a.next_n), page_table=a.block_table,
            page_size=PAGE, next_n=a.next_n, cache_pages=a.pages, workspace=workspace,
        )  # fmt: skip


@lru_cache(maxsize=512)
def _plan(rows: int, width: int, k: int, order: str, device: int) -> TopKPlan:
    plan = TopKPlan(rows, width, k, "float32", order, True, False, "cuda", device)
    plan.overlap()
    return plan
