// What blocks tell one another: how many survivors each has from every bin upwards.
//
// Counts are exchanged, not elements: 512 bytes from every block to every other, in one round. From
// all tables every block derives the same cut, and the places of its own winners, with no further
// word.
#pragma once

#include <cstdint>

#include "cuda/prefix_sum.cuh"
#include "cuda/row.cuh"

namespace tl_topk {

constexpr uint32_t kTableBins = 256;
constexpr uint32_t kTableWords = kTableBins / 2;
constexpr uint32_t kMaxClusterBlocks = 16;

// One block's counts while it counts: one a bin, so that the hardware can add up equal bins of a
// warp in one go.
struct __align__(16) BinCounts {
  uint32_t bins[kTableBins];
  uint32_t overflow;  // not 0: the block could not keep all that passed its floor
  uint32_t floor_key;

  __device__ __forceinline__ void count(uint32_t bin, bool enabled) {
    ptx::shared_increment(&bins[bin], enabled);
  }
};

// As they are sent: how many elements lie in each bin or above it.
struct __align__(16) CountTable {
  uint32_t words[kTableWords];  // bins 2i (low half) and 2i + 1
  uint32_t overflow;
  uint32_t floor_key;

  __device__ __forceinline__ uint32_t count(uint32_t bin) const {
    return reinterpret_cast<const uint16_t*>(words)[bin];
  }
};

// This lane's part of the table: 8 bins summed from the top. By whole warps.
__device__ __forceinline__ uint4 sum_from_top(const BinCounts& counts) {
  const uint32_t lane = threadIdx.x % kWarp;
  const auto* mine = reinterpret_cast<const uint4*>(counts.bins) + 2 * lane;
  const uint4 low = mine[0];
  const uint4 high = mine[1];
  uint32_t sum[8];
  sum[7] = high.w;
  sum[6] = sum[7] + high.z;
  sum[5] = sum[6] + high.y;
  sum[4] = sum[5] + high.x;
  sum[3] = sum[4] + low.w;
  sum[2] = sum[3] + low.z;
  sum[1] = sum[2] + low.y;
  sum[0] = sum[1] + low.x;
  uint32_t above = sum[0];
#pragma unroll
  for (uint32_t d = 1; d < kWarp; d *= 2) {
    const uint32_t higher = __shfl_down_sync(kAllLanes, above, d);
    if (lane + d < kWarp) above += higher;
  }
  above -= sum[0];
  const uint32_t both = above << 16 | above;
  return {(sum[1] << 16 | sum[0]) + both, (sum[3] << 16 | sum[2]) + both,
          (sum[5] << 16 | sum[4]) + both, (sum[7] << 16 | sum[6]) + both};
}

constexpr uint32_t kNoBin = 0xffffffffu;

// What the tables of all blocks say together; in shared memory, found by some warps for all.
struct __align__(16) Tally {
  Crossing cut;            // the bin that holds the k-th element; kNoBin at first, and if none does
  uint32_t overflow;       // some block could not keep or count all
  uint32_t highest_floor;  // keys
  uint32_t lowest_floor;
};

// Ends in a barrier.
__device__ __forceinline__ void tally_tables(const CountTable* tables, uint32_t blocks_log2,
                                             uint32_t k, Tally& tally) {
  const uint32_t blocks = 1u << blocks_log2;
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t warp = threadIdx.x / kWarp;
  // A lane compares a word's bins with the next lane's: a warp settles one word less than it reads.
  constexpr uint32_t kSettled = kWarp - 1;
  constexpr uint32_t kSearchers = (kTableWords + kSettled - 1) / kSettled;
  static_assert(kSearchers < kWarps);
  if (warp < kSearchers) {
    const uint32_t word = warp * kSettled + lane;
    uint32_t both = 0;
#pragma unroll
    for (uint32_t b = 0; b < kMaxClusterBlocks; ++b) {
      if (b < blocks && word < kTableWords) both += tables[b].words[word];
    }
    const uint32_t higher = __shfl_down_sync(kAllLanes, both, 1) & 0xffff;
    const uint32_t high = both >> 16;
    const uint32_t low = both & 0xffff;
    if (lane < kSettled && higher < k && k <= low) {
      tally.cut = high >= k ? Crossing{2 * word + 1, higher, high - higher}
                            : Crossing{2 * word, high, low - high};
    }
  } else if (warp == kSearchers) {
    const CountTable& table = tables[lane & (blocks - 1)];
    // Sums over all blocks must fit in half a word.
    const bool overflow = table.overflow != 0 || table.count(0) > 0xffffu >> blocks_log2;
    const uint32_t any_overflow = __any_sync(kAllLanes, overflow);
    const uint32_t highest = __reduce_max_sync(kAllLanes, table.floor_key);
    const uint32_t lowest = __reduce_min_sync(kAllLanes, table.floor_key);
    if (lane == 0) {
      tally.overflow = any_overflow;
      tally.highest_floor = highest;
      tally.lowest_floor = lowest;
    }
  }
  __syncthreads();
}

// How many elements of the blocks before this one lie above the cut, and how many in its bin.
struct Places {
  uint32_t above;
  uint32_t inside;
};

__device__ __forceinline__ Places find_places(const CountTable* tables, uint32_t rank,
                                              uint32_t cut) {
  const uint32_t lane = threadIdx.x % kWarp;
  uint32_t both = 0;
  if (lane < rank) {
    const uint32_t above = cut + 1 < kTableBins ? tables[lane].count(cut + 1) : 0;
    both = above | (tables[lane].count(cut) - above) << 16;
  }
  both = __reduce_add_sync(kAllLanes, both);
  return {both & 0xffff, both >> 16};
}

}  // namespace tl_topk
