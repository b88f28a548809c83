"""GPUs as plain facts: read from one, or those of one that somebody only names."""

from __future__ import annotations

from functools import cache

from tl_topk import _ffi
from tl_topk._ffi import DeviceInfo
from tl_topk.problem import Gpu, one_of

__all__ = ["NAMED", "device_named", "gpu_of", "native_facts"]

#: Clusters of 1, 2, 4, 8 and 16 blocks that fit at once, as an H200 and an H100 SXM answer when
#: asked; of GPUs that have not been asked, its share by SMs.
_HOPPER_CLUSTERS = (132, 66, 30, 15, 7)
_HOPPER_SMS = 132


def _hopper(name: str, sms: int, l2_mib: int, memory_tb_per_s: float) -> Gpu:
    clusters = tuple(fitting * sms // _HOPPER_SMS for fitting in _HOPPER_CLUSTERS)
    return Gpu(name, 90, sms, 232_448, l2_mib << 20, clusters, memory_tb_per_s)


#: By the names that ``explain`` takes: what their maker states.
NAMED: dict[str, Gpu] = {
    "h200": _hopper("NVIDIA H200", 132, 60, 4.8),
    "h100": _hopper("NVIDIA H100 80GB HBM3", 132, 50, 3.35),
    "h100-pcie": _hopper("NVIDIA H100 PCIe", 114, 50, 2.0),
    "h20": _hopper("NVIDIA H20", 78, 60, 4.0),
    "a100": Gpu("NVIDIA A100-SXM4-80GB", 80, 108, 166_912, 40 << 20, (108, 0, 0, 0, 0), 2.04),
    "b200": Gpu("NVIDIA B200", 100, 148, 232_448, 126 << 20, (148, 74, 33, 16, 7), 8.0),
}
_BY_NAME = {gpu.name: gpu for gpu in NAMED.values()}


@cache
def gpu_of(device_id: int) -> Gpu:
    """The facts of CUDA device ``device_id``.

    Raises:
        RuntimeError: there is no GPU, no driver, or no kernels for it in this build.
        ValueError: there is no such device.
    """
    info = _ffi.device_info(device_id)
    known = _BY_NAME.get(str(info.name))
    return Gpu(
        str(info.name),
        int(info.compute_capability),
        int(info.sms),
        int(info.shared_memory_per_block),
        int(info.l2_bytes),
        tuple(int(fitting) for fitting in info.coresident_clusters),
        None if known is None else known.memory_tb_per_s,
    )


@cache
def native_facts(gpu: Gpu) -> DeviceInfo:
    """``gpu`` in the form that the native configuration function takes."""
    sizes = (1, 2, 4, 8, 16)
    return DeviceInfo(
        device_id=0,
        name=gpu.name,
        compute_capability=gpu.compute_capability,
        sms=gpu.sms,
        shared_memory_per_block=gpu.shared_memory_per_block,
        l2_bytes=gpu.l2_bytes,
        max_cluster=max(n for n, fit in zip(sizes, gpu.coresident_clusters, strict=True) if fit),
        coresident_clusters=list(gpu.coresident_clusters),
        built_architectures=[],
    )


def device_named(name: object) -> tuple[str, int, Gpu | None]:
    """Device type, number and facts of ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or a GPU's name.

    The facts of a GPU in this machine are left to whoever decides. Raises ValueError for any other
    name.
    """
    text = name.strip().lower() if isinstance(name, str) else ""
    if text == "cpu":
        return "cpu", 0, None
    kind, _, number = text.partition(":")
    if kind == "cuda" and (number.isdecimal() or text == "cuda"):
        return "cuda", int(number or 0), None
    if text not in NAMED:
        raise ValueError(f"device: expected {one_of(('cpu', 'cuda', *NAMED))}, got {name!r}")
    return "cuda", 0, NAMED[text]
