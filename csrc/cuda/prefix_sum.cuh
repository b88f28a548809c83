// Block-wide sums, and the search for the bin that holds the k-th element.
#pragma once

#include <cstdint>

#include "cuda/ptx.cuh"
#include "cuda/row.cuh"

namespace tl_topk {

constexpr uint32_t kAllLanes = 0xffffffffu;

__device__ __forceinline__ uint32_t warp_inclusive_sum(uint32_t x) {
  const uint32_t lane = threadIdx.x % kWarp;
#pragma unroll
  for (uint32_t d = 1; d < kWarp; d *= 2) {
    const uint32_t below = __shfl_up_sync(kAllLanes, x, d);
    if (lane >= d) x += below;
  }
  return x;
}

// Sum over the threads up to and including this one. `scratch`: one word a warp; safe to reuse
// after the next block barrier.
__device__ __forceinline__ uint32_t block_inclusive_sum(uint32_t x, uint32_t* scratch) {
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t warp = threadIdx.x / kWarp;
  const uint32_t within = warp_inclusive_sum(x);
  if (lane == kWarp - 1) scratch[warp] = within;
  __syncthreads();
  const uint32_t others = lane < warp ? scratch[lane] : 0;
  return within + __reduce_add_sync(kAllLanes, others);
}

struct Crossing {
  uint32_t bin;    // holds the element wanted
  uint32_t above;  // elements in higher bins
  uint32_t inside;  // elements in the bin
};

// The bin with above < wanted <= above + inside, written to *result by one thread; left as it was
// when the bins hold fewer than `wanted` altogether. Needs a barrier before (bins filled) and after.
template <uint32_t kBins>
__device__ __forceinline__ void find_crossing(const uint32_t* bins, uint32_t wanted,
                                              uint32_t* scratch, Crossing* result) {
  // Thread 0 owns the highest bins, so that sums run downwards from the best.
  const uint32_t each = blockDim.x < kBins ? kBins / blockDim.x : 1;
  const uint32_t top = kBins - threadIdx.x * each;  // one past this thread's highest bin
  const bool owns = threadIdx.x * each < kBins;
  uint32_t sum = 0;
  if (owns) {
    for (uint32_t i = 1; i <= each; ++i) sum += bins[top - i];
  }
  const uint32_t upto = block_inclusive_sum(sum, scratch);
  uint32_t above = upto - sum;
  if (owns && above < wanted && wanted <= upto) {
    uint32_t i = 1;
    while (above + bins[top - i] < wanted) above += bins[top - i++];
    *result = {top - i, above, bins[top - i]};
  }
}

}  // namespace tl_topk
