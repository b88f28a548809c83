// One row in global memory and one row of the result, for a block of any size.
#pragma once

#include <cstdint>

#include "../key.h"
#include "../problem.h"
#include "element.cuh"
#include "select.cuh"

namespace tl_topk::lang {

// How many scores a thread loads before it looks at the first: a single block hides the latency of
// global memory by nothing else.
constexpr uint32_t kAhead = 8;

// The scores [first, first + length), with `flip` (0 or the sign bit) applied so that larger is
// better.
template <Dtype D, uint32_t kThreads>
struct RowSource {
  using Raw = typename Element<D>::Raw;
  Block<kThreads> block;
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
    for (uint32_t i = block.thread; i - lane() < length; i += kAhead * kThreads) {
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

// Where the winners go: straight to their slots or, when an order is asked for, into `keys` first,
// shared memory for a power of two of at least k of them.
template <Dtype D, uint32_t kThreads>
struct Output {
  using Raw = typename Element<D>::Raw;
  Block<kThreads> block;
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
  // The same where the key is known: it tells the score, and the row is seldom read again.
  __device__ void write(uint32_t slot, uint32_t index, uint32_t key) const {
    indices[slot] = static_cast<int32_t>(index);
    if (values == nullptr) return;
    if (key == kNanKey || key == kSignBit) {  // one of many NaN, or either zero
      values[slot] = row[index];
    } else {
      const Raw raw = Element<D>::narrow(__uint_as_float(bits_of_key(key)));
      values[slot] = largest ? raw : static_cast<Raw>(raw ^ Element<D>::kSign);
    }
  }
  __device__ __forceinline__ void put(uint32_t slot, uint64_t rank) const {
    if (order == Order::kAny) {
      write(slot, index_of_rank(rank), key_of_rank(rank));
    } else if (order == Order::kIndex) {
      keys[slot] = static_cast<uint64_t>(index_of_rank(rank)) << 32 | key_of_rank(rank);
    } else {
      keys[slot] = ~rank;
    }
  }
  // After `count` slots have been put: orders them, and fills the slots past them.
  __device__ __forceinline__ void finish(uint32_t count) const {
    if (order != Order::kAny && count > 0) {
      uint32_t padded = 2;
      while (padded < count) padded *= 2;
      block.sync();
      for (uint32_t i = count + block.thread; i < padded; i += kThreads) keys[i] = ~0ull;
      sort_ascending(block, keys, padded);
      for (uint32_t i = block.thread; i < count; i += kThreads) {
        if (order == Order::kIndex) {
          write(i, static_cast<uint32_t>(keys[i] >> 32), static_cast<uint32_t>(keys[i]));
        } else {
          write(i, index_of_rank(~keys[i]), key_of_rank(~keys[i]));
        }
      }
    }
    constexpr Raw kInf = Element<D>::kInf;
    constexpr auto kMinusInf = static_cast<Raw>(kInf | Element<D>::kSign);
    for (uint32_t i = count + block.thread; i < k; i += kThreads) {
      indices[i] = -1;
      if (values != nullptr) values[i] = largest ? kMinusInf : kInf;
    }
  }
};

// What Output's own does, for an order that is asked for; seldom enough to be called.
template <Dtype D, uint32_t kThreads>
__device__ __noinline__ void write_in_order(const Output<D, kThreads> out, uint64_t* winners) {
  for (uint32_t i = out.block.thread; i < out.k; i += kThreads) out.put(i, winners[i]);
  out.finish(out.k);
}

// All k slots from ranks in shared memory, which are put in order there: a power of two of places,
// the `keys` of `out`.
template <Dtype D, uint32_t kThreads>
__device__ __forceinline__ void write_winners(const Output<D, kThreads>& out, uint64_t* winners) {
  if (out.order != Order::kAny) return write_in_order(out, winners);
#pragma unroll 1
  for (uint32_t i = out.block.thread; i < out.k; i += kThreads) {
    out.write(i, index_of_rank(winners[i]), key_of_rank(winners[i]));
  }
}

// A row no longer than k: all of it.
template <Dtype D, uint32_t kThreads>
__device__ __noinline__ void select_all(const RowSource<D, kThreads> row,
                                        const Output<D, kThreads> out) {
  for (uint32_t i = row.block.thread; i < row.length; i += kThreads) {
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

// Where the scores above `guess` are fewer than k, all in a list, and enough of the row equals it:
// the list, and the first of those. What makes guesses fail most often is a value that much of the
// row shares; then little of the row is read. False, with slots written in vain, where there are
// not enough.
template <Dtype D, uint32_t kThreads>
__device__ __noinline__ bool select_ties(const RowSource<D, kThreads> row, float guess,
                                         const uint64_t* list, uint32_t count,
                                         const Output<D, kThreads> out, Scratch& scratch) {
  constexpr uint32_t kEach = 8;  // neighbours a thread looks at
  const Block<kThreads> block = row.block;
  const uint32_t guessed = order_key(__float_as_uint(guess));
  for (uint32_t i = block.thread; i < count; i += kThreads) out.put(i, list[i]);
  uint32_t slot = count;
  for (uint32_t base = 0; base < row.length && slot < out.k; base += kEach * kThreads) {
    const uint32_t first = base + block.thread * kEach;
    uint32_t equal = 0;  // a bit each
#pragma unroll
    for (uint32_t j = 0; j < kEach; ++j) {
      const uint32_t i = first + j;
      const bool same =
          i >= base && i < row.length && order_key(__float_as_uint(row.oriented(i))) == guessed;
      equal |= static_cast<uint32_t>(same) << j;
    }
    const uint32_t mine = __popc(equal);
    uint32_t before = mine;
#pragma unroll
    for (uint32_t d = 1; d < 32; d *= 2) {
      const uint32_t other = __shfl_up_sync(kAllLanes, before, d);
      if (lane() >= d) before += other;
    }
    block.sync();
    if (lane() == 31) scratch.warp_sums[block.thread / 32] = before;
    block.sync();
    before -= mine;
    uint32_t total = 0;
    for (uint32_t w = 0; w < kThreads / 32; ++w) {
      if (w < block.thread / 32) before += scratch.warp_sums[w];
      total += scratch.warp_sums[w];
    }
    for (uint32_t at = slot + before; equal != 0 && at < out.k; ++at, equal &= equal - 1) {
      out.put(at, row.rank(first + __ffs(equal) - 1));
    }
    slot += total;
  }
  block.sync();
  return slot >= out.k;
}

// The k best of a row longer than k, reading it once for each round. The first pass finds out how
// many scores lie above and at `guess`, a score near the k-th, and where all others lie.
template <Dtype D, uint32_t kThreads>
__device__ __noinline__ void select_row(const RowSource<D, kThreads> row, float guess,
                                        const Output<D, kThreads> out, Scratch& scratch) {
  const Block<kThreads> block = row.block;
  const uint32_t guessed = order_key(__float_as_uint(guess));
  block.sync();
  if (block.thread < 2) scratch.counts[block.thread] = 0;
  uint32_t more = 0;
  uint32_t same = 0;
  Range range = span_of(
      block,
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
  block.sync();
  more = scratch.counts[0];
  same = scratch.counts[1];
  const uint64_t highest = scratch.highest;
  if (more >= out.k) {
    const uint64_t low = static_cast<uint64_t>(guessed + 1) << 32;
    range = {low, bit_length(highest - low), out.k, more};
  } else if (more + same >= out.k) {
    range = {rank_key(guessed, row.length - 1), bit_length(row.length - 1), out.k - more, same};
  }
  // Else the k-th lies below the guess, in a range that had to end there. One of a power of two
  // would reach beyond, so the whole row's is narrowed down.
  range = narrow(block, range, row, scratch);
  emit(block, range, row, out.k, scratch,
       [&](uint32_t slot, uint64_t rank) { out.put(slot, rank); });
  out.finish(out.k);
}

}  // namespace tl_topk::lang
