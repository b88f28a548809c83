"""Selections that are made wrong, for tests of what is to notice it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tl_topk


def spoil_calls(
    monkeypatch: pytest.MonkeyPatch, module: str, spoil: Callable[[Any, int, Any], None]
) -> None:
    """What ``module`` knows as topk and topk_indices has its indices changed in place, by
    ``spoil(scores, k, indices)``.
    """

    def topk(scores: Any, k: int, **options: Any) -> tl_topk.TopK:
        result = tl_topk.topk(scores, k, **options)
        spoil(scores, k, result.indices)
        return result

    def topk_indices(scores: Any, k: int, **options: Any) -> Any:
        indices = tl_topk.topk_indices(scores, k, **options)
        spoil(scores, k, indices)
        return indices

    monkeypatch.setattr(f"{module}.topk", topk)
    monkeypatch.setattr(f"{module}.topk_indices", topk_indices)
