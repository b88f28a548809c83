"""Where compiled programs lie, and how they are found, made and loaded.

A library's name holds a digest of everything that decides what it does, so a folder may hold those
of several versions, and nothing in it is ever stale. Looked for first in the folders that were
compiled ahead of time, then in the cache; only then is it compiled, into the cache.

Environment:
    TL_TOPK_KERNELS: folders made by ``tl-topk compile``, separated as in PATH.
    TL_TOPK_CACHE: the cache's folder; by default ``tl_topk`` in the user's cache folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import tvm_ffi

from tl_topk.tile.compiler import Program, build
from tl_topk.tile.toolchain import device_headers, missing_tool, tilelang_version

__all__ = ["any_ready", "cache_folder", "export", "file_name", "find", "load"]

_PACKAGE = Path(__file__).resolve().parents[1]
_loaded: dict[tuple[str, str], tvm_ffi.Module] = {}
_loading = threading.RLock()


def cache_folder() -> Path:
    """Where programs compiled just in time are kept."""
    named = os.environ.get("TL_TOPK_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tl_topk"


def _ready_folders() -> list[Path]:
    named = os.environ.get("TL_TOPK_KERNELS", "")
    return [*map(Path, filter(None, named.split(os.pathsep))), _PACKAGE / "kernels"]


def any_ready() -> bool:
    """Is there any program that was compiled ahead of time?"""
    return any(next(folder.glob("*.so"), None) is not None for folder in _ready_folders())


def file_name(program: Program, arch: str) -> str:
    """The name of the library of ``program``, the same on every machine."""
    digest = hashlib.sha256(_digest_of(program.sources).encode())
    digest.update(repr((program.name, program.arguments, program.cluster, program.flags)).encode())
    return f"{program.name}-{arch}-{digest.hexdigest()[:16]}.so"


@cache
def _digest_of(sources: tuple[Path, ...]) -> str:
    digest = hashlib.sha256()
    for root in (*device_headers(), _PACKAGE / "tile/compiler.py", *sources):
        for file in [root] if root.is_file() else sorted(root.glob("*.*")):
            if file.suffix in (".h", ".cuh", ".py"):
                digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def find(program: Program, arch: str) -> Path | None:
    """The library of ``program``, if it has been compiled already."""
    name = file_name(program, arch)
    version = tilelang_version()
    # Of one TileLang version each: another may write other code.
    folders = _ready_folders() + ([cache_folder() / version] if version is not None else [])
    return next((path for path in (folder / name for folder in folders) if path.is_file()), None)


def load(program: Program, arch: str) -> tvm_ffi.Module:
    """The library of ``program``, loaded; compiled first where need be.

    Safe from several threads and processes at once: one compiles, the others wait for it.

    Raises:
        RuntimeError: it has to be compiled and cannot be, or a graph is being captured.
    """
    key = (program.name, arch)
    with _loading:
        found = _loaded.get(key)
        if found is None:
            path = find(program, arch) or _compile_into_cache(program, arch)
            found = _loaded[key] = tvm_ffi.load_module(str(path))
    return found


def _compile_into_cache(program: Program, arch: str) -> Path:
    missing = missing_tool()
    if missing is not None:
        raise RuntimeError(
            f"kernel {program.name} for {arch} has not been compiled (`tl-topk compile` does it"
            f" ahead of time, TL_TOPK_KERNELS names the folder), and cannot be here: {missing}"
        )
    _refuse_while_capturing(program)
    return _make(program, arch, cache_folder() / str(tilelang_version()), "1 of 1")


def _make(program: Program, arch: str, folder: Path, which: str) -> Path:
    path = folder / file_name(program, arch)
    with _only_process(path):
        if not path.is_file():  # another process may have been first
            print(f"tl_topk: compiling {program.name} for {arch} ({which})", file=sys.stderr)
            half = path.with_suffix(f".{os.getpid()}.tmp")
            try:
                build(program, arch, half)
                os.replace(half, path)  # whole or not at all
            finally:
                half.unlink(missing_ok=True)
    return path


def export(programs: Iterable[Program], arch: str, folder: Path) -> Iterator[Path]:
    """Compiles all of ``programs`` into ``folder``; yields each path when it is there.

    Raises:
        RuntimeError: a tool is missing, or refuses.
        OSError: the folder cannot be written.
    """
    missing = missing_tool()
    if missing is not None:
        raise RuntimeError(f"kernels cannot be compiled here: {missing}")
    everything = list(programs)
    for number, program in enumerate(everything, 1):
        yield _make(program, arch, folder, f"{number} of {len(everything)}")


@contextmanager
def _only_process(path: Path) -> Iterator[None]:
    """Held by one process at a time; the file stays, for removing it would race."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.parent / f".{path.stem}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _refuse_while_capturing(program: Program) -> None:
    """A compilation of seconds inside a capture is never meant; the first call outside does it."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            f"kernel {program.name} would have to be compiled while a CUDA graph is being captured:"
            " call once before the capture, or compile ahead of time with `tl-topk compile`"
        )
