// What a block keeps in shared memory, and the shape of a launch as the kernels see it.
#pragma once

#include <cstdint>

#include "cuda/anchors.cuh"
#include "cuda/radix.cuh"
#include "cuda/survivors.cuh"

namespace tl_topk {

constexpr uint32_t kMaxClusterBlocks = 16;
constexpr uint32_t kSelectBins = 512;
constexpr uint32_t kMaxResidual = 256;  // ranked by one comparison a pair; more go to the radix

struct KernelShape {
  uint32_t segment_capacity;  // entries one block may deliver to the leader
  uint32_t sort_entries;      // 0 when the order of slots is free, else a power of two >= k
};

// The fixed part; the leader's entry segments and the sort buffer follow it.
struct SharedState {
  RadixScratch radix;
  uint32_t group_keys[kGroups];
  uint32_t select_bins[kSelectBins];
  Entry residual[kMaxResidual];
  uint32_t counts[kMaxClusterBlocks];  // survivors each block delivered here
  float floors[kMaxClusterBlocks];     // and the floor it used
  Anchors anchors;
  uint32_t survivors;
  uint32_t winners;
  uint32_t residual_count;
  uint32_t verdict;
};

}  // namespace tl_topk
