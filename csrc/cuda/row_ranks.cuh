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

// This block's share of a row, read again for each pass. Calling it with f calls f(rank, valid) in
// whole warps.
template <Dtype D>
struct RowRanks {
  static constexpr uint32_t kPerVector = Row<D>::kPerVector;
  // Loads under way at once, for one after the other would be waited for: 32 elements' worth, and
  // half of that where what is done with an element is long.
  static constexpr uint32_t kLoadsLog2 = kPerVector == 4 ? 3 : 2;
  static constexpr uint32_t kLoads = 1 << kLoadsLog2;

  Row<D> row;
  Deal deal;

  __device__ RowRanks(const Row<D>& row_, uint32_t block, uint32_t blocks_log2)
      : row(row_), deal(row_.vectors(), kLoadsLog2, block, blocks_log2) {}

  // Calls f(x, first) for each vector: its elements, NaN outside the row, and the index of the
  // first.
  template <uint32_t kBatch = kLoads, typename F>
  __device__ __forceinline__ void for_each_vector(F&& f) const {
    static_assert(kLoads % kBatch == 0);
#pragma unroll 1
    for (uint32_t i = 0; i < deal.steps * (kLoads / kBatch); ++i) {
      const uint32_t step = i / (kLoads / kBatch);
      const uint32_t first = i % (kLoads / kBatch) * kBatch;
      uint4 loaded[kBatch];
#pragma unroll
      for (uint32_t u = 0; u < kBatch; ++u) loaded[u] = row.load(deal.vector(first + u, step));
#pragma unroll
      for (uint32_t u = 0; u < kBatch; ++u) {
        float x[kPerVector];
        widen_vector<D>(loaded[u], row.flip, x);
        f(x, row.index(deal.vector(first + u, step)));
      }
    }
  }

  template <typename F>
  __device__ __forceinline__ void operator()(F&& f) const {
    for_each_vector<kLoads / 2>([&](const float (&x)[kPerVector], uint32_t first) {
#pragma unroll
      for (uint32_t j = 0; j < kPerVector; ++j) {
        f(rank_key(order_key(__float_as_uint(x[j])), first + j), first + j < row.length);
      }
    });
  }
};

}  // namespace tl_topk
