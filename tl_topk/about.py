"""What this installation is and what it can do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

import tl_topk
from tl_topk import _ffi
from tl_topk.backends import BACKENDS

__all__ = ["Info", "info"]

_DEVICE_FIELDS = (
    "device_id",
    "name",
    "compute_capability",
    "sms",
    "shared_memory_per_block",
    "l2_bytes",
    "max_cluster",
    "coresident_clusters",
    "built_architectures",
)


class Info(TypedDict):
    """Plain data, ready for JSON."""

    version: str
    build: dict[str, Any]
    devices: list[dict[str, Any]]
    backends: dict[str, str]


def info() -> Info:
    """What is installed: version, build, devices, and every backend with its state.

    Returns:
        A dict ready for JSON. ``"build"``: how the native library was built. ``"devices"``: each
        GPU's facts, sizes in bytes. ``"backends"``: by name, ``"available"`` or the reason why not.

    Example:
        >>> import tl_topk
        >>> tl_topk.info()["backends"]["cpu"]
        'available'
    """
    devices = (_ffi.device_info(device) for device in range(_ffi.device_count()))
    return Info(
        version=tl_topk.__version__,
        build=_plain_items(_ffi.build_info()),
        devices=[_plain_items({f: getattr(d, f) for f in _DEVICE_FIELDS}) for d in devices],
        backends={b.name: b.unavailable() or "available" for b in BACKENDS.values()},
    )


def _plain_items(items: Mapping[str, Any]) -> dict[str, Any]:
    """Strings, numbers and lists of them, where the native library has its own kinds."""
    return {str(name): _plain(value) for name, value in items.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return str(value)
    return value if isinstance(value, (bool, int)) else [_plain(each) for each in value]
