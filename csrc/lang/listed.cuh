// The k best of ranks in a list in shared memory, quickly: one round of counting, where the bin in
// which the k-th rank falls has few enough members. Places of the list that hold 0 are empty.
//
// The loops are short on purpose: a launch runs through them once, so that what is unrolled has to
// be fetched as instructions, which takes longer than running it.
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
  __device__ __forceinline__ uint32_t operator()(uint64_t rank) const {
    const uint32_t key = key_of_rank(rank);
    return key <= low ? 0 : min((key - low) >> shift, kBins - 1);
  }
};

// Makes the scratch ready for counting. A barrier must lie between.
template <uint32_t kThreads>
__device__ __forceinline__ void clear_bins(Block<kThreads> block, Scratch& scratch) {
  for (uint32_t i = block.thread; i < kBins; i += kThreads) scratch.bins[i] = 0;
  if (block.thread == 0) {
    scratch.winners = 0;
    scratch.residual_count = 0;
  }
}

// Bins for all keys of a block, from the smallest and the largest of each thread. Has a barrier.
template <uint32_t kThreads>
__device__ __forceinline__ KeyBins bins_of_all(Block<kThreads> block, uint32_t lowest,
                                               uint32_t highest, Scratch& scratch) {
  lowest = __reduce_min_sync(kAllLanes, lowest);
  highest = __reduce_max_sync(kAllLanes, highest);
  if (lane() == 0) {
    scratch.warp_sums[block.thread / 32] = lowest;
    scratch.warp_highest[block.thread / 32] = highest;
  }
  block.sync();
  const uint32_t each = min(lane(), kThreads / 32 - 1);
  return {__reduce_min_sync(kAllLanes, scratch.warp_sums[each]),
          __reduce_max_sync(kAllLanes, scratch.warp_highest[each])};
}

__device__ __forceinline__ void count_rank(const KeyBins& bin_of, uint64_t rank, Scratch& scratch) {
  if (rank != 0) atomicAdd(&scratch.bins[bin_of(rank)], 1u);
}

// The k best of the list's ranks, all of which have been counted, to winners[0 .. k-1], in no
// order. False, with some of them written in vain, where the k-th rank's bin has too many members.
// Begins and ends with a barrier.
template <uint32_t kThreads>
__device__ __noinline__ bool select_counted(Block<kThreads> block, const uint64_t* list,
                                            uint32_t count, const KeyBins bin_of, uint32_t k,
                                            Scratch& scratch, uint64_t* winners) {
  constexpr uint32_t kAtOnce = 4;
  find_crossing(block, scratch, k);
  const uint32_t cut = scratch.bin;
  const uint32_t inside = scratch.inside;
  const uint32_t wanted = k - scratch.above;
  const bool all = inside == wanted;
  if (!all && inside > kMaxResidual) return false;
#pragma unroll 1
  for (uint32_t first = block.thread; first - lane() < count; first += kAtOnce * kThreads) {
    uint64_t ranks[kAtOnce];
    uint32_t votes[kAtOnce];
    uint32_t total = 0;
#pragma unroll
    for (uint32_t u = 0; u < kAtOnce; ++u) {
      const uint32_t i = first + u * kThreads;
      ranks[u] = i < count ? list[i] : 0;
      const uint32_t bin = bin_of(ranks[u]);
      const bool tied = ranks[u] != 0 && bin == cut;
      if (tied && !all) scratch.residual[atomicAdd(&scratch.residual_count, 1u)] = ranks[u];
      votes[u] = __ballot_sync(kAllLanes, ranks[u] != 0 && (bin > cut || (tied && all)));
      total += __popc(votes[u]);
    }
    uint32_t slot = 0;
    if (lane() == 0 && total > 0) slot = atomicAdd(&scratch.winners, total);
    slot = __shfl_sync(kAllLanes, slot, 0);
#pragma unroll
    for (uint32_t u = 0; u < kAtOnce; ++u) {
      if ((votes[u] >> lane() & 1) != 0) {
        winners[slot + __popc(votes[u] & lanes_below())] = ranks[u];
      }
      slot += __popc(votes[u]);
    }
  }
  block.sync();
  if (!all) {
    rank_residual(block, inside, wanted, k, scratch,
                  [&](uint32_t at, uint64_t rank) { winners[at] = rank; });
  }
  return true;
}

// select() for what is not worth room among the instructions of the usual way.
template <uint32_t kThreads, typename Source>
__device__ __noinline__ void select_apart(Block<kThreads> block, const Source source,
                                          uint32_t count, uint32_t k, Scratch& scratch,
                                          uint64_t* winners) {
  select(block, source, count, k, scratch,
         [&](uint32_t slot, uint64_t rank) { winners[slot] = rank; });
}

}  // namespace tl_topk::lang
