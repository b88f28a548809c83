// The two calls of the CUDA driver that a launch needs. The runtime's launch looks the kernel up by
// its symbol and asks for the current device each time; the driver is handed both.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

namespace tl_topk {

struct Driver {
  CUresult (*current_context)(CUcontext*) = nullptr;
  CUresult (*launch)(const CUlaunchConfig*, CUfunction, void**, void**) = nullptr;
};

// Asked of the runtime, as the library is linked with no driver: it loads where there is none.
template <typename Function>
bool find_driver_function(const char* name, int version, Function*& function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t status = cudaGetDriverEntryPointByVersion(
      name, &found, static_cast<unsigned>(version), cudaEnableDefault, &result);
#else
  (void)version;
  const cudaError_t status = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result);
#endif
  if (status != cudaSuccess) {
    (void)cudaGetLastError();
    return false;
  }
  function = reinterpret_cast<Function*>(found);
  return result == cudaDriverEntryPointSuccess && found != nullptr;
}

// Null where the driver is too old for either.
inline const Driver* driver() {
  static const Driver found = [] {
    Driver calls;
    const bool both = find_driver_function("cuCtxGetCurrent", 4000, calls.current_context) &&
                      find_driver_function("cuLaunchKernelEx", 11080, calls.launch);
    return both ? calls : Driver{};
  }();
  return found.launch != nullptr ? &found : nullptr;
}

}  // namespace tl_topk
