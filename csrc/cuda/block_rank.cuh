// Selection among a few thousand 64-bit ranks by one block, exact whatever they are.
#pragma once

#include <cstdint>

#include "cuda/prefix_sum.cuh"
#include "cuda/row.cuh"
#include "key.h"

namespace tl_topk {

constexpr uint32_t kRankBins = 2048;
constexpr uint32_t kRankBinBits = 11;
constexpr uint32_t kMaxTied = 256;  // ranks of one bin that are compared with one another

struct RankScratch {
  uint32_t bins[kRankBins];
  uint32_t tile_sums[kRankBins / kWarp];
  uint32_t warp_sums[kWarps];
  Crossing crossing;
  uint32_t lowest;  // of the keys of those present
  uint32_t highest;
  uint32_t present;
  uint32_t tied_count;
  uint64_t tied[kMaxTied];
  uint64_t bound;
};

// The sum over the threads before this one; *total over all. Called by the whole block.
__device__ __forceinline__ uint32_t block_exclusive_sum(uint32_t x, uint32_t* warp_sums,
                                                        uint32_t* total) {
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t warp = threadIdx.x / kWarp;
  const uint32_t upto = warp_inclusive_sum(x);
  __syncthreads();  // whoever still reads the sums of an earlier call
  if (lane == kWarp - 1) warp_sums[warp] = upto;
  __syncthreads();
  const uint32_t sum = lane < kWarps ? warp_sums[lane] : 0;
  *total = __reduce_add_sync(kAllLanes, sum);
  return __reduce_add_sync(kAllLanes, lane < warp ? sum : 0) + upto - x;
}

// What a thread has seen of the ranks: how many are not 0, and between which keys these lie.
struct RankRange {
  uint32_t lowest = 0xffffffffu;
  uint32_t highest = 0;
  uint32_t present = 0;

  __device__ __forceinline__ void see(uint64_t rank) {
    if (rank == 0) return;
    lowest = min(lowest, key_of_rank(rank));
    highest = max(highest, key_of_rank(rank));
    ++present;
  }
};

// Clears what the two functions below need. A barrier must follow.
__device__ __forceinline__ void clear(RankScratch& scratch) {
  for (uint32_t i = threadIdx.x; i < kRankBins; i += kThreads) scratch.bins[i] = 0;
  if (threadIdx.x == 0) {
    scratch.lowest = 0xffffffffu;
    scratch.highest = 0;
    scratch.present = 0;
    scratch.tied_count = 0;
  }
}

// Adds one to bins[bin] for every lane with `counted`. Lanes that all have the same bin, as with
// massive ties, add up first.
__device__ __forceinline__ void count(uint32_t* bins, uint32_t bin, bool counted) {
  const uint32_t first = __shfl_sync(kAllLanes, bin, 0);
  if (__all_sync(kAllLanes, counted && bin == first)) {
    if (threadIdx.x % kWarp == 0) atomicAdd(bins + bin, kWarp);
  } else if (counted) {
    atomicAdd(bins + bin, 1u);
  }
}

// The `wanted`-th best rank (1-based), or the least rank there is when no more than `wanted` are
// present. for_each(f) calls f(rank) for each of this thread's ranks, as often for every thread of
// the block: 0 where there is none. `seen` has seen them all.
// Begins after a barrier that follows clear(); ends with one.
//
// Every pass counts the ranks of a span into 2048 equal bins; the bin of the wanted one is the next
// pass's span. The first span is that between the least and the greatest key present, in which the
// ranks of a tail of scores are spread well; so one pass nearly always does.
template <typename ForEach>
__device__ __forceinline__ uint64_t block_rank(uint32_t wanted, const RankRange& seen,
                                               RankScratch& scratch, ForEach&& for_each) {
  const uint32_t lowest = __reduce_min_sync(kAllLanes, seen.lowest);
  const uint32_t highest = __reduce_max_sync(kAllLanes, seen.highest);
  const uint32_t present = __reduce_add_sync(kAllLanes, seen.present);
  if (threadIdx.x % kWarp == 0) {
    atomicMin(&scratch.lowest, lowest);
    atomicMax(&scratch.highest, highest);
    atomicAdd(&scratch.present, present);
  }
  __syncthreads();
  if (scratch.present <= wanted) return 1;

  // From 1, as 0 stands for none.
  uint64_t low = max(static_cast<uint64_t>(scratch.lowest) << 32, uint64_t{1});
  const uint64_t span = (static_cast<uint64_t>(scratch.highest) + 1 << 32) - low;
  uint32_t shift = 64 - __clzll(static_cast<long long>(span - 1)) - kRankBinBits;
  uint32_t bins = kRankBins;  // of which the span consists
  while (true) {
    for_each([&](uint64_t rank) {
      const uint64_t bin = (rank - low) >> shift;
      count(scratch.bins, static_cast<uint32_t>(bin), rank >= low && bin < bins);
    });
    __syncthreads();
    find_crossing<kRankBins>(scratch.bins, wanted, scratch.tile_sums, &scratch.crossing);
    __syncthreads();
    const Crossing cut = scratch.crossing;
    low += static_cast<uint64_t>(cut.bin) << shift;
    wanted -= cut.above;
    if (cut.inside == wanted) return low;  // the whole bin is wanted
    if (cut.inside <= kMaxTied) {
      const uint64_t end = low + (uint64_t{1} << shift);
      for_each([&](uint64_t rank) {
        if (rank >= low && rank < end) scratch.tied[atomicAdd(&scratch.tied_count, 1u)] = rank;
      });
      __syncthreads();
      if (threadIdx.x < cut.inside) {
        const uint64_t mine = scratch.tied[threadIdx.x];
        uint32_t better = 0;
        for (uint32_t j = 0; j < cut.inside; ++j) better += scratch.tied[j] > mine;
        if (better == wanted - 1) scratch.bound = mine;
      }
      __syncthreads();
      return scratch.bound;
    }
    bins = 1u << min(shift, kRankBinBits);
    shift = max(shift, kRankBinBits) - kRankBinBits;
    for (uint32_t i = threadIdx.x; i < kRankBins; i += kThreads) scratch.bins[i] = 0;
    __syncthreads();
  }
}

}  // namespace tl_topk
