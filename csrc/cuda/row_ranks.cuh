// A row as the ranks of its elements, for the paths that compare exactly.
#pragma once

#include <cstdint>

#include "cuda/row.cuh"
#include "key.h"

namespace tl_topk {

template <Dtype D>
__device__ __forceinline__ uint64_t rank_of(const Row<D>& row, uint32_t index) {
  return rank_key(order_key(__float_as_uint(row.oriented(index))), index);
}

// This block's share of a row, read again for each pass: from global memory, or where the queue of
// steps still holds all of it, from there. Calling it with f calls f(rank, valid) in whole warps.
template <Dtype D>
struct RowRanks {
  static constexpr uint32_t kPerVector = Row<D>::kPerVector;
  static constexpr uint32_t kLoadsLog2 = kPerVector == 4 ? 2 : 1;  // as the queue has
  static constexpr uint32_t kLoads = 1 << kLoadsLog2;

  Row<D> row;
  Deal deal;
  const uint4* held;  // this thread's vectors, kThreads apart and in the order of the deal, or null

  __device__ RowRanks(const Row<D>& row_, uint32_t block, uint32_t blocks_log2)
      : row(row_), deal(row_.vectors(), kLoadsLog2, block, blocks_log2), held(nullptr) {}

  // Calls f(x, first) for each vector: its elements, NaN outside the row, and the index of the
  // first. kSteps are loaded at once, for one after the other would be waited for: fewer where what
  // is done with an element is long.
  template <uint32_t kSteps = 2, typename F>
  __device__ __forceinline__ void for_each_vector(F&& f) const {
    constexpr uint32_t kBatch = kSteps * kLoads;
#pragma unroll 1
    for (uint32_t i = 0; i < deal.steps; i += kSteps) {
      uint4 loaded[kBatch];
      uint32_t first[kBatch];
#pragma unroll
      for (uint32_t u = 0; u < kBatch; ++u) {
        const uint32_t at = i + u / kLoads;
        const uint32_t v = deal.vector(u % kLoads, deal.step(at));
        const bool past = kSteps > 1 && at >= deal.steps;
        first[u] = past ? row.length : row.index(v);
        if (past) {
          loaded[u] = {~0u, ~0u, ~0u, ~0u};
        } else if (held != nullptr) {
          loaded[u] = held[(i * kLoads + u) * kThreads];
        } else {
          loaded[u] = row.load(v);
        }
      }
#pragma unroll
      for (uint32_t u = 0; u < kBatch; ++u) {
        float x[kPerVector];
        widen_vector<D>(loaded[u], row.flip, x);
        f(x, first[u]);
      }
    }
  }

  template <typename F>
  __device__ __forceinline__ void operator()(F&& f) const {
    for_each_vector<1>([&](const float (&x)[kPerVector], uint32_t first) {
#pragma unroll
      for (uint32_t j = 0; j < kPerVector; ++j) {
        f(rank_key(order_key(__float_as_uint(x[j])), first + j), first + j < row.length);
      }
    });
  }
};

}  // namespace tl_topk
