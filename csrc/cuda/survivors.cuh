// The list of elements that passed the floor, in shared memory, and how warps append to it.
#pragma once

#include <cstdint>

#include "cuda/prefix_sum.cuh"
#include "cuda/ptx.cuh"
#include "cuda/row.cuh"
#include "key.h"

namespace tl_topk {

// A score (oriented: larger is better) and its position relative to the row's start.
struct __align__(8) Entry {
  float score;
  uint32_t index;

  __device__ uint64_t rank() const { return rank_key(order_key(__float_as_uint(score)), index); }
};

// Entries as the leader sees them: one segment a block, or a single one.
struct EntryList {
  const Entry* entries;
  const uint32_t* counts;  // of each segment
  uint32_t segments;
  uint32_t stride;  // between segments, in entries

  // Calls f(entry, valid) once per entry in whole warps, so that f may vote. A segment is dealt to
  // one or several warps, four entries a lane at a time.
  template <typename F>
  __device__ __forceinline__ void for_each_group(F&& f) const {
    constexpr uint32_t kUnroll = 4;
    const uint32_t warps = blockDim.x / kWarp;
    const uint32_t warp = threadIdx.x / kWarp;
    const uint32_t lane = threadIdx.x % kWarp;
    const uint32_t share = warps > segments ? warps / segments : 1;  // warps on one segment
    for (uint32_t s = warp / share; s < segments; s += warps / share) {
      const Entry* segment = entries + s * stride;
      const uint32_t count = counts[s];
      for (uint32_t i = warp % share * kWarp; i < count; i += share * kWarp * kUnroll) {
        Entry e[kUnroll];
        bool valid[kUnroll];
#pragma unroll
        for (uint32_t u = 0; u < kUnroll; ++u) {
          const uint32_t at = i + u * share * kWarp + lane;
          valid[u] = at < count;
          e[u] = valid[u] ? segment[at] : Entry{0.0f, 0};
        }
        f(e, valid);
      }
    }
  }
};

// Positions for every lane's `keep` elements in a list whose length is *count: one vote an element
// and one atomic a warp. The vote masks stay in registers between the two uses.
template <uint32_t kElements, typename Store>
__device__ __forceinline__ void warp_append(const bool (&keep)[kElements], uint32_t* count,
                                            Store&& store) {
  uint32_t votes[kElements];
  uint32_t total = 0;
#pragma unroll
  for (uint32_t i = 0; i < kElements; ++i) {
    votes[i] = __ballot_sync(kAllLanes, keep[i]);
    total += __popc(votes[i]);
  }
  if (total == 0) return;
  uint32_t base = 0;
  if (threadIdx.x % kWarp == 0) base = atomicAdd(count, total);
  base = __shfl_sync(kAllLanes, base, 0);
  const uint32_t below = ptx::lanes_below();
#pragma unroll
  for (uint32_t i = 0; i < kElements; ++i) {
    if (keep[i]) store(i, base + __popc(votes[i] & below));
    base += __popc(votes[i]);
  }
}

}  // namespace tl_topk
