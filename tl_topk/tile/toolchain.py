"""What compiling needs: TileLang, nvcc and headers; each absence has a sentence of its own."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

__all__ = [
    "EXTRA",
    "architecture",
    "compile_library",
    "device_headers",
    "header_folder",
    "missing_language",
    "missing_tool",
    "nvcc",
    "tilelang_module",
    "tilelang_version",
    "with_included",
]

#: What to install; versions as in pyproject.toml.
EXTRA = "pip install 'tl-topk[tilelang]'"
_SUPPORTED = re.compile(r"0\.1\.15(\..*|\+.*)?$")
_SUPPORTED_TEXT = "0.1.15"
_OLDEST = 80  # compute capability: asynchronous copies
#: The letter stands for instructions that only this very architecture has.
_SPECIFIC = {90: "sm_90a", 100: "sm_100a", 103: "sm_103a", 120: "sm_120a"}

_PACKAGE = Path(__file__).resolve().parents[1]


@functools.cache
def tilelang_version() -> str | None:
    """The installed TileLang's version, found without importing it; None where there is none."""
    try:
        return importlib.metadata.version("tilelang")
    except importlib.metadata.PackageNotFoundError:
        return None


def missing_language() -> str | None:
    """Why TileLang cannot be used here, in one clause; None when it can."""
    version = tilelang_version()
    if version is None:
        return f"TileLang is not installed: {EXTRA}"
    if not _SUPPORTED.match(version):
        return f"TileLang {version} is installed, {_SUPPORTED_TEXT} is needed: {EXTRA}"
    return None


def missing_tool() -> str | None:
    """Why nothing can be compiled here, in one clause; None when it can."""
    missing = missing_language()
    if missing is not None:
        return missing
    if nvcc() is None:
        return (
            "no nvcc was found: install a CUDA toolkit of 12.4 or newer, and set CUDA_HOME if nvcc"
            " is not on the path"
        )
    return None


def tilelang_module() -> ModuleType:
    """TileLang itself, imported at the first compilation: that takes more than a second.

    Raises:
        RuntimeError: something that compiling needs is missing; the message says what to install.
    """
    missing = missing_language()
    if missing is not None:
        raise RuntimeError(missing)
    import tilelang

    return tilelang


@functools.cache
def nvcc() -> str | None:
    """The path of nvcc: that of CUDA_HOME, of the path, or of the usual place."""
    home = os.environ.get("CUDA_HOME")
    candidates = [f"{home}/bin/nvcc"] if home else []
    candidates += ["nvcc", "/usr/local/cuda/bin/nvcc"]
    return next(filter(None, map(shutil.which, candidates)), None)


def architecture(compute_capability: int) -> str:
    """nvcc's name of the architecture with ``compute_capability`` (90 for a Hopper GPU).

    Raises:
        ValueError: there are no TileLang kernels for it.
    """
    if compute_capability < _OLDEST:
        raise ValueError(
            f"architecture: expected compute capability {_OLDEST / 10:.1f} or newer for TileLang"
            f" kernels, got {compute_capability / 10:.1f}"
        )
    return _SPECIFIC.get(compute_capability, f"sm_{compute_capability}")


def header_folder() -> Path:
    """Where the device headers lie: in the installed package, or in a checkout's ``csrc``.

    Raises:
        RuntimeError: neither is there.
    """
    for folder in (_PACKAGE / "include", _PACKAGE.parent / "csrc"):
        if (folder / "key.h").is_file():
            return folder
    raise RuntimeError("the device headers of tl_topk are missing: install the package again")


@functools.cache
def device_headers() -> tuple[Path, ...]:
    """The headers for TileLang programs and all that those include, in a fixed order."""
    return with_included((header_folder() / "lang").glob("*.cuh"))


def with_included(headers: Iterable[Path]) -> tuple[Path, ...]:
    """Device headers and all of ours that those include, in a fixed order."""
    found = {header.resolve() for header in headers}
    left = list(found)
    while left:
        file = left.pop()
        for name in re.findall(r'^#include "(.+)"', file.read_text(), re.MULTILINE):
            beside = file.parent / name
            included = (beside if beside.is_file() else header_folder() / name).resolve()
            if included not in found:
                found.add(included)
                left.append(included)
    return tuple(sorted(found))


def _include_folders() -> list[Path]:
    import tvm_ffi

    tilelang = Path(str(tilelang_module().__file__)).parent
    found = tvm_ffi.libinfo
    return [
        header_folder(),
        tilelang / "src",
        tilelang / "3rdparty/cutlass/include",
        Path(found.find_include_path()),
        Path(found.find_dlpack_include_path()),
    ]


def compile_library(source: Path, library: Path, arch: str, flags: tuple[str, ...] = ()) -> None:
    """Compiles a CUDA file into a shared library that exports through TVM FFI.

    Raises:
        RuntimeError: nvcc is missing or refuses; the message ends with its first complaint.
    """
    import tvm_ffi

    ffi = Path(tvm_ffi.libinfo.find_libtvm_ffi())
    command = [
        str(nvcc()),
        "-std=c++17",
        "-O3",
        f"-gencode=arch={arch.replace('sm_', 'compute_')},code={arch}",
        "-shared",
        "-cudart=static",
        "-Xcompiler=-fPIC,-fvisibility=hidden",
        "-Xlinker=--exclude-libs,ALL,--strip-all",
        "--diag-suppress=177",  # TileLang declares variables that a kernel may not use
        *(f"-I{folder}" for folder in _include_folders()),
        *flags,
        str(source),
        f"-L{ffi.parent}",
        f"-l{ffi.name.removeprefix('lib').removesuffix('.so')}",
        "-o",
        str(library),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        complaints = [line for line in done.stderr.splitlines() if "error" in line.lower()]
        reason = (complaints or done.stderr.splitlines() or ["no message"])[0].strip()
        raise RuntimeError(f"nvcc could not compile {source.name} for {arch}: {reason}")
