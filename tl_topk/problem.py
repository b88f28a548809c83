"""What is asked, as a plain value: everything a plan depends on and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tl_topk.scalars import checked_flag, checked_integer

DTYPES = ("float32", "float16", "bfloat16")
ORDERS = ("any", "index", "value")
KEY_FORMATS = ("float8", "bfloat16")

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
class Gpu:
    """What a decision must know of a GPU: plain facts, read from one or looked up by name.

    Attributes:
        name: as its maker calls it.
        compute_capability: 90 for a Hopper GPU.
        sms: streaming multiprocessors.
        shared_memory_per_block: bytes.
        l2_bytes: size of the L2 cache.
        coresident_clusters: how many clusters of 1, 2, 4, 8 and 16 blocks it holds at once.
        memory_tb_per_s: peak bandwidth of its memory; None where that is not known.
    """

    name: str
    compute_capability: int
    sms: int
    shared_memory_per_block: int
    l2_bytes: int
    coresident_clusters: tuple[int, ...]
    memory_tb_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Scoring:
    """How the scores come about that are selected from: the indexer's formula.

    Attributes:
        heads: of each query.
        dim: of a head and of a key.
        key_format: ``"float8"`` (with a scale each) or ``"bfloat16"``.
        paged: whether keys lie in pages that a block table names.
        next_n: queries that share the keys of a sequence.
    """

    heads: int
    dim: int = 128
    key_format: str = "float8"
    paged: bool = True
    next_n: int = 1

    def __post_init__(self) -> None:
        for name in ("heads", "dim", "next_n"):
            object.__setattr__(self, name, checked_integer(name, getattr(self, name), 1, 1 << 16))
        if self.key_format not in KEY_FORMATS:
            raise ValueError(f"key_format: expected {one_of(KEY_FORMATS)}, got {self.key_format!r}")

    @property
    def key_bytes(self) -> int:
        """Of one key with its scale."""
        return self.dim + 4 if self.key_format == "float8" else 2 * self.dim


@dataclass(frozen=True, slots=True)
class Problem:
    """One selection: ``rows`` rows of ``width`` scores, the best ``k`` of each.

    Immutable and hashable; made once per plan, never per call. An instance is always valid.

    Attributes:
        rows, width, k: of the scores, and how many of each row are selected.
        dtype: of the scores.
        order: of the slots.
        largest: False for the smallest.
        values: whether values are wanted besides indices.
        device_type, device_id: where the scores, or queries and keys, lie.
        scoring: how the scores are made; None where they lie ready.
        gpu: facts of the GPU; None on the CPU and while nobody has asked.
        absent: backends that cannot run here, each with the reason.
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
    scoring: Scoring | None = None
    gpu: Gpu | None = None
    absent: tuple[tuple[str, str], ...] = ()

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
    def element_bytes(self) -> int:
        return 4 if self.dtype == "float32" else 2

    @property
    def device(self) -> str:
        return "cpu" if self.device_type == "cpu" else f"{self.device_type}:{self.device_id}"
