"""csrc/sampling.h once more: which elements of a sample are looked at, and which ranks count."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

GROUPS = 64  # whose maxima are compared, but for kernels that cut their sample into
MOST_GROUPS = 128
THREADS, WARP = 512, 32


@dataclass(frozen=True)
class SamplePlan:
    """As the struct of that name; the attributes are explained there."""

    warps: int = 1
    loads: int = 1
    thin: int = 1
    per_load: int = 1
    groups: int = 1
    low_rank: int = 1
    ceiling_rank: int = 1
    reach_rank: int = 1
    reach: int = 0
    has_floor: bool = False

    def takes(
        self, load: NDArray[np.int64], thread: NDArray[np.int64], per_vector: int, groups: int
    ) -> NDArray[np.bool_]:
        """Of each element of those loads of those threads: is it looked at?"""
        member, lane = thread // groups, thread % WARP
        some = (member < self.warps) & (load < self.loads)
        some &= (member + load + lane) % self.thin == 0
        return some[:, np.newaxis] & (np.arange(per_vector) < self.per_load)


def plan_sample(
    length: int,
    k: int,
    per_vector: int,
    loads: int,
    steps_alone: int = 0,
    most_groups: int = GROUPS,
) -> SamplePlan:
    """Of a block of 512 threads, each with up to so many vectors of the sample: of the whole row,
    or of one of so many steps that the block alone takes."""
    steps = max(steps_alone, 1)
    deviations = 4.5 if steps_alone > 0 else 4.0
    if length <= k or k == 0:
        return SamplePlan()
    a_load = THREADS * per_vector
    full_loads = min(length // steps // a_load, loads)
    filled = THREADS // WARP if full_loads > 0 else length // steps // (WARP * per_vector)
    of_warp = most_groups // WARP
    warps = 1
    while 2 * warps * of_warp <= filled:
        warps *= 2
    groups = most_groups if filled >= of_warp else WARP if filled > 0 else 1

    share = k / length
    taken, thin, per_load, size = 1, warps, 1, 1
    while True:
        takes_more_loads = taken < max(full_loads, 1)
        if not takes_more_loads and thin == 1 and 2 * per_load > per_vector:
            break
        more_loads = min(2 * taken, max(full_loads, 1))
        more = more_loads if takes_more_loads else 2 * size
        if more * share > 0.71:
            break
        size = more
        if takes_more_loads:
            taken = more_loads
        elif thin > 1:
            thin //= 2
        else:
            per_load *= 2
    odds = 1 - (1 - share) ** size
    expected = groups * odds
    margin = deviations * math.sqrt(expected * (1 - odds)) + 1
    skew = (deviations**2 - 1) / 6 * (1 - 2 * odds)
    low, ceiling = math.ceil(expected + margin + skew), math.floor(expected - margin)
    has_floor = low <= groups
    reaches = has_floor and expected < 6
    return SamplePlan(
        warps=warps,
        loads=taken,
        thin=thin,
        per_load=per_load,
        groups=groups,
        low_rank=low if has_floor else groups,
        ceiling_rank=max(ceiling, 1) if has_floor else 1,
        reach_rank=min(4 * low, groups) if reaches else 1,
        reach=min(max(1024 // k, 1), 4) if reaches else 0,
        has_floor=has_floor,
    )
