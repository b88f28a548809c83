// The floor: a value almost surely below the row's k-th element, from what the block has just
// loaded. The statistics are in sampling.h.
#pragma once

#include <cstdint>

#include "cuda/prefix_sum.cuh"
#include "cuda/row.cuh"
#include "key.h"
#include "sampling.h"

namespace tl_topk {

struct Anchors {
  float floor;    // elements at or below it are rejected; -inf when nothing may be
  float low;      // bin 0 begins here
  float ceiling;  // bins saturate here
};

// Group maxima are compared as keys whose low bits are the group's number: all distinct, so each
// has one rank. What the low bits held is rounded down, which only lowers the floor.
constexpr uint32_t kGroupBits = kGroups - 1;

__device__ __forceinline__ float anchor_of_key(uint32_t key) {
  const uint32_t rounded = key & ~kGroupBits;
  constexpr uint32_t kMinusInfKey = 0x007fffffu;
  return rounded < kMinusInfKey ? -INFINITY : __uint_as_float(bits_of_key(rounded));
}

// Writes this thread's share of the group maxima. Needs a barrier before they are read.
template <uint32_t kElements>
__device__ __forceinline__ void publish_group_maxima(const float (&x)[kElements],
                                                     const SamplePlan& plan, uint32_t* group_keys) {
  const uint32_t lanes_max = blockDim.x / kGroups;
  const uint32_t lane = threadIdx.x % lanes_max;
  float best = -INFINITY;
#pragma unroll
  for (uint32_t i = 0; i < kElements; ++i) {
    if (i < plan.per_thread) best = fmaxf(best, x[i]);  // fmaxf passes over NaN
  }
  if (lane >= plan.lanes) best = -INFINITY;
  for (uint32_t d = 1; d < lanes_max; d *= 2) {
    best = fmaxf(best, __shfl_xor_sync(kAllLanes, best, d));
  }
  const uint32_t group = threadIdx.x / lanes_max;
  if (lane == 0) group_keys[group] = (order_key(__float_as_uint(best)) & ~kGroupBits) | group;
}

// Ranks the group maxima, one thread each, and publishes the two that the plan names. Needs a
// barrier before *anchors is read.
__device__ __forceinline__ void publish_anchors(const uint32_t* group_keys, const SamplePlan& plan,
                                                Anchors* anchors) {
  if (threadIdx.x >= kGroups) return;
  const uint32_t mine = group_keys[threadIdx.x];
  uint32_t better = 0;
#pragma unroll 8
  for (uint32_t i = 0; i < kGroups / 4; ++i) {
    const uint4 other = reinterpret_cast<const uint4*>(group_keys)[i];
    better += (other.x > mine) + (other.y > mine) + (other.z > mine) + (other.w > mine);
  }
  const uint32_t rank = better + 1;
  const float value = anchor_of_key(mine);
  if (rank == plan.low_rank) {
    anchors->low = value;
    anchors->floor = plan.has_floor ? value : -INFINITY;
  }
  if (rank == plan.ceiling_rank) anchors->ceiling = value;
}

}  // namespace tl_topk
