"""The ``hint`` argument: checked, so that a wrong one is named, and then not used.

A hint is there to guess where the k-th element lies, which saves a search. Our kernels take that
guess from the first elements that every block loads anyway. The most that any hint could gain is
what a launch saves that is told the k-th score beforehand, for nothing: ``python -m bench.engines``
measures it, and bench/results/engines.json has 3 to 10 % at 64K to 256K, one row. A real hint gains
less: scores at remembered places have to be fetched, from all over the row, before they tell
anything.
"""

from __future__ import annotations

from tl_topk import arrays
from tl_topk.arrays import Array

__all__ = ["check_hint", "fits"]


def fits(hint: Array, scores: Array) -> bool:
    """Is ``hint`` as :func:`check_hint` wants it? For scores that are a plain torch tensor, at a
    tenth of its price; where it is not, :func:`check_hint` has the words.
    """
    if hint.__class__ is not arrays.Tensor or hint.dtype is not arrays.int32:
        return False
    dimensions = hint.dim()
    return bool(
        dimensions == scores.dim()
        and (dimensions == 1 or hint.size(0) == scores.size(0))
        and dimensions <= 2
        and hint.get_device() == scores.get_device()
    )


def check_hint(hint: Array, scores: Array) -> None:
    """Raises TypeError or ValueError unless ``hint`` is int32 ``(rows, m)`` like ``scores``."""
    arrays.check_same_library("hint", hint, like=scores)
    dtype = str(hint.dtype).removeprefix("torch.")
    if dtype != "int32":
        raise TypeError(f"hint: expected int32, got {dtype}")
    shape, like = tuple(hint.shape), tuple(scores.shape)
    if len(shape) != len(like) or shape[:-1] != like[:-1]:
        allowed = "(m,)" if len(like) == 1 else f"({like[0]}, m)"
        raise ValueError(f"hint: expected shape {allowed}, got {shape}")
    mine, theirs = getattr(hint, "device", None), getattr(scores, "device", None)
    if mine != theirs:
        raise ValueError(f"hint: expected on {theirs}, got on {mine}")
