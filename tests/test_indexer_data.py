"""The indexer on keys and queries from real text, where they lie beside the checkout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from indexer_cases import CPU, FUSED, PAGE, UNFUSED, Call, Way, exact_scores

DATA = Path(__file__).parents[2] / "shared/data/indexer_64k.npz"

pytestmark = [
    pytest.mark.usefixtures("skip_uncompiled"),
    pytest.mark.skipif(not DATA.is_file(), reason="the data are not beside the checkout"),
]

K = 2048
ON_GPU = [pytest.param(way, marks=pytest.mark.gpu) for way in (UNFUSED, FUSED)]


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    """Tensors ``q``, ``k``, ``k_scale`` and ``weights``, and ``seen`` and ``slack`` of each row."""
    with np.load(DATA) as file:
        found: dict[str, Any] = {name: torch.from_numpy(file[name]) for name in file.files}
    q, k = (found[name].view(torch.float8_e4m3fn) for name in ("q", "k"))
    rows = [exact_scores(q[i], k, found["weights"][i], found["k_scale"]) for i in range(len(q))]
    published = found.pop("scores").double().numpy()
    for (exact, _), row in zip(rows, published, strict=True):
        assert np.abs(exact - row).max() < 1e-6
    seen, slack = zip(*rows, strict=True)
    return {**found, "q": q, "seen": list(seen), "slack": list(slack)}


@pytest.mark.parametrize("way", [CPU, *ON_GPU], ids=str)
def test_pages(way: Way, data: dict[str, Any], rng: np.random.Generator) -> None:
    """Four sequences that share their pages."""
    pages = len(data["k"]) // PAGE
    order = rng.permutation(pages)
    parts = [data["k"].view(pages, -1), data["k_scale"].view(torch.uint8).view(pages, -1)]
    cache = torch.cat(parts, dim=1)[torch.from_numpy(np.argsort(order))]
    rows = len(data["q"])
    arguments = {
        "q": data["q"].unsqueeze(1),
        "keys": cache.view(pages, PAGE, 1, -1).contiguous(),
        "weights": data["weights"],
        "block_table": torch.from_numpy(order.astype(np.int32)).repeat(rows, 1),
        "context_lens": torch.full((rows,), len(data["k"]), dtype=torch.int32),
    }
    Call(arguments, K, data["seen"], data["slack"], [0] * rows).check(way)


@pytest.mark.parametrize("way", [CPU, ON_GPU[0]], ids=str)
def test_keys_in_a_row(way: Way, data: dict[str, Any]) -> None:
    arguments = {
        "q": data["q"],
        "keys": data["k"].view(torch.float8_e4m3fn),
        "weights": data["weights"],
        "key_scales": data["k_scale"],
    }
    rows = len(data["q"])
    Call(arguments, K, data["seen"], data["slack"], [0] * rows).check(way)
