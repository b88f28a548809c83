// What there is to launch on; see launch.h.
#include "cuda/launch.h"

#include <cuda_runtime.h>

#include <mutex>
#include <optional>

#include "cuda/kernels.h"
#include "cuda/memory.h"
#include "cuda/runtime.h"

namespace tl_topk {

namespace {

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  check_cuda(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
  return value;
}

// How many clusters of this launch of float32 scores fit on the GPU at once; 0 where it refuses the
// size.
int coresident_clusters(const LaunchConfig& config, int device) {
  const KernelSymbol kernel = find_kernel<Dtype::kFloat32>(config, true);
  allow_large_launches(kernel, device);
  cudaLaunchAttribute cluster{};
  const cudaLaunchConfig_t launch = runtime_launch(config, nullptr, cluster);
  int clusters = 0;
  if (cudaOccupancyMaxActiveClusters(&clusters, kernel, &launch) == cudaSuccess) return clusters;
  (void)cudaGetLastError();
  return 0;
}

DeviceFacts read_device(int device) {
  const DeviceGuard guard(device);
  DeviceFacts facts;
  facts.compute_capability = 10 * attribute(cudaDevAttrComputeCapabilityMajor, device) +
                             attribute(cudaDevAttrComputeCapabilityMinor, device);
  facts.sms = attribute(cudaDevAttrMultiProcessorCount, device);
  facts.shared_memory_per_block = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  facts.l2_bytes = attribute(cudaDevAttrL2CacheSize, device);
  facts.coresident_clusters[0] = facts.sms;
  if (facts.compute_capability < 90) return facts;
  // Asked for k = 2048, the commonest problem; other launches need about as much of a block.
  Problem typical;
  typical.rows = 1;
  typical.width = kMaxWidth;
  typical.k = 2048;
  for (size_t i = 1; i < kClusterSizes.size(); ++i) {
    facts.coresident_clusters[i] = 1;  // so that this size may be chosen
    facts.coresident_clusters[i] = coresident_clusters(choose_launch(typical, facts), device);
  }
  return facts;
}

}  // namespace

bool built_with_cuda() { return true; }
const char* built_architectures() { return TL_TOPK_CUDA_ARCHS; }

int cuda_device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  (void)cudaGetLastError();
  return 0;
}

const DeviceFacts& query_device(int device) {
  static std::mutex mutex;
  static std::optional<DeviceFacts> known[kMaxDevices];
  const int count = cuda_device_count();
  if (count == 0) throw std::runtime_error("no CUDA device or driver was found");
  if (device < 0 || device >= count || device >= kMaxDevices) {
    throw std::runtime_error("no CUDA device has number " + std::to_string(device) +
                             ": there are " + std::to_string(count));
  }
  const std::lock_guard<std::mutex> lock(mutex);
  if (!known[device].has_value()) known[device] = read_device(device);
  return *known[device];
}

std::string device_name(int device) {
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  return properties.name;
}

}  // namespace tl_topk
