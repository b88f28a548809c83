"""Which of the two methods serves a problem, and what each sends: pure functions of the problem.

``"gather"``: one all-gather of every rank's own k best, 4 bytes of index and the value each. The
fastest where little is sent, as it is one collective, and the selections need not be sorted.

``"threshold"``: every rank sorts its own k best and all-gathers every :func:`stride_of`-th. Those
samples give all ranks the same bound, which at least k elements reach and few more do; these alone
travel, by an all-reduce of slots that no two ranks share. A histogram could give the bound too, but
not how many elements share its threshold bin: with ties, or one outlier, all of them. Evenly spaced
members of sorted lists prove that at most ``k + stride * (ranks + 1)`` slots are needed, whatever
the scores; so every size is known beforehand, as a CUDA graph needs, without reading anything back.
"""

from __future__ import annotations

from tl_topk.problem import one_of

__all__ = [
    "AUTO",
    "METHODS",
    "MOST_GATHERED",
    "SAMPLE_BYTES",
    "WORTH_BYTES",
    "check_method",
    "choose_method",
    "part_bytes",
    "received_bytes",
    "slots_of",
    "stride_of",
    "whole_quads",
]

AUTO = "auto"
METHODS = ("gather", "threshold")

#: The most candidates of a row, ``ranks * k``, that ``"gather"`` is chosen for. One block merges
#: them; on an H200 it took 25 us for these and 50 us for twice as many, before the merge became
#: faster (bench/results/shard_stages.json), when the smaller steps of ``"threshold"`` take less.
MOST_GATHERED = 16_384

#: What ``"threshold"`` must spare every rank to be chosen for fewer candidates: about what NVLink
#: carries in the time of its second collective and its smaller steps.
WORTH_BYTES = 4 << 20

_INDEX_BYTES = 4
SAMPLE_BYTES = 8
_WORD_BYTES = 8
_ALIGNMENT = 16
_QUAD = 4


def check_method(method: object) -> None:
    """Raises ValueError unless ``method`` is one of :data:`METHODS` or ``"auto"``."""
    if not isinstance(method, str) or method not in (AUTO, *METHODS):
        raise ValueError(f"method: expected {one_of((AUTO, *METHODS))}, got {method!r}")


def stride_of(k: int) -> int:
    """Elements that one sample stands for: the power of two near ``sqrt(k / 2)``.

    Each rank sends ``k / stride`` samples and twice about ``stride`` slots more than it must, by
    the ring; that square root makes the sum least.
    """
    stride = 1
    while 4 * stride * stride <= k:
        stride *= 2
    return stride


def whole_quads(count: int) -> int:
    """``count`` in the multiple of four that the native merge reads at a time."""
    return -(-count // _QUAD) * _QUAD


def part_bytes(rows: int, count: int, element_bytes: int) -> int:
    """What a rank contributes to the all-gather of ``"gather"``: ``count`` pairs of each row, which
    is a multiple of four."""
    size = rows * count * (_INDEX_BYTES + element_bytes)
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def slots_of(ranks: int, k: int) -> int:
    """Slots of a row in the all-reduce of ``"threshold"``; enough for any scores."""
    stride = stride_of(k)
    return whole_quads(stride * (-(-k // stride) + ranks))


def received_bytes(method: str, ranks: int, rows: int, k: int, element_bytes: int) -> int:
    """What each rank receives in one call, where every shard is at least ``k`` wide.

    An all-gather brings it everything that the others send; an all-reduce, by the ring, twice the
    share of the others.

    Args:
        method: ``"gather"`` or ``"threshold"``.
        ranks: of the group.
        rows: of the scores.
        k: of the call.
        element_bytes: of a score, 4 or 2.
    """
    others = ranks - 1
    if method == "gather":
        return others * part_bytes(rows, whole_quads(k), element_bytes)
    samples = others * rows * (k // stride_of(k)) * SAMPLE_BYTES
    words = rows * slots_of(ranks, k) * _WORD_BYTES
    return samples + 2 * others * words // ranks


def choose_method(ranks: int, rows: int, k: int, element_bytes: int) -> str:
    """The method of ``method="auto"``: ``"threshold"`` where a row has more candidates than
    :data:`MOST_GATHERED` or each rank is spared :data:`WORTH_BYTES`, else ``"gather"``.
    """
    if ranks * k > MOST_GATHERED:
        return "threshold"
    spared = received_bytes("gather", ranks, rows, k, element_bytes) - received_bytes(
        "threshold", ranks, rows, k, element_bytes
    )
    return "threshold" if spared >= WORTH_BYTES else "gather"
