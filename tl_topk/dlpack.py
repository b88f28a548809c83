"""Arrays of libraries that TVM FFI has no fast way for, handed over through DLPack."""

from __future__ import annotations

from typing import Any

import tvm_ffi

__all__ = ["exported"]

_CPU = 1  # DLPack's number


class _Exported:
    """A capsule made on our terms, in the form in which TVM FFI takes one."""

    def __init__(self, capsule: object) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> object:
        return self._capsule


def exported(array: Any, stream: int) -> Any:
    """``array`` as a native tensor that shares its memory; None for None.

    Its library makes ``stream`` wait for what it has queued; -1 if that is the stream it uses.
    What is no array is returned as it is, for the native library to refuse.
    """
    export = getattr(array, "__dlpack__", None)
    if export is None:
        return array
    on_cpu = array.__dlpack_device__()[0] == _CPU  # where there are no streams
    return tvm_ffi.from_dlpack(_Exported(export(stream=None if on_cpu else stream)))
