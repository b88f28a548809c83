"""The native library as Python sees it: five objects and four functions, with keywords and types.

Importing loads the library, once, and touches no GPU. Everything here is also reachable from any
other TVM FFI language under the same names with the prefix ``tl_topk.``.
"""

from __future__ import annotations

from typing import Any

from tl_topk._ffi.library import LIB  # before anything else imports tvm_ffi

# isort: split

from tl_topk._ffi import exports
from tl_topk._ffi.exports import DeviceInfo, LaunchConfig
from tl_topk._ffi.plan import TopKPlan
from tl_topk._ffi.plan_set import PlanSet
from tl_topk._ffi.shards import Shards

__all__ = [
    "LIB",
    "DeviceInfo",
    "LaunchConfig",
    "PlanSet",
    "Shards",
    "TopKPlan",
    "build_info",
    "device_count",
    "device_info",
    "launch_config",
]


def build_info() -> dict[str, Any]:
    """How the library was built: version, cuda, architectures, simd, compiler."""
    info = dict(exports.build_info())
    info["architectures"] = list(info["architectures"])
    return info


def device_count() -> int:
    """How many CUDA devices there are; 0 without a driver or in a build without CUDA."""
    return exports.device_count()


def device_info(device_id: int = 0) -> DeviceInfo:
    """What CUDA device ``device_id`` offers.

    Raises:
        RuntimeError: there is no GPU, no driver, or this build holds no kernels for the device.
        ValueError: ``device_id`` is beyond the last device.
    """
    return exports.device_info(device_id)


def launch_config(
    rows: int,
    width: int,
    k: int,
    dtype: str = "float32",
    order: str = "any",
    largest: bool = True,
    values: bool = True,
    *,
    device: DeviceInfo,
    blocks_per_row: int = 0,
) -> LaunchConfig:
    """What ``device`` would be asked to do for a problem. Needs no GPU.

    With ``blocks_per_row`` so many thread blocks share a row; by default as many as are best.
    Raises ValueError where the device has no clusters of that size.

    Example:
        >>> from tl_topk._ffi import DeviceInfo, launch_config
        >>> h200 = DeviceInfo(
        ...     device_id=0, name="H200", compute_capability=90, sms=132,
        ...     shared_memory_per_block=232448, l2_bytes=60 << 20, max_cluster=16,
        ...     coresident_clusters=[132, 66, 32, 15, 7], built_architectures=["90a"])
        >>> launch_config(1, 65536, 2048, device=h200).scope
        'cluster'
    """
    return exports.launch_config(
        rows, width, k, dtype, order, largest, values, device, blocks_per_row
    )
