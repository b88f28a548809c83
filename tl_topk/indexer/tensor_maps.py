"""Host functions for TileLang programs that copy by TMA: each launch makes its tensor maps.

A map describes an array to the copy engine, address included, so it belongs to a launch and not to
a plan; making one takes a tenth of a microsecond.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tl_topk.tile.compiler import HOST_HEAD, Kernel, fill

__all__ = ["TensorMap", "host_with_maps"]


@dataclass(frozen=True)
class TensorMap:
    """An array and the box of it that one copy brings; dimensions from the innermost one out.

    Attributes:
        array: the argument that points to it; TileLang calls the map ``<array>_desc``.
        kind: of its elements: uint8 (float8 as well), float32 or bfloat16.
        offset: bytes from the pointer to the first element.
        sizes: elements in each dimension, C expressions over the arguments.
        strides: bytes between neighbours in each dimension but the innermost.
        box: elements in each dimension.
        swizzled: in rows of 128 bytes, as the tensor core reads them.
    """

    array: str
    kind: str
    sizes: tuple[str, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzled: bool
    offset: int = 0

    def source(self) -> str:
        values = {
            "name": f"{self.array}_desc",
            "kind": self.kind.upper(),
            "rank": len(self.sizes),
            "address": f"(char*){self.array} + {self.offset}",
            "sizes": ", ".join(f"(cuuint64_t)({size})" for size in self.sizes),
            "strides": ", ".join(map(str, self.strides)),
            "box": ", ".join(map(str, self.box)),
            "ones": ", ".join("1" for _ in self.sizes),
            "swizzle": "128B" if self.swizzled else "NONE",
        }
        return fill(_MAP, values)


def host_with_maps(
    kernel: Kernel,
    arguments: Mapping[str, str],
    maps: Sequence[TensorMap],
) -> str:
    """The exported ``launch(*arguments, grid, stream)`` and ``prepare()``.

    ``arguments`` are C types by name; each is passed as an integer, addresses included. ``grid``
    may be one of the kernel's own. Arguments that no kernel uses are allowed; maps that it does not
    use are left out.
    """
    kinds = {name: kind for kind, name in kernel.parameters}
    used = [each for each in maps if f"{each.array}_desc" in kinds]
    arrays = {each.array for each in used}
    named = {**arguments, "grid": "int"}
    unknown = [n for n in kinds if n not in named and n.removesuffix("_desc") not in arrays]
    if unknown:
        raise RuntimeError(f"{kernel.symbol}: expected arguments {list(kinds)}, without {unknown}")
    lines = [
        f"  [[maybe_unused]] {kind} {name} = ({kind})arguments[{position}].v_int64;"
        for position, (name, kind) in enumerate(named.items())
    ]
    values = {
        "symbol": kernel.symbol,
        "count": len(named) + 1,
        "stream": len(named),
        "unpack": "\n".join(lines),
        "maps": "".join(each.source() for each in used),
        "addresses": ", ".join(f"(void*)&{name}" for _, name in kernel.parameters),
        "threads": kernel.threads,
        "shared": kernel.shared_bytes,
    }
    return fill(_HOST, values)


_MAP = r"""
  CUtensorMap @name@;
  {
    const cuuint64_t sizes[] = {@sizes@};
    const cuuint64_t strides[] = {@strides@};
    const cuuint32_t box[] = {@box@};
    const cuuint32_t ones[] = {@ones@};
    const CUresult made = tl_topk_encode(
        &@name@, CU_TENSOR_MAP_DATA_TYPE_@kind@, @rank@, @address@, sizes, strides, box, ones,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_@swizzle@,
        CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (made != CUDA_SUCCESS) return tl_topk_refused("the driver refuses the tensor map @name@");
  }
"""

_HOST = (
    r"""
#include <cuda.h>
#include <cuda_runtime.h>
#include <tvm/ffi/c_api.h>
"""
    + HOST_HEAD
    + r"""
static decltype(&cuTensorMapEncodeTiled) tl_topk_encode = nullptr;

static int tl_topk_refused(const char* what) {
  TVMFFIErrorSetRaisedFromCStr("RuntimeError", what);
  return -1;
}

// Loads the kernel on the current device, so that no launch has to: a launch may be captured.
TL_TOPK_EXPORT int __tvm_ffi_prepare(void*, const TVMFFIAny*, int32_t, TVMFFIAny* result) {
  result->type_index = kTVMFFINone;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  cudaError_t status = cudaFuncSetAttribute(
      (const void*)@symbol@, cudaFuncAttributeMaxDynamicSharedMemorySize, @shared@);
  void* found = nullptr;
  cudaDriverEntryPointQueryResult answer;
  if (status == cudaSuccess) {
    status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000,
                                              cudaEnableDefault, &answer);
  }
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  if (status != cudaSuccess) return tl_topk_status(status);
  if (found == nullptr) return tl_topk_refused("@symbol@: the driver makes no tensor maps");
  tl_topk_encode = (decltype(tl_topk_encode))found;
  return 0;
}

#ifdef TL_TOPK_PHASE_CLOCK
// Where the device keeps the clocks of the last launch.
TL_TOPK_EXPORT int __tvm_ffi_clocks(void*, const TVMFFIAny*, int32_t, TVMFFIAny* result) {
  void* clocks = nullptr;
  const cudaError_t status = cudaGetSymbolAddress(&clocks, tl_topk::indexer::clocks);
  result->type_index = kTVMFFIInt;
  result->v_int64 = (int64_t)clocks;
  return tl_topk_status(status);
}
#endif

TL_TOPK_EXPORT int __tvm_ffi_launch(void*, const TVMFFIAny* arguments, int32_t count,
                                    TVMFFIAny* result) {
  result->type_index = kTVMFFINone;
  if (count != @count@) {
    TVMFFIErrorSetRaisedFromCStr("TypeError", "@symbol@: expected @count@ arguments");
    return -1;
  }
@unpack@
@maps@
  void* parameters[] = {@addresses@};
  cudaLaunchConfig_t launch = {};
  launch.gridDim = dim3((unsigned)grid);
  launch.blockDim = dim3(@threads@);
  launch.dynamicSmemBytes = @shared@;
  launch.stream = (cudaStream_t)arguments[@stream@].v_int64;
  return tl_topk_status(cudaLaunchKernelExC(&launch, (const void*)@symbol@, parameters));
}
"""
)
