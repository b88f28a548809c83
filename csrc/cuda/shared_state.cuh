// What a block keeps in shared memory.
#pragma once

#include <cstdint>

#include "cuda/anchors.cuh"
#include "cuda/block_order.cuh"
#include "cuda/radix.cuh"
#include "cuda/survivors.cuh"

namespace tl_topk {

constexpr uint32_t kMaxClusterBlocks = 16;
constexpr uint32_t kSelectBins = 512;
constexpr uint32_t kMaxResidual = 256;  // ranked by one comparison a pair; more go to the radix

enum Verdict : uint32_t { kSelected, kMisled };

// What the leader tells the others: did the sample serve, and the highest floor that was used.
struct __align__(8) VerdictMessage {
  uint32_t verdict;
  float floor;
};

// The fixed part; the leader's entry segments and the sort buffer follow it.
struct SharedState {
  union {  // no row needs both at once
    RadixScratch radix;
    OrderScratch order;
  };
  AnchorScratch anchors;
  uint32_t select_bins[kSelectBins];
  __align__(16) uint64_t residual[kMaxResidual];  // ranks, read two at a time
  Delivery deliveries[kMaxClusterBlocks];         // at the leader
  uint64_t delivered;                             // barrier: all deliveries are here (leader)
  uint64_t decided;                               // barrier: the verdict is here (others)
  VerdictMessage verdict;
  SamplePlan plan;
  uint32_t survivors;
  uint32_t sent;  // of the survivors, those that found room
  uint32_t winners;
  uint32_t residual_count;
};

}  // namespace tl_topk
