// The k best of ranks that the threads of a block hold in registers: one round of counting, where
// the bin in which the k-th rank falls has few enough members. Ranks are 0 where there is none.
#pragma once

#include <cstdint>

#include "../key.h"
#include "select.cuh"

namespace tl_topk::lang {

// Keys in bins of equal width, a power of two; those beyond either end in the outermost bins.
struct KeyBins {
  uint32_t low;
  uint32_t shift;

  __device__ __forceinline__ KeyBins(uint32_t lowest, uint32_t highest) : low(lowest), shift(0) {
    const uint32_t bits = highest > lowest ? 32 - __clz(highest - lowest) : 0;
    if (bits > kBinBits) shift = bits - kBinBits;
  }
  __device__ __forceinline__ uint32_t operator()(uint32_t key) const {
    return key <= low ? 0 : min((key - low) >> shift, kBins - 1);
  }
};

// Makes the scratch ready for select_held. A barrier must lie between.
template <uint32_t kThreads>
__device__ __forceinline__ void clear_bins(Block<kThreads> block, Scratch& scratch) {
  for (uint32_t i = block.thread; i < kBins; i += kThreads) scratch.bins[i] = 0;
  if (block.thread == 0) {
    scratch.winners = 0;
    scratch.residual_count = 0;
  }
}

// The smallest and the largest key held by a block, and how many ranks; at least one is held.
struct HeldRange {
  uint32_t lowest;
  uint32_t highest;
};
template <uint32_t kThreads, uint32_t kHeld>
__device__ __forceinline__ HeldRange held_range(Block<kThreads> block,
                                                const uint64_t (&ranks)[kHeld], uint32_t used,
                                                Scratch& scratch) {
  constexpr uint32_t kWarps = kThreads / 32;
  uint32_t lowest = 0xffffffffu;
  uint32_t highest = 0;
#pragma unroll
  for (uint32_t e = 0; e < kHeld; ++e) {
    if (e < used && ranks[e] != 0) {
      lowest = min(lowest, key_of_rank(ranks[e]));
      highest = max(highest, key_of_rank(ranks[e]));
    }
  }
  lowest = __reduce_min_sync(kAllLanes, lowest);
  highest = __reduce_max_sync(kAllLanes, highest);
  if (lane() == 0) {
    scratch.warp_sums[block.thread / 32] = lowest;
    scratch.warp_highest[block.thread / 32] = highest;
  }
  block.sync();
  const uint32_t each = min(lane(), kWarps - 1);
  return {__reduce_min_sync(kAllLanes, scratch.warp_sums[each]),
          __reduce_max_sync(kAllLanes, scratch.warp_highest[each])};
}

// Calls put(slot, rank) once for each slot 0 .. k-1, in no order, of at least k ranks, of which no
// thread holds more than the first `used`, the same number in all. False, with nothing put, where
// the k-th rank's bin has too many members. The scratch was made ready. Ends with a barrier.
template <uint32_t kThreads, uint32_t kHeld, typename Put>
__device__ __forceinline__ bool select_held(Block<kThreads> block, const uint64_t (&ranks)[kHeld],
                                            uint32_t used, const KeyBins& bin_of, uint32_t k,
                                            Scratch& scratch, const Put& put) {
#pragma unroll
  for (uint32_t e = 0; e < kHeld; ++e) {
    if (e >= used) break;
    if (ranks[e] != 0) atomicAdd(&scratch.bins[bin_of(key_of_rank(ranks[e]))], 1u);
  }
  find_crossing(block, scratch, k);
  const uint32_t cut = scratch.bin;
  const uint32_t inside = scratch.inside;
  const uint32_t wanted = k - scratch.above;
  const bool all = inside == wanted;
  if (!all && inside > kMaxResidual) return false;

  const auto wins = [&](uint64_t rank) {
    return rank != 0 && bin_of(key_of_rank(rank)) + static_cast<uint32_t>(all) > cut;
  };
  uint32_t mine = 0;
#pragma unroll
  for (uint32_t e = 0; e < kHeld; ++e) {
    if (e >= used) break;
    mine += wins(ranks[e]);
    if (!all && ranks[e] != 0 && bin_of(key_of_rank(ranks[e])) == cut) {
      scratch.residual[atomicAdd(&scratch.residual_count, 1u)] = ranks[e];
    }
  }
  uint32_t slot = 0;  // one reservation a warp: the same counter for all
  mine = __reduce_add_sync(kAllLanes, mine);
  if (lane() == 0 && mine > 0) slot = atomicAdd(&scratch.winners, mine);
  slot = __shfl_sync(kAllLanes, slot, 0);
#pragma unroll
  for (uint32_t e = 0; e < kHeld; ++e) {
    if (e >= used) break;
    const bool won = wins(ranks[e]);
    const uint32_t votes = __ballot_sync(kAllLanes, won);
    if (won) put(slot + __popc(votes & lanes_below()), ranks[e]);
    slot += __popc(votes);
  }
  block.sync();
  if (!all) rank_residual(block, inside, wanted, k, scratch, put);
  return true;
}

}  // namespace tl_topk::lang
