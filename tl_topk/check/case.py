"""One selection to try, as data: everything that can matter and nothing that must be run."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tl_topk.files import FileError, load_arrays, save_npz
from tl_topk.placement import BITS
from tl_topk.problem import ORDERS

__all__ = ["Case", "load_case", "save_case"]

Ndarray: TypeAlias = "np.ndarray[Any, Any]"

_FORMAT = 1
_MOST = 1 << 24  # of k, skew and gap: far beyond what is ever drawn


@dataclass(frozen=True, eq=False)
class Case:
    """A selection and the way its arrays lie in memory. Never changed, only replaced."""

    seed: int
    family: str  # of the scores: how they were drawn
    dtype: str
    scores: Ndarray  # (rows, width): the bits of the scores, uint32 or uint16
    k: int
    order: str = "any"
    largest: bool = True
    with_values: bool = True
    lengths: Ndarray | None = None  # int32 or int64 (rows,)
    row_starts: Ndarray | None = None  # int32 or int64 (rows,)
    skew: int = 0  # elements before the first row: an unaligned base
    gap: int = 0  # elements between rows: a row stride beyond the width

    @property
    def rows(self) -> int:
        return int(self.scores.shape[0])

    @property
    def width(self) -> int:
        return int(self.scores.shape[1])

    def replace(self, **changes: Any) -> Case:
        return dataclasses.replace(self, **changes)

    def __str__(self) -> str:
        optional = [name for name in ("lengths", "row_starts") if getattr(self, name) is not None]
        return (
            f"{self.family}: {self.rows} x {self.width} {self.dtype}, k={self.k},"
            f" order={self.order}, largest={self.largest}, values={self.with_values}"
            f"{''.join(f', {name}' for name in optional)}, skew={self.skew}, gap={self.gap}"
        )


def save_case(case: Case, path: Path) -> None:
    """A reproducer: an .npz with one array for each field."""
    fields = {field.name: getattr(case, field.name) for field in dataclasses.fields(case)}
    arrays = {name: np.asarray(value) for name, value in fields.items() if value is not None}
    save_npz(path, {"format": np.asarray(_FORMAT), **arrays})


def load_case(path: Path) -> Case:
    """What :func:`save_case` wrote; raises :class:`FileError` on anything else."""
    arrays = load_arrays(path)
    try:
        if int(arrays.pop("format", np.asarray(0))) != _FORMAT:
            raise FileError(f"{path}: is no reproducer of this version of tl-topk check")
        fields: dict[str, Any] = {
            name: array.item() if array.ndim == 0 else array for name, array in arrays.items()
        }
        case = Case(**fields)
        sound = _is_sound(case)
    except FileError:
        raise
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise FileError(f"{path}: is a damaged reproducer: {error}") from error
    if not sound:
        raise FileError(f"{path}: is a damaged reproducer")
    return case


def _is_sound(case: Case) -> bool:
    """Is every field what it is declared as, and small enough to be laid out in memory?"""
    counts = (case.seed, case.k, case.skew, case.gap)
    flags = (case.largest, case.with_values)
    names = (case.family, case.dtype, case.order)
    integers = (np.dtype(np.int32), np.dtype(np.int64))
    return (
        all(type(count) is int for count in counts)
        and all(type(flag) is bool for flag in flags)
        and all(type(name) is str for name in names)
        and all(0 <= count <= _MOST for count in counts[1:])
        and case.scores.ndim == 2
        and case.scores.dtype == BITS[case.dtype]
        and case.order in ORDERS
        and all(
            each is None or (each.shape == (case.rows,) and each.dtype in integers)
            for each in (case.lengths, case.row_starts)
        )
    )
