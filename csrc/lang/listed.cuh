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

constexpr uint32_t kFewTied = 96;  // are compared sooner than they are counted again

// Keys in bins of equal width, a power of two. Those beyond the highest bin end in it.
struct KeyBins {
  uint32_t low;  // no key is lower
  uint32_t shift;

  __device__ __forceinline__ uint32_t operator()(uint64_t rank) const {
    return min((key_of_rank(rank) - low) >> shift, kBins - 1);
  }
};
__device__ __forceinline__ KeyBins bins_between(uint32_t lowest, uint32_t highest) {
  const uint32_t bits = highest > lowest ? 32 - __clz(highest - lowest) : 0;
  return {lowest, bits > kBinBits ? bits - kBinBits : 0};
}

// Makes the scratch ready for counting. A barrier must lie between.
template <uint32_t kThreads>
__device__ __forceinline__ void clear_bins(Block<kThreads> block, Scratch& scratch) {
  constexpr uint32_t kEach = 4;
  for (uint32_t i = block.thread; i < kBins / kEach; i += kThreads) {
    reinterpret_cast<uint4*>(scratch.bins)[i] = {0, 0, 0, 0};
  }
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
  return bins_between(__reduce_min_sync(kAllLanes, scratch.warp_sums[each]),
                      __reduce_max_sync(kAllLanes, scratch.warp_highest[each]));
}

__device__ __forceinline__ void count_rank(const KeyBins& bin_of, uint64_t rank, Scratch& scratch) {
  if (rank != 0) atomicAdd(&scratch.bins[bin_of(rank)], 1u);
}

// Which ranks are among the best: those of higher keys than a bin's, and `wanted` of the `inside`
// ones in it. The bin's keys are those from `lowest` on, 2^bits of them or, where it is open, all.
struct Cut {
  uint32_t lowest;
  uint32_t bits;
  bool open;
  uint32_t inside;
  uint32_t wanted;

  __device__ __forceinline__ bool all() const { return inside == wanted; }
  __device__ __forceinline__ bool reached_by(uint64_t rank) const {
    return rank != 0 && key_of_rank(rank) >= lowest;
  }
  // Of a rank that reaches it.
  __device__ __forceinline__ bool contains(uint64_t rank) const {
    return open || (key_of_rank(rank) - lowest) >> bits == 0;
  }
};

// The bin of the k-th best of a list's ranks, all of which have been counted. Where it has many
// members, they are counted once more in narrower bins.
template <uint32_t kThreads>
__device__ __forceinline__ Cut find_cut(Block<kThreads> block, const uint64_t* list, uint32_t count,
                                        const KeyBins& bins, uint32_t k, Scratch& scratch) {
  find_crossing(block, scratch, k);
  Cut cut{bins.low + (scratch.bin << bins.shift), bins.shift, scratch.bin == kBins - 1,
          scratch.inside, k - scratch.above};
  while (!cut.all() && cut.inside > kFewTied && cut.bits > 0 && !cut.open) {
    const uint32_t bits = cut.bits > kBinBits ? cut.bits - kBinBits : 0;
    clear_bins(block, scratch);
    block.sync();
#pragma unroll 2
    for (uint32_t i = block.thread; i < count; i += kThreads) {
      const uint64_t rank = list[i];
      if (cut.reached_by(rank) && cut.contains(rank)) {
        atomicAdd(&scratch.bins[(key_of_rank(rank) - cut.lowest) >> bits], 1u);
      }
    }
    find_crossing(block, scratch, cut.wanted);
    cut = {cut.lowest + (scratch.bin << bits), bits, false, scratch.inside,
           cut.wanted - scratch.above};
  }
  return cut;
}

// The k best of the list's ranks, all of which have been counted, in no order: to winners[0 .. k-1]
// or, where that is not null, their indices to `direct`. False, with nothing written, where too
// many share the k-th's bin. Begins and ends with a barrier.
template <uint32_t kThreads>
__device__ __noinline__ bool select_counted(Block<kThreads> block, const uint64_t* list,
                                            uint32_t count, KeyBins bins, uint32_t k,
                                            Scratch& scratch, uint64_t* winners, int32_t* direct) {
  constexpr uint32_t kAtOnce = 4;
  const Cut cut = find_cut(block, list, count, bins, k, scratch);
  if (!cut.all() && cut.inside > kMaxResidual) return false;
  const auto put = [&](uint32_t at, uint64_t rank) {
    if (direct != nullptr) {
      direct[at] = static_cast<int32_t>(index_of_rank(rank));
    } else {
      winners[at] = rank;
    }
  };
#pragma unroll 1
  for (uint32_t first = block.thread; first - lane() < count; first += kAtOnce * kThreads) {
    uint64_t ranks[kAtOnce];
    uint32_t votes[kAtOnce];
    uint32_t total = 0;
#pragma unroll
    for (uint32_t u = 0; u < kAtOnce; ++u) {
      const uint32_t i = first + u * kThreads;
      ranks[u] = i < count ? list[i] : 0;
      const bool reaches = cut.reached_by(ranks[u]);
      const bool tied = reaches && cut.contains(ranks[u]);
      if (tied && !cut.all()) {
        scratch.residual[atomicAdd(&scratch.residual_count, 1u)] = ranks[u];
      }
      votes[u] = __ballot_sync(kAllLanes, reaches && (!tied || cut.all()));
      total += __popc(votes[u]);
    }
    uint32_t slot = 0;
    if (lane() == 0 && total > 0) slot = atomicAdd(&scratch.winners, total);
    slot = __shfl_sync(kAllLanes, slot, 0);
#pragma unroll
    for (uint32_t u = 0; u < kAtOnce; ++u) {
      if ((votes[u] >> lane() & 1) != 0) put(slot + __popc(votes[u] & lanes_below()), ranks[u]);
      slot += __popc(votes[u]);
    }
  }
  block.sync();
  if (!cut.all()) rank_residual(block, cut.inside, cut.wanted, k, scratch, put);
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
