"""Scores of a sparse-attention indexer and the selection of the best keys, as one call.

Importing this package imports neither torch nor TileLang: the first call does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

from tl_topk.dispatch import Policy, chosen

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["indexer_topk"]


@overload
def indexer_topk(
    q: Tensor,
    keys: Tensor,
    weights: Tensor,
    k: int,
    *,
    key_scales: Tensor | None = ...,
    block_table: Tensor | None = ...,
    context_lens: Tensor | None = ...,
    next_n: int = ...,
    compress_ratio: int = ...,
    row_starts: Tensor | None = ...,
    row_ends: Tensor | None = ...,
    result: str = ...,
    offsets: Tensor | None = ...,
    return_scores: Literal[False] = ...,
    hint: Tensor | None = ...,
    order: str = ...,
    out: Tensor | None = ...,
    backend: str = ...,
    policy: Policy | str | None = ...,
) -> Tensor: ...


@overload
def indexer_topk(
    q: Tensor,
    keys: Tensor,
    weights: Tensor,
    k: int,
    *,
    key_scales: Tensor | None = ...,
    block_table: Tensor | None = ...,
    context_lens: Tensor | None = ...,
    next_n: int = ...,
    compress_ratio: int = ...,
    row_starts: Tensor | None = ...,
    row_ends: Tensor | None = ...,
    result: str = ...,
    offsets: Tensor | None = ...,
    return_scores: Literal[True],
    hint: Tensor | None = ...,
    order: str = ...,
    out: Tensor | None = ...,
    backend: str = ...,
    policy: Policy | str | None = ...,
) -> tuple[Tensor, Tensor]: ...


def indexer_topk(
    q: Tensor,
    keys: Tensor,
    weights: Tensor,
    k: int,
    *,
    key_scales: Tensor | None = None,
    block_table: Tensor | None = None,
    context_lens: Tensor | None = None,
    next_n: int = 1,
    compress_ratio: int = 1,
    row_starts: Tensor | None = None,
    row_ends: Tensor | None = None,
    result: str = "positions",
    offsets: Tensor | None = None,
    return_scores: bool = False,
    hint: Tensor | None = None,
    order: str = "any",
    out: Tensor | None = None,
    backend: str = "auto",
    policy: Policy | str | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """The ``k`` keys of every query that score best by
    ``key_scale[s] * sum_h weights[t, h] * relu(q[t, h] . keys[s])``, exactly.

    All arguments are torch tensors on one device, contiguous. With a ``block_table`` the keys lie
    in pages (decoding), without one in a row (prefill). The selection is exact with respect to the
    float32 scores that the call itself computes; those do not depend on batch, paging or on what
    else is asked for. Equal scores go by lower position, NaN ranks behind every number. Runs on
    the current stream, reads nothing back, and can be captured in a CUDA graph and replayed with
    other lengths and block tables.

    **Pages**, for ``B`` sequences and ``rows = B * next_n``. A page is 64 keys.

    Args:
        q: ``(B, next_n, heads, 128)`` float8_e4m3fn, or bfloat16 with bfloat16 keys; 8, 16, 32 or
            64 heads.
        keys: ``(pages, 64, 1, 132)`` uint8: of each page first the 64 x 128 bytes of its float8
            keys, then its 64 float32 scales. Or ``(pages, 64, 1, 128)`` bfloat16, without scales.
        weights: ``(rows, heads)`` float32, the queries' scales folded in.
        k: how many, at least 0; it may exceed a row's length.
        block_table: ``(B, max_blocks)`` int32, the pages of each sequence. A key on a page whose
            number is out of range is never read: it scores -inf.
        context_lens: int32 ``(B,)``, the length ``n`` of each sequence: query ``i`` of it sees
            ``(n - next_n + i + 1) // compress_ratio`` keys. Or ``(B, next_n)``, what each query
            sees, again divided by the ratio. What the block table has no room for is cut off, and
            a row of none or less is empty. Never read by the host.
        next_n: queries of a sequence (speculative decoding), 1 to 4.
        compress_ratio: tokens that one key stands for, at least 1.

    **Keys in a row**, for ``rows`` queries and ``S`` keys.

    Args:
        q: ``(rows, heads, 128)``, as above.
        keys: ``(S, 128)`` float8_e4m3fn with ``key_scales``, or bfloat16 without.
        key_scales: ``(S,)`` float32, given exactly with float8 keys.
        row_starts, row_ends: optional int32 ``(rows,)``: a query sees the keys from its start up to
            and without its end; 0 and ``S`` where not given, and clamped to them.

    **Both**

    Args:
        result: ``"positions"`` of keys relative to the row's start; ``"slots"``, places in the page
            table (page * 64 + position within; -1 on a page out of range), only with pages; or
            ``"ragged"``, position + ``offsets[row]``.
        offsets: ``(rows,)`` int32, given exactly with ``result="ragged"``.
        return_scores: also return the scores, ``(rows, max_blocks * 64)`` or ``(rows, S)`` float32
            with -inf at what the row does not see.
        hint: optional int32 ``(rows, m)``: positions that may be among the best, such as the
            previous step's; any content. It never changes the answer and, as the floor that it
            could help to guess is found while the keys are on their way, not the time either.
        order: of the slots: ``"any"`` (fastest), ``"index"`` (ascending position) or ``"value"``
            (best first).
        out: optional int32 ``(rows, k)`` to fill.
        backend: ``"auto"``; ``"cpu"`` for tensors on the CPU; on a GPU of compute capability 9.0
            ``"dsmem"``, a TileLang kernel that writes the scores and the native one that selects.
            Or ``"pipelined"``, one that filters while it scores and a small one that selects from
            the rest: for pages, ``order="any"`` and k up to 4096. ``"auto"`` asks the policy.
        policy: what decides where ``backend`` names none: see :func:`tl_topk.set_policy`.

    Returns:
        int32 ``(rows, k)``, -1 in the slots past what a row sees; with ``return_scores`` the pair
        ``(indices, scores)``.

    Raises:
        TypeError, ValueError: an argument is not as described; the message names it, what it got
            and what is allowed. Nothing has been written then.
        RuntimeError: nothing on this machine can serve the tensors' device; or the GPU's kernel
            must be compiled first and cannot be, as TileLang or nvcc is missing or a CUDA graph is
            being captured.

    Example:
        >>> import torch
        >>> import tl_topk
        >>> q, keys = torch.ones(1, 8, 128).bfloat16(), torch.ones(5, 128).bfloat16()
        >>> keys[2] *= 3
        >>> tl_topk.indexer_topk(q, keys, torch.ones(1, 8), 2, order="value")
        tensor([[2, 0]], dtype=torch.int32)
    """
    try:
        from tl_topk.indexer.arguments import Arguments
        from tl_topk.indexer.run import run
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise TypeError(f"q: expected a torch tensor, got {type(q).__name__}") from None
    arguments = Arguments.checked(
        q=q,
        keys=keys,
        weights=weights,
        k=k,
        key_scales=key_scales,
        block_table=block_table,
        context_lens=context_lens,
        next_n=next_n,
        compress_ratio=compress_ratio,
        row_starts=row_starts,
        row_ends=row_ends,
        result=result,
        offsets=offsets,
        hint=hint,
        order=order,
        out=out,
    )
    return run(arguments, return_scores, backend if policy is None else chosen(backend, policy))
