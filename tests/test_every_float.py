"""Every float that there is goes through a selection, and every answer is certified."""

from __future__ import annotations

import pytest
import torch

import tl_topk
from harness import Target
from tl_topk.check.certificate import Selection, certify

WIDTH = 2**20
STEP = -1640531535  # odd, so that its multiples modulo 2^32 are all integers of 32 bits


@pytest.mark.exhaustive
@pytest.mark.patience(3600)
@pytest.mark.parametrize("largest", [True, False], ids=["largest", "smallest"])
def test_all_patterns(engine: Target, largest: bool) -> None:
    """All 2^32 bit patterns, scattered over 4096 rows of a million: numbers, NaNs and all."""
    rows = 2 if engine.device == "cpu" else 256  # what the caches hold, and what fills the GPU
    ends = torch.full((rows,), WIDTH, device=engine.device)
    place = torch.arange(rows * WIDTH, device=engine.device)
    for first in range(0, 4096, rows):
        scattered = (place + first * WIDTH) * STEP
        bits = (scattered << 32 >> 32).int().view(rows, WIDTH)
        for k, order in ((2048, "value"), (1, "any")):
            values, indices = tl_topk.topk(
                bits.view(torch.float32), k, order=order, largest=largest, backend=engine.backend
            )
            asked = Selection(bits, "float32", ends * 0, ends, k, order, largest)
            assert certify(asked, indices, values.view(torch.int32)).first() is None
