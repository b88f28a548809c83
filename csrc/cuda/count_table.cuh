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

// One block's counts: while it counts, of each bin; as it is sent, of each bin and all above it.
struct __align__(16) CountTable {
  uint32_t words[kTableWords];  // bins 2i (low half) and 2i + 1
  uint32_t overflow;            // not 0: the block could not keep all that passed its floor
  uint32_t floor_key;

  __device__ __forceinline__ uint32_t count(uint32_t bin) const {
    return reinterpret_cast<const uint16_t*>(words)[bin];
  }
};

// Counts the bins of all entries that a block holds. What lies above the ceiling, half of them or
// more, shares the last bin: that one is summed in registers first.
template <typename Held>
__device__ __forceinline__ void count_bins(const Held& held, CountTable& table) {
  constexpr int32_t kLast = kTableBins - 1;
  uint32_t last = 0;
  held.for_each([&](uint32_t u) {
    const int32_t bin = held.bin[u];
    last += bin == kLast;
    ptx::shared_add_if(&table.words[bin / 2], 1u << bin % 2 * 16, bin >= 0 && bin < kLast);
  });
  last = __reduce_add_sync(kAllLanes, last);
  if (threadIdx.x % kWarp == 0) ptx::shared_add_if(&table.words[kLast / 2], last << 16, last != 0);
}

// Turns a lane's part of a table, 8 bins, from counts into sums from the top. By whole warps.
__device__ __forceinline__ uint4 sum_from_top(uint4 w) {
  const uint32_t high[4] = {w.x >> 16, w.y >> 16, w.z >> 16, w.w >> 16};
  const uint32_t pair[4] = {high[0] + (w.x & 0xffff), high[1] + (w.y & 0xffff),
                            high[2] + (w.z & 0xffff), high[3] + (w.w & 0xffff)};
  const uint32_t mine = pair[0] + pair[1] + pair[2] + pair[3];
  uint32_t above = mine;
#pragma unroll
  for (uint32_t d = 1; d < kWarp; d *= 2) {
    const uint32_t higher = __shfl_down_sync(kAllLanes, above, d);
    if (threadIdx.x % kWarp + d < kWarp) above += higher;
  }
  above -= mine;
  constexpr uint32_t kBothHalves = 0x10001u;
  w.w += high[3] + above * kBothHalves;
  above += pair[3];
  w.z += high[2] + above * kBothHalves;
  above += pair[2];
  w.y += high[1] + above * kBothHalves;
  above += pair[1];
  w.x += high[0] + above * kBothHalves;
  return w;
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
