// CUDA runtime calls with their errors turned into exceptions.
#pragma once

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

#include "config.h"
#include "cuda/kernels.h"

namespace tl_topk {

inline void check_cuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();  // the error is reported here; the next call must not report it again
  throw std::runtime_error(std::string(what) + ": " + cudaGetErrorName(status) + ": " +
                           cudaGetErrorString(status));
}

constexpr int kMaxDevices = 64;

// On the current device: more than 48 KB of shared memory, and clusters of 16. Doing it twice is
// harmless.
inline void allow_large_launches(KernelSymbol kernel, int device) {
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
}

// `cluster` must outlive the result.
inline cudaLaunchConfig_t runtime_launch(const LaunchConfig& config, cudaStream_t stream,
                                         cudaLaunchAttribute& cluster) {
  cudaLaunchConfig_t launch{};
  launch.gridDim = dim3(static_cast<unsigned>(config.grid_blocks));
  launch.blockDim = dim3(static_cast<unsigned>(config.threads));
  launch.dynamicSmemBytes = static_cast<size_t>(config.shared_bytes);
  launch.stream = stream;
  if (config.cluster_blocks > 1) {
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = static_cast<unsigned>(config.cluster_blocks);
    cluster.val.clusterDim.y = 1;
    cluster.val.clusterDim.z = 1;
    launch.attrs = &cluster;
    launch.numAttrs = 1;
  }
  return launch;
}

}  // namespace tl_topk
