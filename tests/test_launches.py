"""What compute-sanitizer is shown of the select family is all that a problem can be served by."""

from __future__ import annotations

from contextlib import suppress
from itertools import product

import pytest

from dealt import Kernel, kernel_of
from launches import LAUNCHES
from reference import DTYPES

ROWS = (1, 2, 7, 8, 16, 17, 33, 34, 67, 133, 5000)
WIDTHS = sorted({int(2 ** (i / 4)) + more for i in range(4, 100) for more in (0, 1)})
KS = (1, 32, 500, 1024, 2048, 4096, 4097, 100_000)


def launched(dtype: str) -> list[Kernel]:
    return [
        kernel_of(each.rows, each.width, each.k, dtype, each.blocks)
        for each in LAUNCHES
        if dtype in each.dtypes
    ]


@pytest.mark.parametrize(("dtype", "kernels"), list(zip(DTYPES, (16, 14, 14), strict=True)))
def test_each_launch_has_a_kernel_of_its_own(dtype: str, kernels: int) -> None:
    """As many as csrc/cuda/select_launch.cuh names for the dtype, with a mapping and without, where
    those that are "short" and their counterparts count as one."""
    assert len(set(launched(dtype))) == len(launched(dtype)) == kernels


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_problem_has_another_kernel(dtype: str) -> None:
    served = {kernel_of(rows, width, k, dtype) for rows, width, k in product(ROWS, WIDTHS, KS)}
    assert served == set(launched(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("blocks", [1, 2, 4, 8, 16, 32, 64, 128])
def test_nor_one_of_a_caller_who_asks_for_blocks(dtype: str, blocks: int) -> None:
    served = set()
    for rows, width, k in product((1, 2, 7, 40), WIDTHS, KS):
        with suppress(ValueError):  # so many are not to be had
            served.add(kernel_of(rows, width, k, dtype, blocks))
    assert served
    assert served <= set(launched(dtype))
