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

// This block's share of a row. Calling it with f calls f(rank, valid) in whole warps.
template <Dtype D>
struct RowRanks {
  Row<D> row;
  Deal deal;

  __device__ RowRanks(const Row<D>& row_, uint32_t block, uint32_t blocks_log2)
      : row(row_), deal(row_.vectors(), 0, block, blocks_log2) {}

  template <typename F>
  __device__ __forceinline__ void operator()(F&& f) const {
    constexpr uint32_t kPerVector = Row<D>::kPerVector;
    for (uint32_t step = 0; step < deal.steps; ++step) {
      const uint32_t v = deal.vector(0, step);
      const uint32_t index = row.index(v);
      float x[kPerVector];
      widen_vector<D>(row.load(v), row.flip, x);
#pragma unroll
      for (uint32_t j = 0; j < kPerVector; ++j) {
        f(rank_key(order_key(__float_as_uint(x[j])), index + j), index + j < row.length);
      }
    }
  }
};

}  // namespace tl_topk
