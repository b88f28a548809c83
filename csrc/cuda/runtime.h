// CUDA runtime calls with their errors turned into exceptions, and the one place that launches.
#pragma once

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

#include "config.h"

namespace tl_topk {

inline void check_cuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();  // the error is reported here; the next call must not report it again
  throw std::runtime_error(std::string(what) + ": " + cudaGetErrorName(status) + ": " +
                           cudaGetErrorString(status));
}

// Once per kernel and device: more than 48 KB of shared memory, and clusters of 16.
template <typename Kernel>
void allow_large_launches(Kernel kernel) {
  static bool done[64] = {};  // setting an attribute twice is harmless, so no lock
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  if (device < 64 && done[device]) return;
  int shared = 0;
  check_cuda(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
             "cudaDeviceGetAttribute");
  cudaFuncAttributes attributes{};
  check_cuda(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  shared - static_cast<int>(attributes.sharedSizeBytes)),
             "cudaFuncSetAttribute");
  // Refused before compute capability 9.0, where no configuration asks for clusters.
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) !=
      cudaSuccess) {
    (void)cudaGetLastError();
  }
  if (device < 64) done[device] = true;
}

template <typename... Params>
void launch(void (*kernel)(Params...), const LaunchConfig& config, cudaStream_t stream,
            const Params&... params) {
  allow_large_launches(kernel);
  cudaLaunchAttribute attributes[1];
  cudaLaunchConfig_t launch{};
  launch.gridDim = dim3(static_cast<unsigned>(config.grid_blocks));
  launch.blockDim = dim3(static_cast<unsigned>(config.threads));
  launch.dynamicSmemBytes = static_cast<size_t>(config.shared_bytes);
  launch.stream = stream;
  launch.attrs = attributes;
  if (config.scope == Scope::kCluster) {
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim.x = static_cast<unsigned>(config.blocks_per_row);
    attributes[0].val.clusterDim.y = 1;
    attributes[0].val.clusterDim.z = 1;
    launch.numAttrs = 1;
  }
  check_cuda(cudaLaunchKernelEx(&launch, kernel, params...), "cudaLaunchKernelEx");
}

}  // namespace tl_topk
