// What tl_topk.lang offers to other people's kernels.
#pragma once

#include <cstdint>

#include "../bin_map.h"
#include "../key.h"
#include "row.cuh"
#include "select.cuh"

namespace tl_topk::lang {

// The key of a score of any floating-point type: larger for better scores, 0 for NaN.
template <typename T>
__device__ __forceinline__ uint32_t order_key_of(T score) {
  return order_key(__float_as_uint(static_cast<float>(score)));
}

// Which of `bins` equal bins between `low` and `high` a score falls into; what lies outside falls
// into the first or the last, NaN into the first. Monotone.
template <typename T>
__device__ __forceinline__ int linear_bin(T score, float low, float high, int bins) {
  const BinMap map = make_bin_map(low, high, static_cast<uint32_t>(bins));
  return static_cast<int>(map(static_cast<float>(score)));
}

// The k best of n scores in shared or global memory, by kThreads threads, of which this is number
// `thread`; all of them see the results afterwards. `indices` and `values` (null: not wanted) have
// k slots; those past the n-th hold -1 and the worst score. `keys`, in shared memory: a power of
// two of at least k keys of 8 bytes where an order is asked for. `scratch`: kScratchWords words.
template <int kDtype, int kThreads>
__device__ __forceinline__ void topk(int thread, const void* scores, int n, int k, int* indices,
                                     void* values, int order, int largest, void* keys,
                                     void* scratch_words) {
  constexpr auto kD = static_cast<Dtype>(kDtype);
  using Raw = typename Element<kD>::Raw;
  auto& scratch = *static_cast<Scratch*>(scratch_words);
  const Block<kThreads> block{static_cast<uint32_t>(thread)};
  const auto* const first = static_cast<const Raw*>(scores);
  const auto length = static_cast<uint32_t>(n > 0 ? n : 0);
  const RowSource<kD, kThreads> row{block, first, length,
                                    largest != 0 ? Raw{0} : Element<kD>::kSign};
  const Output<kD, kThreads> out{block,
                                 first,
                                 indices,
                                 static_cast<Raw*>(values),
                                 static_cast<uint32_t>(k > 0 ? k : 0),
                                 static_cast<Order>(order),
                                 largest != 0,
                                 static_cast<uint64_t*>(keys)};
  block.sync();
  if (length <= out.k) {
    select_all(row, out);
  } else if (out.k > 0) {
    select(block, row, length, out.k, scratch,
           [&](uint32_t slot, uint64_t rank) { out.put(slot, rank); });
    out.finish(out.k);
  }
  block.sync();
}

}  // namespace tl_topk::lang
