// Rows of which many elements equal the k-th: what misleads a sample most often.
//
// The sample's floor is then that very value. One pass counts what lies above it, and what equals
// it by ranges of indices; the range in which the count reaches k is read again, and its w-th equal
// element is the last winner.
#pragma once

#include <cstdint>

#include "cuda/radix.cuh"
#include "cuda/row_ranks.cuh"
#include "cuda/shared_state.cuh"
#include "cuda/team.cuh"

namespace tl_topk {

constexpr uint32_t kTieBins = 1024;
constexpr uint32_t kTieBits = 10;
static_assert(kTieBins == 1u << kTieBits && kTieBins + kMaxClusterBlocks <= kDigitBins);

// Adds every lane's amount to its bin. Neighbouring lanes mostly share one.
__device__ __forceinline__ void warp_add(uint32_t* bins, uint32_t bin, uint32_t amount) {
  uint32_t left = __ballot_sync(kAllLanes, amount != 0);
  while (left != 0) {
    const int leader = __ffs(left) - 1;
    const uint32_t common = __shfl_sync(kAllLanes, bin, leader);
    const uint32_t sum = __reduce_add_sync(kAllLanes, bin == common ? amount : 0);
    if (static_cast<int>(threadIdx.x % kWarp) == leader) atomicAdd(bins + common, sum);
    left &= __ballot_sync(kAllLanes, bin != common);
  }
}

// The index of the wanted-th (from 1) of the elements first .. end - 1 that equal `value`; it is
// there. By the whole block.
template <Dtype D>
__device__ __forceinline__ uint32_t find_equal(const Row<D>& row, uint32_t first, uint32_t end,
                                               float value, uint32_t wanted, uint32_t* votes) {
  uint32_t tile = first;
  for (;; tile += kThreads) {
    const uint32_t i = tile + threadIdx.x;
    const uint32_t mine = __ballot_sync(kAllLanes, i < end && row.oriented(i) == value);
    __syncthreads();  // the votes of the tile before have been read
    if (threadIdx.x % kWarp == 0) votes[threadIdx.x / kWarp] = mine;
    __syncthreads();
    uint32_t equal = 0;
    for (uint32_t w = 0; w < kWarps; ++w) equal += __popc(votes[w]);
    if (equal >= wanted) break;
    wanted -= equal;
  }
  for (uint32_t w = 0;; ++w) {
    const uint32_t equal = __popc(votes[w]);
    if (equal >= wanted) return tile + w * kWarp + __fns(votes[w], 0, static_cast<int>(wanted));
    wanted -= equal;
  }
}

// The threshold if the k-th element equals `value`, else that of the whole row, which says nothing.
template <Dtype D, Scope S, typename Ranks>
__device__ __noinline__ Threshold guess_tie(const Ranks ranks, const Row<D> row, float value,
                                            uint32_t k, const Team<S> team, SharedState& state) {
  constexpr uint32_t kPerVector = Row<D>::kPerVector;
  __syncthreads();  // the tables, where the counts are made next, have been read
  uint32_t* const bins = state.radix.bins;  // lowest indices last: from there the search begins
  uint32_t* const above_count = bins + kTieBins;
  const uint32_t index_bits = kWarp - __clz(row.length - 1);
  // A bin's elements are read at once when the last winner is looked for.
  const uint32_t shift = max(index_bits, kTieBits + kThreadsLog2) - kTieBits;
  for (uint32_t i = threadIdx.x; i < kTieBins + kMaxClusterBlocks; i += kThreads) bins[i] = 0;
  if (threadIdx.x == 0) state.radix.crossing.bin = kNoBin;
  __syncthreads();

  uint32_t above = 0;
  ranks.for_each_vector([&](const float (&x)[kPerVector], uint32_t first) {
    uint32_t equal = 0;
#pragma unroll
    for (uint32_t j = 0; j < kPerVector; ++j) {  // NaN outside the row is neither
      above += x[j] > value;
      equal += x[j] == value;
    }
    // A vector's equal elements go to one bin, or where it crosses a border each to its own.
    const uint32_t bin = (first + kPerVector - 1) >> shift;
    const bool crosses = first >> shift != bin;
    warp_add(bins, kTieBins - 1 - bin, crosses ? 0 : equal);
    if (crosses && equal != 0) {
      for (uint32_t j = 0; j < kPerVector; ++j) {
        if (x[j] == value) atomicAdd(bins + kTieBins - 1 - ((first + j) >> shift), 1u);
      }
    }
  });
  above = __reduce_add_sync(kAllLanes, above);
  if (threadIdx.x % kWarp == 0) atomicAdd(above_count, above);
  __syncthreads();
  // Of so many bins, the rest are empty; a multiple of the team's size.
  const uint32_t used =
      (row.length - 1 >> shift) / kMaxClusterBlocks * kMaxClusterBlocks + kMaxClusterBlocks;
  team.sum(bins + kTieBins - used, used + kMaxClusterBlocks);
  above = *above_count;
  if (above < k) {
    find_crossing<kTieBins>(bins, k - above, state.radix.tile_sums, &state.radix.crossing);
  }
  __syncthreads();
  const Crossing c = state.radix.crossing;
  if (c.bin == kNoBin) return {0, 64, k, row.length};
  const uint32_t first = (kTieBins - 1 - c.bin) << shift;
  const uint32_t last = find_equal(row, first, min(row.length, first + (1u << shift)), value,
                                   k - above - c.above, state.radix.tile_sums);
  return {rank_key(order_key(__float_as_uint(value)), last), 0, 0, k};
}

}  // namespace tl_topk
