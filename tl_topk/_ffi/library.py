"""Loads the native library, once: a second copy in one process would end it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def _torch_asks_nvml() -> Iterator[None]:
    """While it is imported, tvm_ffi asks torch for CUDA. By default torch answers by starting the
    driver, after which the process can no longer fork and use the GPU; NVML tells without that.
    """
    name = "PYTORCH_NVML_BASED_CUDA_CHECK"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


with _torch_asks_nvml():
    import tvm_ffi

__all__ = ["LIB"]

_CHECKOUT = Path(__file__).resolve().parents[2]


def _load() -> tvm_ffi.Module:
    """The library of the installed package, else the one in ``build/`` of a bare checkout."""
    try:
        return tvm_ffi.libinfo.load_lib_module(
            "tl-topk", "tl_topk", extra_lib_paths=[_CHECKOUT / "build"]
        )
    except RuntimeError as error:
        raise ImportError(
            "the native library of tl_topk is missing: install the package with `pip install .`, or"
            " in a checkout run `cmake -S . -B build && cmake --build build`"
        ) from error


LIB = _load()
