// Puts the winners into the order that was asked for.
//
// A distribution sort: keys are counted into bins that a monotone map spreads them over, the bins'
// sizes summed, the keys moved to their bins, and each ranked within its bin by one comparison with
// every other there. Where the map crowds too many into one bin (massive ties, infinities, indices
// side by side) a bitonic sort does it instead.
#pragma once

#include <cstdint>

#include "bin_map.h"
#include "cuda/block_sort.cuh"
#include "cuda/prefix_sum.cuh"
#include "cuda/row.cuh"
#include "key.h"

namespace tl_topk {

constexpr uint32_t kOrderBins = 2048;
constexpr uint32_t kMaxCrowd = 32;  // keys in one bin; more go to the bitonic sort

struct OrderScratch {
  uint32_t bins[kOrderBins];  // sizes, then where each bin ends
  uint32_t warp_sums[kWarps];
  uint32_t fullest;
  uint32_t lowest;
  uint32_t highest;
};

// Replaces each bin's size by the number of keys in bins before it, and finds the fullest.
__device__ __forceinline__ void bins_to_starts(OrderScratch& scratch) {
  constexpr uint32_t kEach = kOrderBins / kThreads;
  const uint32_t warp = threadIdx.x / kWarp;
  uint4* const mine = reinterpret_cast<uint4*>(scratch.bins) + threadIdx.x;
  static_assert(kEach == 4, "one vector a thread");
  uint4 size = *mine;
  const uint32_t sum = size.x + size.y + size.z + size.w;
  const uint32_t upto = warp_inclusive_sum(sum);
  const uint32_t fullest =
      __reduce_max_sync(kAllLanes, max(max(size.x, size.y), max(size.z, size.w)));
  if (threadIdx.x % kWarp == kWarp - 1) {
    scratch.warp_sums[warp] = upto;
    atomicMax(&scratch.fullest, fullest);
  }
  __syncthreads();
  const uint32_t lane = threadIdx.x % kWarp;
  uint32_t before = lane < warp ? scratch.warp_sums[lane] : 0;
  before = __reduce_add_sync(kAllLanes, before) + upto - sum;
  *mine = {before, before + size.x, before + size.x + size.y, before + size.x + size.y + size.z};
}

// Calls write(slot, key) with the key of each of `count` slots, keys ascending. `keys` has room for
// `padded` of them, a power of two; `spare` for count. `bin_of` is monotone, below kOrderBins.
// Called by the whole block; begins with a barrier.
template <typename T, typename BinOf, typename Write>
__device__ __forceinline__ void write_in_order(T* keys, T* spare, uint32_t count, uint32_t padded,
                                               OrderScratch& scratch, BinOf&& bin_of,
                                               Write&& write) {
  reinterpret_cast<uint4*>(scratch.bins)[threadIdx.x] = {0, 0, 0, 0};
  if (threadIdx.x == 0) scratch.fullest = 0;
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < count; i += kThreads) {
    atomicAdd(&scratch.bins[bin_of(keys[i])], 1u);
  }
  __syncthreads();
  bins_to_starts(scratch);
  __syncthreads();
  if (scratch.fullest > kMaxCrowd) {
    for (uint32_t i = count + threadIdx.x; i < padded; i += kThreads) keys[i] = ~T{0};
    block_sort(keys, padded);
    for (uint32_t i = threadIdx.x; i < count; i += kThreads) write(i, keys[i]);
    return;
  }
  for (uint32_t i = threadIdx.x; i < count; i += kThreads) {
    spare[atomicAdd(&scratch.bins[bin_of(keys[i])], 1u)] = keys[i];
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < count; i += kThreads) {
    const T key = spare[i];
    const uint32_t bin = bin_of(key);
    const uint32_t end = scratch.bins[bin];
    const uint32_t start = bin == 0 ? 0 : scratch.bins[bin - 1];
    uint32_t slot = start;
    for (uint32_t j = start; j < end; ++j) slot += spare[j] < key;
    write(slot, key);
  }
}

}  // namespace tl_topk
