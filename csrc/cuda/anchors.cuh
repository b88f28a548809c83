// The floor: a value almost surely below the row's k-th element, from what the block has just
// loaded. The statistics are in sampling.h.
#pragma once

#include <cstdint>

#include "cuda/row.cuh"
#include "key.h"
#include "parts.h"
#include "sampling.h"

namespace tl_topk {

struct Anchors {
  float floor;    // elements at or below it are rejected; -inf when nothing may be
  float low;      // bin 0 begins here
  float ceiling;  // bins saturate here
};

struct AnchorScratch {
  __align__(16) uint32_t group_keys[kGroups];  // read four at a time; zero at first
  uint32_t low;
  uint32_t ceiling;
  uint32_t reach;
};

// Group maxima are compared as keys whose low bits are the group's number: all distinct, so each
// has one rank. What the low bits held is rounded down, which only lowers the floor.
constexpr uint32_t kGroupBits = kGroups - 1;

__device__ __forceinline__ float anchor_of_key(uint32_t key) {
  const uint32_t rounded = key & ~kGroupBits;
  constexpr uint32_t kMinusInfKey = 0x007fffffu;
  return rounded < kMinusInfKey ? -INFINITY : __uint_as_float(bits_of_key(rounded));
}

// Begins once the block has loaded x, kPerVector elements a load. Every thread gets the anchors.
//
// Each group's maximum is found by atomics of its members (sampling.h). Then a few lanes rank it,
// every one by comparison with a part of the others.
template <uint32_t kPerVector, uint32_t kElements>
__device__ __forceinline__ Anchors find_anchors(const float (&x)[kElements], const SamplePlan& plan,
                                                AnchorScratch& scratch) {
  constexpr uint32_t kLanes = kThreads / kGroups;  // that rank one group
  constexpr uint32_t kGroupsOfWarp = kGroups / kWarp;
  static_assert(kGroups % kWarp == 0);
  const uint32_t warp = threadIdx.x / kWarp;
  const uint32_t member = warp / kGroupsOfWarp;

  float best = -INFINITY;
#pragma unroll
  for (uint32_t i = 0; i < kElements; ++i) {
    const bool sampled =
        plan.takes(member, i / kPerVector, threadIdx.x % kWarp) && i % kPerVector < plan.per_load;
    if (sampled) best = fmaxf(best, x[i]);  // fmaxf passes over NaN
  }
  if (member < plan.warps) {
    const uint32_t group = warp % kGroupsOfWarp * kWarp + threadIdx.x % kWarp;
    const uint32_t key = order_key_of_number(__float_as_uint(best)) & ~kGroupBits;
    atomicMax(&scratch.group_keys[group], key | group);
  }
  __syncthreads();

  const uint32_t lane = threadIdx.x % kLanes;
  const uint32_t key = scratch.group_keys[threadIdx.x / kLanes];
  const auto* keys = reinterpret_cast<const uint4*>(scratch.group_keys);
  uint32_t rank = 1;
#pragma unroll
  for (uint32_t i = 0; i < kGroups / 4; i += kLanes) {
    const uint4 other = keys[i + lane];  // lanes of a group side by side: no bank twice
    rank += (other.x > key) + (other.y > key) + (other.z > key) + (other.w > key);
  }
#pragma unroll
  for (uint32_t d = 1; d < kLanes; d *= 2) rank += __shfl_xor_sync(kAllLanes, rank, d) - 1;
  if (lane == 0) {
    if (rank == plan.low_rank) scratch.low = key;
    if (rank == plan.ceiling_rank) scratch.ceiling = key;
    if (rank == plan.reach_rank) scratch.reach = key;
  }
  __syncthreads();
  const float low = anchor_of_key(scratch.low);
  float ceiling = anchor_of_key(scratch.ceiling);
  if (plan.reach != 0) {
    ceiling += static_cast<float>(plan.reach) * (ceiling - anchor_of_key(scratch.reach));
  }
  return {plan.has_floor && kWith<Part::kFloor> ? low : -INFINITY, low, ceiling};
}

}  // namespace tl_topk
