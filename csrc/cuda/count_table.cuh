// What blocks tell one another: how many survivors each has from every bin upwards.
//
// Counts are exchanged, not elements: 256 bytes from every block to every other, in one round. From
// all tables every block derives the same cut, and the places of its own winners, with no further
// word.
#pragma once

#include <cstdint>

#include "cuda/prefix_sum.cuh"
#include "cuda/ptx.cuh"
#include "cuda/row.cuh"
#include "parts.h"

namespace tl_topk {

constexpr uint32_t kTableBins = 128;
constexpr uint32_t kTableWords = kTableBins / 2;
constexpr uint32_t kMaxClusterBlocks = 16;

// One block's counts while it counts.
struct __align__(16) BinCounts {
  uint32_t bins[kTableBins];
  uint32_t overflow;  // not 0: the block could not keep all that passed the floor

  // How many of its bin have been counted before.
  //
  // Each lane asks for itself. The other way, where lanes of equal bins vote and one asks for them
  // all, is slower (bench/results/ablation.json).
  __device__ __forceinline__ uint32_t count(uint32_t bin, bool enabled) {
    if constexpr (kWith<Part::kAtomics>) return ptx::shared_take(&bins[bin], enabled);
    const uint32_t peers = __match_any_sync(kAllLanes, enabled ? bin : kTableBins);
    const uint32_t first = __ffs(peers) - 1;
    uint32_t before = 0;
    if (enabled && threadIdx.x % kWarp == first) before = atomicAdd(&bins[bin], __popc(peers));
    return __shfl_sync(kAllLanes, before, first) + __popc(peers & ptx::lanes_below());
  }
};

// As they are sent: how many elements lie in each bin or above it.
struct __align__(16) CountTable {
  uint32_t words[kTableWords];  // bins 2i (low half) and 2i + 1
  uint32_t overflow;

  // Also of the bin after the last, where the low half of `overflow` lies.
  __device__ __forceinline__ uint32_t count(uint32_t bin) const {
    return reinterpret_cast<const uint16_t*>(this)[bin];
  }
  __device__ __forceinline__ uint32_t count_above(uint32_t bin) const { return count(bin + 1); }
};

// This lane's part of the table: 4 bins summed from the top. By whole warps.
__device__ __forceinline__ uint2 sum_from_top(const BinCounts& counts) {
  const uint32_t lane = threadIdx.x % kWarp;
  const uint4 mine = reinterpret_cast<const uint4*>(counts.bins)[lane];
  uint32_t sum[4];
  sum[3] = mine.w;
  sum[2] = sum[3] + mine.z;
  sum[1] = sum[2] + mine.y;
  sum[0] = sum[1] + mine.x;
  uint32_t above = sum[0];
#pragma unroll
  for (uint32_t d = 1; d < kWarp; d *= 2) above = ptx::add_from_higher(above, d);
  above -= sum[0];
  const uint32_t both = above << 16 | above;
  return {(sum[1] << 16 | sum[0]) + both, (sum[3] << 16 | sum[2]) + both};
}

// By lane 0, of what it has summed: could the block not keep all, or does it have so many that sums
// over all blocks need not fit in half a word? The low half, which is read as the count of the bin
// after the last, is 0 where the block has listed any.
__device__ __forceinline__ uint32_t overflow_of(const BinCounts& counts, uint2 sums,
                                                uint32_t blocks_log2) {
  return counts.overflow | (sums.x & 0xffff) >> (16 - blocks_log2) << 16;
}

// Makes it of what each lane of a warp has summed.
__device__ __forceinline__ void keep_table(const BinCounts& counts, uint2 sums,
                                           uint32_t blocks_log2, CountTable& table) {
  const uint32_t lane = threadIdx.x % kWarp;
  reinterpret_cast<uint2*>(table.words)[lane] = sums;
  if (lane == 0) table.overflow = overflow_of(counts, sums, blocks_log2);
}

constexpr uint32_t kNoBin = 0xffffffffu;

// The bin that holds the k-th element, in one vector.
struct __align__(16) TableCut {
  uint32_t bin;       // kNoBin at first, and if none does
  uint32_t above;     // elements in higher bins
  uint32_t inside;    // elements in the bin
  uint32_t overflow;  // not 0: some block could not keep all, or has too many to be summed

  // No bin is in question yet.
  static __device__ __forceinline__ TableCut none() { return {kNoBin, 0, kNoBin, 0}; }
  __device__ __forceinline__ bool found() const { return bin != kNoBin && overflow == 0; }
};

constexpr uint32_t kTallyWarps = 4;  // the first ones, which add up the tables

// The cut that the tables of all blocks give together; in shared memory, found by some warps for
// all. All blocks have the same floor, so that what lies above a bin is complete. Ends in a
// barrier.
__device__ __forceinline__ void tally_tables(const CountTable* tables, uint32_t blocks_log2,
                                             uint32_t k, TableCut& cut) {
  const uint32_t blocks = 1u << blocks_log2;
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t warp = threadIdx.x / kWarp;
  // A lane compares a word's bins with the next lane's: a warp settles one word less than it reads.
  constexpr uint32_t kSettled = kWarp - 1;
  constexpr uint32_t kSearchers = (kTableWords + kSettled - 1) / kSettled;
  static_assert(kSearchers < kTallyWarps);
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
      const bool odd = high >= k;
      cut.bin = odd ? 2 * word + 1 : 2 * word;
      cut.above = odd ? higher : high;
      cut.inside = odd ? high - higher : low - high;
    }
  } else if (warp == kSearchers) {
    if (tables[lane & (blocks - 1)].overflow != 0) cut.overflow = 1;
  }
  __syncthreads();
}

// How many elements of the blocks before this one lie above the cut, and how many in its bin: two
// halves of a word.
struct Places {
  uint32_t word;

  __device__ __forceinline__ uint32_t above() const { return word & 0xffff; }
  __device__ __forceinline__ uint32_t inside() const { return word >> 16; }
};

__device__ __forceinline__ Places find_places(const CountTable* tables, uint32_t rank,
                                              uint32_t cut) {
  const uint32_t lane = threadIdx.x % kWarp;
  const CountTable& table = tables[lane % kMaxClusterBlocks];  // of no block: what lies there
  const uint32_t above = table.count_above(cut);
  const uint32_t both = above | (table.count(cut) - above) << 16;
  return {__reduce_add_sync(kAllLanes, lane < rank ? both : 0)};
}

}  // namespace tl_topk
