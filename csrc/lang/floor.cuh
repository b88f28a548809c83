// A floor for a row from a sample of it: below the k-th score almost surely, and not far below.
//
// As in sampling.h only the best of each group of sampled scores is looked at: a group of g scores
// of a row of which a share p is wanted holds a wanted one with probability P = 1 - (1 - p)^g, and
// the floor is the group maximum of rank 128 P + 4 deviations + 1. A floor that is too high costs
// time, never exactness: whoever uses it counts what lies above.
#pragma once

#include <cstdint>

#include "../key.h"
#include "select.cuh"

namespace tl_topk::lang {

constexpr uint32_t kFloorGroups = 128;

struct FloorScratch {
  float best[kFloorGroups];
  uint32_t highest[32];  // keys, one a warp
  uint32_t floor[32];
};
constexpr uint32_t kFloorScratchWords = 192;
static_assert(sizeof(FloorScratch) <= 4 * kFloorScratchWords);

// What a sample tells of a row: keys of scores. `highest` is the best of the sample.
struct SampledRange {
  uint32_t floor;
  uint32_t highest;
};

// How many sampled scores each thread is to look at, a power of two up to kMost, so that a group of
// kThreads / 128 threads holds about one wanted score. More than one vector only of rows so long
// that few would tell too little: then a floor can let pass more than a list has room for.
template <uint32_t kThreads, uint32_t kPerVector, uint32_t kMost>
__device__ __forceinline__ uint32_t sample_size(uint32_t length, uint32_t k) {
  constexpr uint32_t kScoresForVector = 1 << 18;
  uint32_t size = 1;
  // A division takes longer than the few rounds.
  while (size < kMost && uint64_t{2} * size * (kThreads / kFloorGroups) * k <= length &&
         (size < kPerVector || uint64_t{size} * kScoresForVector < uint64_t{length} * kPerVector)) {
    size *= 2;
  }
  return size;
}

// The 1-based rank among group maxima of the one that is the floor; above kFloorGroups where the
// sample is too small to reject anything.
template <uint32_t kThreads>
__device__ __forceinline__ uint32_t floor_rank(uint32_t size, uint32_t length, uint32_t k) {
  constexpr float kDeviations = 4.0f;
  constexpr float kGroups = kFloorGroups;
  const float share = __fdividef(static_cast<float>(k), static_cast<float>(length));
  const auto group = static_cast<float>(size * (kThreads / kFloorGroups));
  const float odds = 1.0f - exp2f(group * __log2f(1.0f - share));
  const float expected = kGroups * odds;
  const float deviation = exp2f(0.5f * __log2f(expected * (1.0f - odds)));  // a quick square root
  return static_cast<uint32_t>(ceilf(expected + kDeviations * deviation + 1.0f));
}

// The range from each thread's best of its sampled scores, oriented so that larger is better, and
// the floor's rank among groups. The floor is that of -inf where the sample is too small to reject
// anything. The same for the whole block. The scratch must be nobody else's; ends with a barrier.
template <uint32_t kThreads>
__device__ __noinline__ SampledRange sampled_range(Block<kThreads> block, float best, uint32_t rank,
                                                   FloorScratch& scratch) {
  static_assert(kThreads % kFloorGroups == 0 && kThreads >= 4 * kFloorGroups);
  constexpr uint32_t kLanes = kThreads / kFloorGroups;  // neighbours that share a group
  constexpr uint32_t kWarps = kThreads / 32;
#pragma unroll
  for (uint32_t d = 1; d < kLanes; d *= 2) {
    best = fmaxf(best, __shfl_xor_sync(kAllLanes, best, d));
  }
  const uint32_t mine = order_key(__float_as_uint(best));
  const uint32_t highest = __reduce_max_sync(kAllLanes, mine);
  if (block.thread % kLanes == 0) scratch.best[block.thread / kLanes] = best;
  if (lane() == 0) scratch.highest[block.thread / 32] = highest;
  block.sync();
  // Each neighbour compares the group's best with a share of all others.
  uint32_t reached = 0;
#pragma unroll
  for (uint32_t i = 0; i < kFloorGroups / kLanes / 4; ++i) {
    const float4 others =
        reinterpret_cast<const float4*>(scratch.best)[i * kLanes + block.thread % kLanes];
    reached += (others.x >= best) + (others.y >= best) + (others.z >= best) + (others.w >= best);
  }
#pragma unroll
  for (uint32_t d = 1; d < kLanes; d *= 2) reached += __shfl_xor_sync(kAllLanes, reached, d);
  // The highest that as many reach as its rank demands.
  const uint32_t floor = __reduce_max_sync(kAllLanes, reached >= rank ? mine : kNanKey);
  if (lane() == 0) scratch.floor[block.thread / 32] = floor;
  block.sync();
  const uint32_t each = min(lane(), kWarps - 1);
  SampledRange range;
  range.floor = __reduce_max_sync(kAllLanes, scratch.floor[each]);
  range.highest = __reduce_max_sync(kAllLanes, scratch.highest[each]);
  if (range.floor == kNanKey) range.floor = order_key(kSignBit | kInfBits);
  return range;
}

}  // namespace tl_topk::lang
