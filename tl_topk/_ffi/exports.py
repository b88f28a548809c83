"""The native library's exports, typed. Text between the markers is written by

    tvm-ffi-stubgen tl_topk/_ffi --dlls build/libtl_topk.so

and a test compares it with the library.
"""

# tvm-ffi-stubgen(begin): import-section
# fmt: off
# isort: off
from __future__ import annotations
from tvm_ffi import init_ffi_api as _FFI_INIT_FUNC
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from tvm_ffi import Tensor
    from typing import Any, Callable
# isort: on
# fmt: on
# tvm-ffi-stubgen(end)

from tvm_ffi import Object
from tvm_ffi.dataclasses import c_class

import tl_topk._ffi.library  # registers the names below

if TYPE_CHECKING:
    from tl_topk._ffi.plan import TopKPlan

# tvm-ffi-stubgen(begin): global/tl_topk
# fmt: off
_FFI_INIT_FUNC("tl_topk", __name__)
if TYPE_CHECKING:
    def as_bfloat16(_0: Tensor, /) -> Tensor: ...
    def build_info() -> Mapping[str, Any]: ...
    def device_count() -> int: ...
    def device_info(_0: int, /) -> DeviceInfo: ...
    def launch_config(_0: int, _1: int, _2: int, _3: str, _4: str, _5: bool, _6: bool, _7: DeviceInfo, _8: int, /) -> LaunchConfig: ...
    def plan(_0: int, _1: int, _2: int, _3: str, _4: str, _5: bool, _6: bool, _7: str, _8: int, _9: int, _10: int, /) -> TopKPlan: ...
    def tile_plan(_0: int, _1: int, _2: int, _3: str, _4: str, _5: bool, _6: bool, _7: int, _8: Callable[..., Any], _9: int, _10: int, _11: str, /) -> TopKPlan: ...
    def topk(_0: Tensor, _1: int, _2: Tensor, _3: Tensor | None, _4: Tensor | None, _5: Tensor | None, _6: bool, _7: str, /) -> None: ...
    def wait_for_device(_0: int, /) -> None: ...
# fmt: on
# tvm-ffi-stubgen(end)


@c_class("tl_topk.DeviceInfo", eq=True, unsafe_hash=True)
class DeviceInfo(Object):
    """What a GPU offers: plain data, read by :func:`device_info` or made up to ask "what if".

    Attributes:
        device_id: CUDA's number of the device.
        name: as its maker calls it.
        compute_capability: 90 for a Hopper GPU.
        sms: streaming multiprocessors.
        shared_memory_per_block: bytes, the opt-in limit.
        l2_bytes: size of the L2 cache.
        max_cluster: blocks in the largest cluster, for the reader; the sizes below decide.
        coresident_clusters: how many clusters of 1, 2, 4, 8 and 16 blocks fit on the GPU at once.
        built_architectures: what the library holds kernels for, such as ``"90a"``.
    """

    # tvm-ffi-stubgen(begin): object/tl_topk.DeviceInfo
    # fmt: off
    device_id: int
    name: str
    compute_capability: int
    sms: int
    shared_memory_per_block: int
    l2_bytes: int
    max_cluster: int
    coresident_clusters: Sequence[int]
    built_architectures: Sequence[str]
    if TYPE_CHECKING:
        def __init__(self, device_id: int, name: str, compute_capability: int, sms: int, shared_memory_per_block: int, l2_bytes: int, max_cluster: int, coresident_clusters: Sequence[int], built_architectures: Sequence[str]) -> None: ...
        def __ffi_init__(self, device_id: int, name: str, compute_capability: int, sms: int, shared_memory_per_block: int, l2_bytes: int, max_cluster: int, coresident_clusters: Sequence[int], built_architectures: Sequence[str]) -> None: ...  # ty: ignore[invalid-method-override]
    # fmt: on
    # tvm-ffi-stubgen(end)


