"""Scores from files, results to files: nothing is unpickled, nothing is left half-written."""

from __future__ import annotations

import contextlib
import lzma
import math
import os
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np

from tl_topk.arrays import Array
from tl_topk.problem import DTYPES, MAX_WIDTH, one_of

__all__ = ["FileError", "ScoreFile", "load_arrays", "load_integers", "open_scores", "save_npz"]

Ndarray: TypeAlias = "np.ndarray[Any, Any]"

_SUFFIXES = (".npy", ".npz", ".safetensors")

# What NumPy and zipfile raise on a file that is damaged, truncated, encrypted or of another kind.
_DAMAGE = (
    EOFError, KeyError, OverflowError, RuntimeError, TypeError, ValueError,
    lzma.LZMAError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


class FileError(ValueError):
    """A file that cannot be used; the message names it and says why, in one line."""


@dataclass(frozen=True)
class ScoreFile:
    """Rows of scores in a file, read block by block."""

    path: Path
    shape: tuple[int, ...]
    dtype: str
    _read: Callable[[int, int], Array]

    @property
    def rows(self) -> int:
        return self.shape[0] if len(self.shape) == 2 else 1

    @property
    def width(self) -> int:
        return self.shape[-1]

    def read(self, first: int, last: int) -> Array:
        """Rows ``first`` to ``last`` as ``(last - first, width)``, native byte order, C order.

        A NumPy array; a torch tensor when the file holds bfloat16, which NumPy does not know.
        """
        with _refusing(self.path):
            return self._read(first, last)


def open_scores(path: str | Path, name: str | None = None) -> ScoreFile:
    """The scores in ``path``: .npy (mapped, not loaded), .npz or .safetensors.

    ``name`` picks the array of an archive; it may be left out when the archive holds one array or
    one called ``scores``. Raises :class:`FileError`.
    """
    path = _regular(path)
    if path.suffix == ".safetensors":
        file = _open_safetensors(path, name)
    else:
        array = _load_numpy(path, name, "scores")
        dtype = array.dtype.newbyteorder("=")
        two = array.reshape(1, -1) if array.ndim == 1 else array

        def read(first: int, last: int) -> Ndarray:
            return np.ascontiguousarray(two[first:last], dtype)

        file = ScoreFile(path, array.shape, dtype.name, read)
    if file.dtype not in DTYPES:
        raise FileError(f"{path}: scores: expected {one_of(DTYPES)}, got {file.dtype}")
    if len(file.shape) not in (1, 2):
        raise FileError(
            f"{path}: scores: expected shape (length,) or (rows, length), got {file.shape}"
        )
    if file.width > MAX_WIDTH:
        raise FileError(f"{path}: scores: expected at most {MAX_WIDTH} wide, got {file.width}")
    return file


def load_integers(path: str | Path, what: str, rows: int) -> Ndarray:
    """One integer a row, as int64. ``what`` names them in errors."""
    path = _regular(path)
    array = _load_numpy(path, None, what)
    if array.dtype.kind not in "iu" or array.dtype == np.uint64:
        raise FileError(f"{path}: {what}: expected integers that int64 holds, got {array.dtype}")
    if array.shape != (rows,):
        raise FileError(f"{path}: {what}: expected shape ({rows},), got {array.shape}")
    return np.ascontiguousarray(array, np.int64)


def load_arrays(path: str | Path) -> dict[str, Ndarray]:
    """All arrays of an .npz, by name."""
    path = _regular(path)
    if path.suffix != ".npz":
        raise FileError(f"{path}: must be an .npz file")
    with _refusing(path), zipfile.ZipFile(path) as archive:
        return {name: _member(archive, name) for name in _members(archive)}


def save_npz(path: str | Path, arrays: dict[str, Ndarray]) -> None:
    """Writes an .npz beside ``path`` and renames it: there is the whole file or the old one."""
    with _replacing(Path(path)) as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]  # numpy's stub mixes up its flags


def _regular(path: str | Path) -> Path:
    path = Path(path)
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}") from error
    if not stat.S_ISREG(mode):
        raise FileError(f"{path}: not a regular file")
    if path.suffix not in _SUFFIXES:
        raise FileError(f"{path}: must end in {one_of(_SUFFIXES)}")
    return path


