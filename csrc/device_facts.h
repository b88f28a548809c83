// What the launch configuration must know of a GPU. A plain value: tests and `explain` make their
// own, query_device() reads a real one.
#pragma once

#include <array>
#include <cstdint>

namespace tl_topk {

// Cluster sizes a kernel may use, as indices into DeviceFacts::coresident_clusters.
constexpr std::array<int, 5> kClusterSizes = {1, 2, 4, 8, 16};

struct DeviceFacts {
  int compute_capability = 0;           // 90 for a Hopper GPU
  int sms = 0;                          // streaming multiprocessors the process may use
  int64_t shared_memory_per_block = 0;  // bytes, the opt-in limit
  int64_t l2_bytes = 0;
  // Clusters of 1, 2, 4, 8, 16 blocks of the widest kernel that fit on the GPU at once; 0 where the
  // size is not supported.
  std::array<int, 5> coresident_clusters = {0, 0, 0, 0, 0};
};

}  // namespace tl_topk
