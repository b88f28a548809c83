"""The table behind the policy ``measured``: what each candidate took on this very GPU.

A small JSON file a GPU in the user's cache folder, made by ``tl-topk calibrate``. It says which
format it has, which GPU and which build of the library it speaks of. One that is damaged, or
speaks of anything else, is never trusted: it is ignored, with one warning.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tl_topk.problem import DTYPES, Gpu, Problem

__all__ = ["FORMAT", "Entry", "calibration_file", "load", "measured_times", "save"]

FORMAT = 1

#: How far a problem may lie from a measured one, in powers of two.
_NEAR = 0.5


@dataclass(frozen=True, slots=True)
class Entry:
    """One problem of the table: indices alone, in any order.

    Attributes:
        rows, width, k, dtype: of the problem.
        us: microseconds by candidate, as :attr:`Candidate.name` calls it.
    """

    rows: int
    width: int
    k: int
    dtype: str
    us: dict[str, float]

    def distance(self, problem: Problem) -> float:
        """The most that one of the sizes differs by, in powers of two."""
        pairs = ((self.rows, problem.rows), (self.width, problem.width), (self.k, problem.k))
        return max(abs(math.log2(mine / max(theirs, 1))) for mine, theirs in pairs)


def calibration_file(gpu: Gpu) -> Path:
    """Where the table of a GPU lies, or would."""
    from tl_topk.tile.library import cache_folder

    name = re.sub(r"[^a-z0-9]+", "-", gpu.name.lower()).strip("-")
    return cache_folder() / "calibration" / f"{name}.json"


@cache
def _build() -> str:
    """Tells this build of the native library from every other."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    (path,) = {line.split(maxsplit=5)[5] for line in lines if line.endswith("/libtl_topk.so")}
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]


def _facts(gpu: Gpu) -> dict[str, Any]:
    return {"format": FORMAT, "gpu": gpu.name, "sms": gpu.sms, "build": _build()}


def save(gpu: Gpu, entries: Iterable[Entry], path: Path) -> None:
    """Writes the table as a whole: never half of one."""
    rows = [
        {"rows": e.rows, "width": e.width, "k": e.k, "dtype": e.dtype, "us": e.us} for e in entries
    ]
    lines = ",\n".join(json.dumps(row) for row in rows)
    text = json.dumps(_facts(gpu), indent=1)[:-2] + f',\n "entries": [\n{lines}\n ]\n}}\n'
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        half.write_text(text)
        os.replace(half, path)
    finally:
        half.unlink(missing_ok=True)
    _table.cache_clear()


def load(gpu: Gpu, path: Path) -> tuple[Entry, ...]:
    """The table in ``path``.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged, or speaks of another format, GPU or build.
    """
    data = json.loads(path.read_text())
    if not isinstance(data, dict):
        raise ValueError("it is no table")
    for name, mine in _facts(gpu).items():
        if data.get(name) != mine:
            raise ValueError(f"its {name} is {data.get(name)!r}, not {mine!r}")
    entries = data.get("entries")
    if not isinstance(entries, list):
        raise ValueError("it has no entries")
    return tuple(_entry(each) for each in entries)


def _entry(data: Any) -> Entry:
    try:
        entry = Entry(**data)
        sizes_are_fine = all(
            type(size) is int and size >= 1 for size in (entry.rows, entry.width, entry.k)
        )
        times_are_fine = len(entry.us) > 0 and all(
            isinstance(name, str) and type(us) in (int, float) and 0 < us < math.inf
            for name, us in entry.us.items()
        )
    except (TypeError, AttributeError) as error:
        raise ValueError(f"an entry is damaged: {error}") from None
    if not (sizes_are_fine and times_are_fine and entry.dtype in DTYPES):
        raise ValueError(f"an entry is damaged: {data!r}")
    return entry


@cache
def _table(gpu: Gpu, path: Path) -> tuple[Entry, ...]:
    """Read once; empty where there is none that can be trusted, after a warning."""
    try:
        return load(gpu, path)
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as error:
        warnings.warn(
            f"tl_topk: the calibration {path} is ignored: {error};"
            " `tl-topk calibrate` makes it anew",
            RuntimeWarning,
            stacklevel=2,
        )
        return ()


def measured_times(problem: Problem) -> tuple[dict[str, float], str]:
    """Microseconds by candidate of the measured problem nearest to ``problem``; or nothing, and why
    there is nothing.
    """
    if problem.gpu is None:
        return {}, "tables are of GPUs"
    if problem.scoring is not None:
        return {}, "tables are of scores that lie ready"
    if problem.order != "any":
        return {}, "tables are of order='any'"
    table = _table(problem.gpu, calibration_file(problem.gpu))
    if not table:
        return {}, "`tl-topk calibrate` has made no table for this GPU"
    alike = [entry for entry in table if entry.dtype == problem.dtype]
    near = [entry for entry in alike if entry.distance(problem) <= _NEAR]
    if not near:
        return {}, "it is off the calibrated grid"
    return min(near, key=lambda entry: entry.distance(problem)).us, ""