@c_class("tl_topk.LaunchConfig", eq=True, unsafe_hash=True)
class LaunchConfig(Object):
    """How the GPU is asked to solve a problem: a pure function of problem and device.

    Attributes:
        scope: what works on a row, ``"block"``, ``"cluster"`` or ``"grid"`` (several clusters).
        large_k: whether the slower path for very large k is taken.
        blocks_per_row: thread blocks that share a row.
        cluster_blocks: thread blocks of a cluster.
        threads: per block.
        vectors_per_thread: 16-byte loads that a thread has in flight.
        grid_blocks: thread blocks in all.
        shared_bytes: dynamic shared memory per block.
        page_words: page numbers of a row, of 4 bytes, that a block of a mapped launch has room
            for besides.
        workspace_bytes: device memory, zeroed once; every launch leaves its counters zeroed.
        reason: one sentence.
    """

    # tvm-ffi-stubgen(begin): object/tl_topk.LaunchConfig
    # fmt: off
    scope: str
    large_k: bool
    blocks_per_row: int
    cluster_blocks: int
    threads: int
    vectors_per_thread: int
    grid_blocks: int
    shared_bytes: int
    page_words: int
    workspace_bytes: int
    reason: str
    if TYPE_CHECKING:
        def __init__(self, scope: str, large_k: bool, blocks_per_row: int, cluster_blocks: int, threads: int, vectors_per_thread: int, grid_blocks: int, shared_bytes: int, page_words: int, workspace_bytes: int, reason: str) -> None: ...
        def __ffi_init__(self, scope: str, large_k: bool, blocks_per_row: int, cluster_blocks: int, threads: int, vectors_per_thread: int, grid_blocks: int, shared_bytes: int, page_words: int, workspace_bytes: int, reason: str) -> None: ...  # ty: ignore[invalid-method-override]
    # fmt: on
    # tvm-ffi-stubgen(end)


class TopKPlanFields(Object):
    """What :class:`tl_topk.TopKPlan` inherits: there, keywords and defaults are added."""

    # tvm-ffi-stubgen(begin): object/tl_topk.TopKPlan
    # fmt: off
    rows: int
    width: int
    k: int
    dtype: str
    order: str
    largest: bool
    values: bool
    device_type: str
    device_id: int
    threads: int
    blocks_per_row: int
    backend: str
    config: LaunchConfig | None
    reason: str
    workspace_bytes: int
    if TYPE_CHECKING:
        def __init__(self, rows: int, width: int, k: int, dtype: str, order: str, largest: bool, values: bool, device_type: str, device_id: int, threads: int, blocks_per_row: int) -> None: ...
        def __ffi_init__(self, _0: int, _1: int, _2: int, _3: str, _4: str, _5: bool, _6: bool, _7: str, _8: int, _9: int, _10: int, /) -> None: ...  # ty: ignore[invalid-method-override]
        def overlap(self, /) -> None: ...
        def run(self, _1: Tensor, _2: Tensor, _3: Tensor | None, _4: Tensor | None, _5: Tensor | None, _6: Tensor | None, /) -> None: ...
        def run_mapped(self, _1: Tensor, _2: Tensor | None, _3: Tensor | None, _4: Tensor | None, _5: Tensor | None, _6: Tensor | None, _7: Tensor | None, _8: Tensor | None, _9: Tensor | None, _10: Tensor | None, _11: Tensor | None, _12: Tensor | None, _13: int, _14: int, _15: int, _16: int, _17: Tensor | None, /) -> None: ...
        def explain(self, /) -> str: ...
    # fmt: on
    # tvm-ffi-stubgen(end)


class PlanSetFields(Object):
    """What :class:`tl_topk._ffi.PlanSet` inherits."""

    # tvm-ffi-stubgen(begin): object/tl_topk.PlanSet
    # fmt: off
    if TYPE_CHECKING:
        def __init__(self) -> None: ...
        def __ffi_init__(self, _0: Sequence[TopKPlan], /) -> None: ...  # ty: ignore[invalid-method-override]
        def run(self, _1: Tensor, _2: Tensor, _3: Tensor | None, _4: Tensor | None, _5: Tensor | None, /) -> bool: ...
    # fmt: on
    # tvm-ffi-stubgen(end)


class ShardsFields(Object):
    """What :class:`tl_topk._ffi.Shards` inherits."""

    # tvm-ffi-stubgen(begin): object/tl_topk.Shards
    # fmt: off
    rank: int
    widths: Sequence[int]
    block: int
    if TYPE_CHECKING:
        def __init__(self, rank: int, widths: Sequence[int], block: int) -> None: ...
        def __ffi_init__(self, _0: int, _1: Sequence[int], _2: int, /) -> None: ...  # ty: ignore[invalid-method-override]
        def local_lengths(self, _1: Tensor, _2: Tensor, /) -> None: ...
        def merge_parts(self, _1: Tensor, _2: int, _3: Tensor, _4: Tensor, _5: Tensor | None, _6: bool, _7: str, /) -> None: ...
        def sample(self, _1: Tensor, _2: Tensor, _3: bool, _4: int, _5: Tensor, /) -> None: ...
        def contribute(self, _1: Tensor, _2: Tensor, _3: Tensor, _4: bool, _5: int, _6: int, _7: Tensor, /) -> None: ...
        def merge_words(self, _1: Tensor, _2: Tensor, _3: Tensor, _4: Tensor | None, _5: bool, _6: str, /) -> None: ...
    # fmt: on
    # tvm-ffi-stubgen(end)
