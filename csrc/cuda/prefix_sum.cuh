// Prefix sums, and the search for the bin that holds the k-th element.
#pragma once

#include <cstdint>

#include "cuda/ptx.cuh"
#include "cuda/row.cuh"

namespace tl_topk {

__device__ __forceinline__ uint32_t warp_inclusive_sum(uint32_t x) {
  const uint32_t lane = threadIdx.x % kWarp;
#pragma unroll
  for (uint32_t d = 1; d < kWarp; d *= 2) {
    const uint32_t below = __shfl_up_sync(kAllLanes, x, d);
    if (lane >= d) x += below;
  }
  return x;
}

// The sum over the threads before this one; *total over all. Called by the whole block; what was
// in shared memory before is seen by all threads after.
__device__ __forceinline__ uint32_t block_exclusive_sum(uint32_t x, uint32_t* warp_sums,
                                                        uint32_t* total) {
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t warp = threadIdx.x / kWarp;
  const uint32_t upto = warp_inclusive_sum(x);
  if (lane == kWarp - 1) warp_sums[warp] = upto;
  __syncthreads();
  const uint32_t sum = lane < kWarps ? warp_sums[lane] : 0;
  *total = __reduce_add_sync(kAllLanes, sum);
  return __reduce_add_sync(kAllLanes, lane < warp ? sum : 0) + upto - x;
}

struct Crossing {
  uint32_t bin;     // holds the element wanted
  uint32_t above;   // elements in higher bins
  uint32_t inside;  // elements in the bin
};

// The bin with above < wanted <= above + inside, written to *result by one thread; left as it was
// when the bins hold fewer than `wanted` altogether. Needs a barrier before (bins filled) and
// after.
//
// The bins are dealt to warps from the top, 32 each at a time. Every warp adds up its bins (one
// instruction), and only the one in which the sum crosses looks inside.
template <uint32_t kBins>
__device__ __forceinline__ void find_crossing(const uint32_t* bins, uint32_t wanted,
                                              uint32_t* scratch, Crossing* result) {
  constexpr uint32_t kTiles = kBins / kWarp;
  static_assert(kTiles <= 2 * kWarp, "a lane looks at two tile sums at most");
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t warp = threadIdx.x / kWarp;
  const uint32_t* top = bins + kBins - 1 - lane;
  for (uint32_t tile = warp; tile < kTiles; tile += kWarps) {
    const uint32_t sum = __reduce_add_sync(kAllLanes, top[-static_cast<int>(tile * kWarp)]);
    if (lane == 0) scratch[tile] = sum;
  }
  __syncthreads();
  for (uint32_t tile = warp; tile < kTiles; tile += kWarps) {
    uint32_t before = lane < tile ? scratch[lane] : 0;
    if constexpr (kTiles > kWarp) before += lane + kWarp < tile ? scratch[lane + kWarp] : 0;
    before = __reduce_add_sync(kAllLanes, before);
    if (before >= wanted || wanted > before + scratch[tile]) continue;
    const uint32_t mine = top[-static_cast<int>(tile * kWarp)];
    const uint32_t above = before + warp_inclusive_sum(mine) - mine;
    if (above < wanted && wanted <= above + mine) {
      *result = {kBins - 1 - tile * kWarp - lane, above, mine};
    }
  }
}

}  // namespace tl_topk
