// CUDA runtime calls with their errors turned into exceptions, and the one place that launches.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
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

constexpr int kMaxDevices = 64;

// Once per kernel and device: more than 48 KB of shared memory, and clusters of 16.
template <auto kKernel>
void allow_large_launches(int device) {
  static std::atomic<bool> done[kMaxDevices];  // setting an attribute twice is harmless: no lock
  if (device < kMaxDevices && done[device].load(std::memory_order_relaxed)) return;
  int shared = 0;
  check_cuda(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
             "cudaDeviceGetAttribute");
  cudaFuncAttributes attributes{};
  check_cuda(cudaFuncGetAttributes(&attributes, kKernel), "cudaFuncGetAttributes");
  check_cuda(cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  shared - static_cast<int>(attributes.sharedSizeBytes)),
             "cudaFuncSetAttribute");
  // Refused before compute capability 9.0, where no configuration asks for clusters.
  if (cudaFuncSetAttribute(kKernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) !=
      cudaSuccess) {
    (void)cudaGetLastError();
  }
  if (device < kMaxDevices) done[device].store(true, std::memory_order_relaxed);
}

// `attributes` must outlive the result.
template <auto kKernel>
cudaLaunchConfig_t make_launch(const LaunchConfig& config, cudaStream_t stream,
                               cudaLaunchAttribute (&attributes)[1]) {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  allow_large_launches<kKernel>(device);
  cudaLaunchConfig_t launch{};
  launch.gridDim = dim3(static_cast<unsigned>(config.grid_blocks));
  launch.blockDim = dim3(static_cast<unsigned>(config.threads));
  launch.dynamicSmemBytes = static_cast<size_t>(config.shared_bytes);
  launch.stream = stream;
  launch.attrs = attributes;
  if (config.blocks_per_row > 1) {
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim.x = static_cast<unsigned>(config.blocks_per_row);
    attributes[0].val.clusterDim.y = 1;
    attributes[0].val.clusterDim.z = 1;
    launch.numAttrs = 1;
  }
  return launch;
}

template <auto kKernel, typename... Params>
void launch(const LaunchConfig& config, cudaStream_t stream, const Params&... params) {
  cudaLaunchAttribute attributes[1];
  const cudaLaunchConfig_t launch = make_launch<kKernel>(config, stream, attributes);
  check_cuda(cudaLaunchKernelEx(&launch, kKernel, params...), "cudaLaunchKernelEx");
}

}  // namespace tl_topk
