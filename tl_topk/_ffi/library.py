"""Loads the native library, once: a second copy in one process would end it."""

from __future__ import annotations

from pathlib import Path

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
