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
  uint32_t more[kFloorGroups];
  uint32_t same[kFloorGroups];
  float floor;
};
constexpr uint32_t kFloorScratchWords = 388;
static_assert(sizeof(FloorScratch) <= 4 * kFloorScratchWords);

// How many sampled scores each thread is to look at, a power of two up to `most`, so that a group
// of kThreads / 128 threads holds about one wanted score.
template <uint32_t kThreads>
__device__ __forceinline__ uint32_t sample_size(uint32_t length, uint32_t k, uint32_t most) {
  const uint32_t group = length / (k * (kThreads / kFloorGroups));
  uint32_t size = 1;
  while (size < most && 2 * size <= group) size *= 2;
  return size;
}

// The floor from each thread's best of `size` sampled scores, oriented so that larger is better;
// -inf where the sample is too small to reject anything. The same for the whole block. Begins and
// ends with a barrier.
template <uint32_t kThreads>
__device__ __forceinline__ float find_floor(Block<kThreads> block, float best, uint32_t size,
                                            uint32_t length, uint32_t k, void* scratch_words) {
  auto& scratch = *static_cast<FloorScratch*>(scratch_words);
  static_assert(kThreads % kFloorGroups == 0);
  constexpr uint32_t kLanes = kThreads / kFloorGroups;
  constexpr float kDeviations = 4.0f;
#pragma unroll
  for (uint32_t d = 1; d < kLanes; d *= 2) {
    best = fmaxf(best, __shfl_xor_sync(kAllLanes, best, d));
  }
  block.sync();
  if (block.thread % kLanes == 0) scratch.best[block.thread / kLanes] = best;
  if (block.thread < kFloorGroups) {
    scratch.more[block.thread] = 0;
    scratch.same[block.thread] = 0;
  }
  block.sync();
  constexpr uint32_t kShare = kFloorGroups / kLanes;
  const uint32_t group = block.thread % kFloorGroups;
  const float mine = scratch.best[group];
  const float* const others = scratch.best + block.thread / kFloorGroups * kShare;
  uint32_t more = 0;
  uint32_t same = 0;
#pragma unroll
  for (uint32_t i = 0; i < kShare; ++i) {
    more += others[i] > mine;
    same += others[i] == mine;
  }
  if constexpr (kLanes > 1) {
    atomicAdd(&scratch.more[group], more);
    atomicAdd(&scratch.same[group], same);
    block.sync();
    more = scratch.more[group];
    same = scratch.same[group];
  }

  const float share = static_cast<float>(k) / static_cast<float>(length);
  const float odds = 1.0f - exp2f(static_cast<float>(size * kLanes) * __log2f(1.0f - share));
  const float expected = static_cast<float>(kFloorGroups) * odds;
  const auto wanted = static_cast<uint32_t>(
      ceilf(expected + kDeviations * __fsqrt_rn(expected * (1.0f - odds)) + 1.0f));
  if (wanted > kFloorGroups) return -INFINITY;  // for all threads alike
  if (block.thread < kFloorGroups && more < wanted && wanted <= more + same) scratch.floor = mine;
  block.sync();
  return scratch.floor;
}

}  // namespace tl_topk::lang
