"""Every dtype, scope and fallback at sizes small enough for compute-sanitizer.

    PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck --error-exitcode 1 \\
        python3 -m pytest tests -m sanitizer -q

Without the caching allocator each tensor is its own allocation, whose ends are watched. Tools:
memcheck, racecheck, synccheck and initcheck.
"""

from __future__ import annotations

import numpy as np
import pytest

from harness import Target
from reference import DTYPES, Oracle, quantize
from zoo import matrix

pytestmark = [pytest.mark.sanitizer, pytest.mark.patience(1800)]

CASES = [
    (1, 1, (1, 3)),
    (3, 37, (0, 1, 40)),
    (1, 3001, (512, 2048)),
    (1, 20_001, (1, 2048, 5000)),
    (1, 70_000, (2048,)),
    (1, 270_001, (2048,)),
    (20, 4100, (2048,)),
    (150, 2100, (512,)),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "width", "ks"), CASES)
def test_small(
    gpu: Target,
    rows: int,
    width: int,
    ks: tuple[int, ...],
    dtype: str,
    rng: np.random.Generator,
) -> None:
    normal = rng.standard_normal(width)
    some, _ = matrix(
        {
            "normal": quantize(normal, dtype),
            "ties": quantize(normal.round(), dtype),
            "all equal": quantize(np.ones(width), dtype),
            "NaN": quantize(np.where(normal < 2, np.nan, normal), dtype),
            "a sample that lies": quantize(normal + 50 * (np.arange(width) % 16 == 0), dtype),
        }
    )
    if rows == 1:  # one by one: a single row runs in another scope than five
        for row in some:
            gpu.check(Oracle(row), ks, ("index", "value"))
    else:
        scores = some[np.arange(rows) % len(some)]
        lengths = np.arange(rows) * 977 % (width + 2)
        gpu.check(Oracle(scores), ks, ("any",))
        gpu.check(Oracle(scores, lengths, lengths % 5), ks, ("value",))
