"""What is asked, as a plain value: everything a plan depends on and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tl_topk.scalars import checked_flag, checked_integer

DTYPES = ("float32", "float16", "bfloat16")
ORDERS = ("any", "index", "value")

#: Indices are int32, so neither a row nor its result may be longer than this.
MAX_WIDTH = 2**31 - 1


def one_of(names: tuple[str, ...]) -> str:
    """``("a", "b", "c")`` -> ``"'a', 'b' or 'c'"``."""
    quoted = [repr(name) for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"


def checked_k(k: Any) -> int:
    """``k`` as an int between 0 and :data:`MAX_WIDTH`, or an error that names it."""
    return checked_integer("k", k, 0, MAX_WIDTH)


def checked_order(order: Any) -> str:
    """``order`` if it is one of :data:`ORDERS`, or an error that names it."""
    if not isinstance(order, str) or order not in ORDERS:
        raise ValueError(f"order: expected {one_of(ORDERS)}, got {order!r}")
    return order


@dataclass(frozen=True, slots=True)
class Problem:
    """One selection: ``rows`` rows of ``width`` scores, the best ``k`` of each.

    Immutable and hashable; made once per plan, never per call. An instance is always valid.
    """

    rows: int
    width: int
    k: int
    dtype: str
    order: str = "any"
    largest: bool = True
    values: bool = True
    device_type: str = "cpu"
    device_id: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", checked_k(self.k))
        if self.rows < 0:
            raise ValueError(f"rows: expected at least 0, got {self.rows}")
        if not 0 <= self.width <= MAX_WIDTH:
            raise ValueError(f"scores: expected at most {MAX_WIDTH} wide, got {self.width}")
        if self.dtype not in DTYPES:
            raise TypeError(f"scores: expected {one_of(DTYPES)}, got {self.dtype!r}")
        checked_order(self.order)
        # Equal to a bool is enough, as it is for the plan cache's lookup.
        object.__setattr__(self, "largest", checked_flag("largest", self.largest))

    @property
    def device(self) -> str:
        return "cpu" if self.device_type == "cpu" else f"{self.device_type}:{self.device_id}"
