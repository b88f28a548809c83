"""From a TileLang program to a library with one exported function, ``launch``.

TileLang lowers a program to CUDA source. To that is added a host function of a few lines: it takes
the kernel's arguments as plain numbers and pointers, in the order that the program states, and
launches. So no TileLang is needed to load or call the result, a launch costs what the driver asks
for, and none of TileLang's launch attributes is set unasked.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tl_topk.tile.toolchain import compile_library, tilelang_module

__all__ = ["HOST_HEAD", "Kernel", "Program", "build", "fill", "lower"]

#: Launches need no tensor maps: copies go by cp.async, which takes any address. Buffers that lie
#: in one another's memory are wrong when an extern function uses both.
_PASSES: Mapping[str, Any] = {
    "tl.disable_tma_lower": True,
    "tl.disable_warp_specialized": True,
    "tl.disable_safe_memory_legalize": True,
    "tl.disable_shared_memory_reuse": True,
    "tl.disable_out_of_bound_warning": True,
}


@dataclass(frozen=True)
class Program:
    """One specialisation of a TileLang program.

    Attributes:
        name: of the specialisation, unique, fit for a file's name.
        trace: makes the ``T.prim_func``; called on a miss only, so it may import TileLang.
        arguments: the kernel's parameters by name, in the order that ``launch`` takes them, before
            ``grid`` (thread blocks) and ``stream`` (a pointer), which are not named here.
        sources: files and folders whose content decides what the program does, beside the device
            headers and this file, which always count.
        cluster: blocks in a cluster.
        passes: of TileLang's pass configuration, in the place of the usual ones.
        flags: for nvcc.
        host: makes the host functions from the kernel where the usual one does not do, for example
            where there are tensor maps.
    """

    name: str
    trace: Callable[[], Any]
    arguments: tuple[str, ...]
    sources: tuple[Path, ...] = ()
    cluster: int = 1
    passes: Mapping[str, Any] = field(default_factory=lambda: _PASSES)
    flags: tuple[str, ...] = ()
    host: Callable[[Kernel], str] | None = None


@dataclass(frozen=True)
class Kernel:
    """A lowered program.

    Attributes:
        symbol: the ``__global__`` function's name.
        parameters: C type and name of each, in the function's order.
        threads: per block.
        shared_bytes: dynamic shared memory per block.
        source: CUDA.
    """

    symbol: str
    parameters: tuple[tuple[str, str], ...]
    threads: int
    shared_bytes: int
    source: str


def lower(program: Program, arch: str) -> Kernel:
    """The CUDA source of ``program``. Needs TileLang, no GPU and no nvcc.

    Raises:
        RuntimeError: TileLang is missing, or refuses the program.
    """
    tilelang = tilelang_module()
    tvm = tilelang.tvm
    with (
        tvm.target.Target({"kind": "cuda", "arch": arch}),
        tvm.transform.PassContext(opt_level=3, config=dict(program.passes)),
    ):
        artifact = tilelang.lower(program.trace())
    functions = list(artifact.device_mod.functions.values())
    if len(functions) != 1:
        raise RuntimeError(f"{program.name}: expected one kernel, got {len(functions)}")
    attributes = functions[0].attrs
    symbol = str(attributes["global_symbol"])
    extent = {str(axis): size for axis, size in attributes["thread_extent"].items()}
    shared = attributes.get("dyn_shared_memory_buf", 0)
    return Kernel(
        symbol=symbol,
        parameters=_parameters(artifact.kernel_source, symbol),
        threads=int(extent["threadIdx.x"]),
        shared_bytes=int(shared),
        source=artifact.kernel_source,
    )


def _parameters(source: str, symbol: str) -> tuple[tuple[str, str], ...]:
    """The parameters in the declaration that precedes the definition."""
    found = re.search(rf"__global__ void {symbol}\((.*?)\);", source, re.DOTALL)
    if found is None:
        raise RuntimeError(f"TileLang's source declares no kernel {symbol}")
    parameters = []
    for text in filter(None, (each.strip() for each in found[1].split(","))):
        kind, name = re.sub(r"__restrict__|__grid_constant__", "", text).rsplit(None, 1)
        parameters.append((kind.strip(), name))
    return tuple(parameters)


def host_source(kernel: Kernel, arguments: Sequence[str], cluster: int) -> str:
    """The exported functions: ``launch(*arguments, grid, stream)`` and ``prepare()``.

    Raises:
        RuntimeError: the arguments are not the kernel's parameters.
    """
    kinds = {name: kind for kind, name in kernel.parameters}
    count = len(arguments) + 2
    arguments = (*arguments, "grid")  # which the kernel may take as well
    # A parameter that the kernel never reads is dropped by TileLang.
    unknown = [name for name in kinds if name not in arguments]
    if unknown:
        raise RuntimeError(f"{kernel.symbol}: expected arguments {list(kinds)}, without {unknown}")
    lines = []
    for position, name in enumerate(arguments):
        if name in kinds:
            kind = kinds[name]
            member = "v_ptr" if "*" in kind else "v_float64" if kind == "float" else "v_int64"
            lines.append(f"  {kind} {name} = ({kind})arguments[{position}].{member};")
    values = {
        "symbol": kernel.symbol,
        "count": count,
        "grid": count - 2,
        "stream": count - 1,
        "unpack": "\n".join(lines),
        "addresses": ", ".join(f"(void*)&{name}" for _, name in kernel.parameters),
        "threads": kernel.threads,
        "shared": kernel.shared_bytes,
        "cluster": cluster,
    }
    return fill(_HOST, values)


def fill(text: str, values: Mapping[str, object]) -> str:
    """``text`` with each ``@name@`` replaced by its value."""
    return re.sub(r"@(\w+)@", lambda match: str(values[match[1]]), text)


#: What every library's host code begins with, after its includes.
HOST_HEAD = r"""
#define TL_TOPK_EXPORT extern "C" __attribute__((visibility("default")))

