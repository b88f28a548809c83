// A bitonic sort in shared memory: the same few microseconds whatever the data.
#pragma once

#include <cstdint>

#include "cuda/row.cuh"

namespace tl_topk {

template <typename T>
__device__ __forceinline__ void order_pair(T& a, T& b, bool ascending) {
  if ((a > b) == ascending) {
    const T t = a;
    a = b;
    b = t;
  }
}

// Sorts `n` keys ascending; n is a power of two, at least 64. Strides up to 32 stay inside a warp,
// which holds 64 keys in registers; only longer ones pass through shared memory and a barrier.
// Begins and ends with a barrier.
template <typename T>
__device__ void block_sort(T* keys, uint32_t n) {
  constexpr uint32_t kTile = 2 * kWarp;
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t warp = threadIdx.x / kWarp;

  // Merges runs of first..last keys whose remaining strides fit into a tile.
  const auto sort_in_warps = [&](uint32_t first, uint32_t last) {
    for (uint32_t tile = warp * kTile; tile < n; tile += kWarps * kTile) {
      T low = keys[tile + lane];
      T high = keys[tile + kWarp + lane];
      for (uint32_t run = first; run <= last; run *= 2) {
        const bool low_up = ((tile + lane) & run) == 0;
        const bool high_up = ((tile + kWarp + lane) & run) == 0;
        if (run >= kTile) order_pair(low, high, low_up);
        for (uint32_t stride = run >= kTile ? kWarp / 2 : run / 2; stride > 0; stride /= 2) {
          const T low_other = __shfl_xor_sync(kAllLanes, low, stride);
          const T high_other = __shfl_xor_sync(kAllLanes, high, stride);
          const bool first_of_pair = (lane & stride) == 0;
          low = (low < low_other) == (first_of_pair == low_up) ? low : low_other;
          high = (high < high_other) == (first_of_pair == high_up) ? high : high_other;
        }
      }
      keys[tile + lane] = low;
      keys[tile + kWarp + lane] = high;
    }
    __syncthreads();
  };

  __syncthreads();
  sort_in_warps(2, kTile);
  for (uint32_t run = 2 * kTile; run <= n; run *= 2) {
    for (uint32_t stride = run / 2; stride >= kTile; stride /= 2) {
      for (uint32_t i = threadIdx.x; i < n / 2; i += kThreads) {
        const uint32_t at = 2 * i - (i & (stride - 1));
        order_pair(keys[at], keys[at + stride], (at & run) == 0);
      }
      __syncthreads();
    }
    sort_in_warps(run, run);
  }
}

}  // namespace tl_topk