@contextlib.contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Whatever a reader says about a file it cannot read becomes one line that names the file."""
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from error
    except MemoryError as error:
        raise FileError(f"{path}: does not fit in memory") from error
    except _DAMAGE as error:
        raise FileError(f"{path}: {' '.join(str(error).split()) or 'is damaged'}") from error


def _load_numpy(path: Path, name: str | None, usual: str) -> Ndarray:
    with _refusing(path):
        if path.suffix == ".npy":
            if name is not None:
                raise FileError(f"{path}: holds one array without a name, not {name!r}")
            with path.open("rb") as stream:
                _check_header(stream, path.stat().st_size)
            # Copy-on-write: the pages stay those of the file, yet the array counts as writable.
            mapped: Ndarray = np.load(path, mmap_mode="c", allow_pickle=False)
            return mapped
        if path.suffix == ".npz":
            with zipfile.ZipFile(path) as archive:
                return _member(archive, _pick(path, _members(archive), name, usual))
        raise FileError(f"{path}: must end in '.npy' or '.npz'")


def _members(archive: zipfile.ZipFile) -> list[str]:
    return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


def _member(archive: zipfile.ZipFile, name: str) -> Ndarray:
    with archive.open(f"{name}.npy") as stream:
        _check_header(stream, archive.getinfo(f"{name}.npy").file_size)
    with archive.open(f"{name}.npy") as stream:
        return np.lib.format.read_array(stream, allow_pickle=False)


def _check_header(stream: IO[bytes], size: int) -> None:
    """Raises unless ``stream`` starts an .npy file of ``size`` bytes that holds what it declares.

    The header decides how much memory is asked for, so it is not believed unseen.
    """
    version = np.lib.format.read_magic(stream)
    readers: dict[tuple[int, int], Callable[[IO[bytes]], Any]] = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise ValueError(f"unknown version {version} of the .npy format")
    shape, _, dtype = readers[version](stream)
    if dtype.hasobject:
        raise ValueError("holds Python objects, which are never unpickled")
    declared = stream.tell() + math.prod(shape) * dtype.itemsize
    if declared > size:
        raise ValueError(f"is truncated: {declared} bytes declared, {size} there")


def _pick(path: Path, names: list[str], name: str | None, usual: str) -> str:
    if name is not None and name not in names:
        raise FileError(f"{path}: holds no array {name!r}, only {one_of(tuple(names) or ('',))}")
    if name is not None:
        return name
    if usual in names:
        return usual
    if len(names) != 1:
        raise FileError(
            f"{path}: holds {len(names)} arrays and none is called {usual!r}; name one with --name"
        )
    return names[0]


def _open_safetensors(path: Path, name: str | None) -> ScoreFile:
    from safetensors import SafetensorError, safe_open

    dtypes = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
    try:
        with safe_open(path, "np") as file:
            picked = _pick(path, list(file.keys()), name, "scores")
            entry = file.get_slice(picked)
            shape, code = tuple(entry.get_shape()), entry.get_dtype()
        framework = "np"
        if code == "BF16":
            import torch  # noqa: F401

            framework = "pt"
        handle: Any = safe_open(path, framework)
    except (SafetensorError, OSError) as error:
        raise FileError(f"{path}: {' '.join(str(error).split())}") from error
    except ImportError as error:
        raise FileError(f"{path}: bfloat16 scores need torch, which is not installed") from error

    def read(first: int, last: int) -> Array:
        rows = handle.get_slice(picked)
        return rows[:].reshape(1, -1) if len(shape) == 1 else rows[first:last]

    return ScoreFile(path, shape, dtypes.get(code, code), read)


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """A stream to a new file beside ``path`` that takes its place once all is written."""
    path = Path(os.path.realpath(path))  # through a symbolic link, not over it
    if path.exists() and not path.is_file():
        raise FileError(f"{path}: not a regular file")
    temporary = None
    try:
        descriptor, temporary = tempfile.mkstemp(".tmp", f".{path.name}.", path.parent)
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(descriptor)
        os.chmod(temporary, _mode_of(path))
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            os.unlink(temporary)


def _mode_of(path: Path) -> int:
    """The mode that opening ``path`` for writing would leave: mkstemp's is private."""
    if path.exists():
        return stat.S_IMODE(path.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
