// Counting into shared memory without letting equal elements queue up at one address.
#pragma once

#include <cstdint>

#include "cuda/prefix_sum.cuh"

namespace tl_topk {

// Adds one to bins[bin] for every lane with `counted`. The warp settles its two most likely bins by
// vote first: rows of many equal elements would otherwise serialise on one counter.
__device__ __forceinline__ void warp_count(uint32_t* bins, uint32_t bin, bool counted) {
  uint32_t left = __ballot_sync(kAllLanes, counted);
#pragma unroll
  for (int peel = 0; peel < 2; ++peel) {
    if (left == 0) return;
    const int leader = __ffs(left) - 1;
    const uint32_t common = __shfl_sync(kAllLanes, bin, leader);
    const uint32_t same =
        __ballot_sync(kAllLanes, (left >> threadIdx.x % kWarp & 1) != 0 && bin == common);
    if (static_cast<int>(threadIdx.x % kWarp) == leader) atomicAdd(bins + common, __popc(same));
    left &= ~same;
  }
  if ((left >> threadIdx.x % kWarp & 1) != 0) atomicAdd(bins + bin, 1u);
}

}  // namespace tl_topk
