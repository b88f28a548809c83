// One row in global memory and one row of the result, for a block of any size.
#pragma once

#include <cstdint>

#include "cuda/element.cuh"
#include "key.h"
#include "lang/select.cuh"
#include "problem.h"
#include "row_span.h"

namespace tl_topk::lang {

// How many scores a thread loads before it looks at the first: a single block hides the latency of
// global memory by nothing else.
constexpr uint32_t kAhead = 8;

// The scores [first, first + length), with `flip` (0 or the sign bit) applied so that larger is
// better.
template <Dtype D, uint32_t kThreads>
struct RowSource {
  using Raw = typename Element<D>::Raw;
  const Raw* first;
  uint32_t length;
  Raw flip;

  __device__ float oriented(uint32_t i) const {
    return Element<D>::widen(static_cast<Raw>(first[i] ^ flip));
  }
  __device__ uint64_t rank(uint32_t i) const {
    return rank_key(order_key(__float_as_uint(oriented(i))), i);
  }
  // Calls f(rank, valid) in whole warps.
  template <typename F>
  __device__ __forceinline__ void operator()(const F& f) const {
    for (uint32_t i = threadIdx.x; i - lane() < length; i += kAhead * kThreads) {
      float x[kAhead];
#pragma unroll
      for (uint32_t u = 0; u < kAhead; ++u) {
        const uint32_t at = i + u * kThreads;
        x[u] = at < length && at >= i ? oriented(at) : 0.0f;
      }
#pragma unroll
      for (uint32_t u = 0; u < kAhead; ++u) {
        const uint32_t at = i + u * kThreads;
        f(rank_key(order_key(__float_as_uint(x[u])), at), at < length && at >= i);
      }
    }
  }
};

template <Dtype D>
constexpr typename Element<D>::Raw kSignOf = static_cast<typename Element<D>::Raw>(
    typename Element<D>::Raw{1} << (8 * sizeof(typename Element<D>::Raw) - 1));

// Where the winners go: straight to their slots or, when an order is asked for, into `keys` first,
// shared memory for a power of two of at least k of them.
template <Dtype D, uint32_t kThreads>
struct Output {
  using Raw = typename Element<D>::Raw;
  const Raw* row;
  int32_t* indices;
  Raw* values;  // null: not wanted
  uint32_t k;
  Order order;
  bool largest;
  uint64_t* keys;

  __device__ void write(uint32_t slot, uint32_t index) const {
    indices[slot] = static_cast<int32_t>(index);
    if (values != nullptr) values[slot] = row[index];
  }
  __device__ __forceinline__ void put(uint32_t slot, uint64_t rank) const {
    if (order == Order::kAny) {
      write(slot, index_of_rank(rank));
    } else {
      keys[slot] = order == Order::kIndex ? index_of_rank(rank) : ~rank;
    }
  }
  // After `count` slots have been put: orders them, and fills the slots past them.
  __device__ __forceinline__ void finish(uint32_t count) const {
    if (order != Order::kAny && count > 0) {
      uint32_t padded = 2;
      while (padded < count) padded *= 2;
      __syncthreads();
      for (uint32_t i = count + threadIdx.x; i < padded; i += kThreads) keys[i] = ~0ull;
      sort_ascending<kThreads>(keys, padded);
      for (uint32_t i = threadIdx.x; i < count; i += kThreads) {
        write(i, order == Order::kIndex ? static_cast<uint32_t>(keys[i]) : index_of_rank(~keys[i]));
      }
    }
    constexpr Raw kInf = D == Dtype::kFloat32   ? static_cast<Raw>(0x7f800000u)
                         : D == Dtype::kFloat16 ? static_cast<Raw>(0x7c00u)
                                                : static_cast<Raw>(0x7f80u);
    for (uint32_t i = count + threadIdx.x; i < k; i += kThreads) {
      indices[i] = -1;
      if (values != nullptr) values[i] = largest ? static_cast<Raw>(kInf | kSignOf<D>) : kInf;
    }
  }
};

// A row no longer than k: all of it.
template <Dtype D, uint32_t kThreads>
__device__ __forceinline__ void select_all(const RowSource<D, kThreads>& row,
                                           const Output<D, kThreads>& out) {
  for (uint32_t i = threadIdx.x; i < row.length; i += kThreads) {
    if (out.order == Order::kValue) {
      out.keys[i] = ~row.rank(i);
    } else {
      out.write(i, i);
    }
  }
  if (out.order == Order::kValue) {
    out.finish(row.length);
  } else {
    Output<D, kThreads> unordered = out;
    unordered.order = Order::kAny;  // index order is where they lie already
    unordered.finish(row.length);
  }
}

// The k best of a row longer than k, reading it once for each round. One pass finds out how many
// scores lie above and at `guess`, a score near the k-th: where much of a row is equal, which is
// what makes guesses fail, the guess is that value and only indices are left to be decided.
template <Dtype D, uint32_t kThreads>
__device__ __noinline__ void select_row(const RowSource<D, kThreads> row, float guess,
                                        const Output<D, kThreads> out, Scratch& scratch) {
  const uint32_t guessed = order_key(__float_as_uint(guess));
  __syncthreads();
  if (threadIdx.x < 2) scratch.counts[threadIdx.x] = 0;
  uint32_t more = 0;
  uint32_t same = 0;
  Range range = span_of<kThreads>(
      [&](const auto& f) {
        row([&](uint64_t rank, bool valid) {
          more += valid && key_of_rank(rank) > guessed;
          same += valid && key_of_rank(rank) == guessed;
          f(rank, valid);
        });
      },
      row.length, out.k, scratch);
  more = __reduce_add_sync(kAllLanes, more);
  same = __reduce_add_sync(kAllLanes, same);
  if (lane() == 0) {
    atomicAdd(&scratch.counts[0], more);
    atomicAdd(&scratch.counts[1], same);
  }
  __syncthreads();
  more = scratch.counts[0];
  same = scratch.counts[1];
  const uint64_t highest = scratch.highest;
  if (more >= out.k) {
    const uint64_t low = static_cast<uint64_t>(guessed + 1) << 32;
    range = {low, bit_length(highest - low), out.k, more};
  } else if (more + same >= out.k) {
    range = {rank_key(guessed, row.length - 1), bit_length(row.length - 1), out.k - more, same};
  } else {
    const uint64_t high = rank_key(guessed, 0xffffffffu) - 1;
    range = {range.low, bit_length(high - range.low), out.k - more - same,
             row.length - more - same};
  }
  range = narrow<kThreads>(range, row, scratch);
  emit<kThreads>(range, row, out.k, scratch,
                 [&](uint32_t slot, uint64_t rank) { out.put(slot, rank); });
  out.finish(out.k);
}

}  // namespace tl_topk::lang