static int tl_topk_status(cudaError_t status) {
  if (status == cudaSuccess) return 0;
  (void)cudaGetLastError();
  const char* parts[] = {"@symbol@: ", cudaGetErrorName(status), ": ", cudaGetErrorString(status)};
  TVMFFIErrorSetRaisedFromCStrParts("RuntimeError", parts, 4);
  return -1;
}
"""

_HOST = (
    r"""
#include <cuda_runtime.h>
#include <tvm/ffi/c_api.h>

"""
    + HOST_HEAD
    + r"""
// Loads the kernel on the current device, so that no launch has to: a launch may be captured.
TL_TOPK_EXPORT int __tvm_ffi_prepare(void*, const TVMFFIAny*, int32_t, TVMFFIAny* result) {
  result->type_index = kTVMFFINone;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  cudaError_t status = cudaFuncSetAttribute(
      (const void*)@symbol@, cudaFuncAttributeMaxDynamicSharedMemorySize, @shared@);
  if (status == cudaSuccess && @cluster@ > 8) {
    status = cudaFuncSetAttribute(
        (const void*)@symbol@, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  }
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  return tl_topk_status(status);
}

TL_TOPK_EXPORT int __tvm_ffi_launch(void*, const TVMFFIAny* arguments, int32_t count,
                                    TVMFFIAny* result) {
  result->type_index = kTVMFFINone;
  if (count != @count@) {
    TVMFFIErrorSetRaisedFromCStr("TypeError", "@symbol@: expected @count@ arguments");
    return -1;
  }
@unpack@
  void* parameters[] = {@addresses@};
  cudaLaunchConfig_t launch = {};
  launch.gridDim = dim3((unsigned)arguments[@grid@].v_int64);
  launch.blockDim = dim3(@threads@);
  launch.dynamicSmemBytes = @shared@;
  launch.stream = (cudaStream_t)arguments[@stream@].v_ptr;
  cudaLaunchAttribute attribute;
  if (@cluster@ > 1) {
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = @cluster@;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    launch.attrs = &attribute;
    launch.numAttrs = 1;
  }
  return tl_topk_status(cudaLaunchKernelExC(&launch, (const void*)@symbol@, parameters));
}
"""
)


def build(program: Program, arch: str, library: Path) -> None:
    """Compiles ``program`` into ``library``, a path that must not exist or may be replaced.

    Raises:
        RuntimeError: a tool is missing, or refuses.
    """
    kernel = lower(program, arch)
    if program.host is not None:
        host = program.host(kernel)
    else:
        host = host_source(kernel, program.arguments, program.cluster)
    with tempfile.TemporaryDirectory(prefix="tl_topk-") as folder:
        source = Path(folder) / f"{program.name}.cu"
        source.write_text(kernel.source + host)
        compile_library(source, library, arch, program.flags)
