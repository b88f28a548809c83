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

struct AnchorScratch {
  __align__(16) uint32_t group_keys[kGroups];  // read four at a time
  uint32_t better[2 * kWarp];                  // groups better than each candidate; starts at zero
};

// Group maxima are compared as keys whose low bits are the group's number: all distinct, so each
// has one rank. What the low bits held is rounded down, which only lowers the floor.
constexpr uint32_t kGroupBits = kGroups - 1;

__device__ __forceinline__ float anchor_of_key(uint32_t key) {
  const uint32_t rounded = key & ~kGroupBits;
  constexpr uint32_t kMinusInfKey = 0x007fffffu;
  return rounded < kMinusInfKey ? -INFINITY : __uint_as_float(bits_of_key(rounded));
}

// Begins once the block has loaded x; scratch.better is zero. Every thread gets the anchors.
//
// Every second group maximum is a candidate, two a lane. Each warp counts for all candidates how
// many of its share of the maxima are better; the sums are their ranks.
template <uint32_t kElements>
__device__ __forceinline__ Anchors find_anchors(const float (&x)[kElements], const SamplePlan& plan,
                                                AnchorScratch& scratch) {
  constexpr uint32_t kLanes = kThreads / kGroups;  // threads of a group at the most
  static_assert(kGroups == 4 * kWarp && kGroups == 8 * kWarps, "the shares below");
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t warp = threadIdx.x / kWarp;

  float best = -INFINITY;
#pragma unroll
  for (uint32_t i = 0; i < kElements; ++i) {
    if (i < plan.per_thread) best = fmaxf(best, x[i]);  // fmaxf passes over NaN
  }
  if (lane % kLanes >= plan.lanes) best = -INFINITY;
#pragma unroll
  for (uint32_t d = 1; d < kLanes; d *= 2) best = fmaxf(best, __shfl_xor_sync(kAllLanes, best, d));
  const uint32_t group = threadIdx.x / kLanes;
  const uint32_t key = order_key_of_number(__float_as_uint(best));
  if (lane % kLanes == 0) scratch.group_keys[group] = (key & ~kGroupBits) | group;
  __syncthreads();

  const auto* keys = reinterpret_cast<const uint4*>(scratch.group_keys);
  const uint32_t candidate[2] = {keys[lane].x, keys[lane].z};
  uint32_t better[2] = {0, 0};
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
    const uint4 other = keys[2 * warp + i];
#pragma unroll
    for (uint32_t c = 0; c < 2; ++c) {
      better[c] += (other.x > candidate[c]) + (other.y > candidate[c]) + (other.z > candidate[c]) +
                   (other.w > candidate[c]);
    }
  }
#pragma unroll
  for (uint32_t c = 0; c < 2; ++c) atomicAdd(&scratch.better[c * kWarp + lane], better[c]);
  __syncthreads();

  // The best candidate that is low enough, else the lowest there is: it cannot be far above. The
  // ceiling likewise.
  uint32_t low = 0;
  constexpr uint32_t kNone = 0xffffffffu;
  uint32_t lowest = kNone;
  uint32_t ceiling = kNone;
  uint32_t highest = 0;
#pragma unroll
  for (uint32_t c = 0; c < 2; ++c) {
    const uint32_t rank = scratch.better[c * kWarp + lane] + 1;
    if (rank > plan.groups) continue;  // an empty group
    lowest = min(lowest, candidate[c]);
    highest = max(highest, candidate[c]);
    if (rank >= plan.low_rank) low = max(low, candidate[c]);
    if (rank <= plan.ceiling_rank) ceiling = min(ceiling, candidate[c]);
  }
  lowest = __reduce_min_sync(kAllLanes, lowest);
  if (lowest == kNone) lowest = 0;  // no candidate among the groups with anything in them
  low = max(__reduce_max_sync(kAllLanes, low), lowest);
  ceiling = min(__reduce_min_sync(kAllLanes, ceiling), __reduce_max_sync(kAllLanes, highest));
  return {plan.has_floor ? anchor_of_key(low) : -INFINITY, anchor_of_key(low),
          anchor_of_key(ceiling)};
}

}  // namespace tl_topk
