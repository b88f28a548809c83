// What the TileLang selector (tl_topk/tile/pipelined.py) does not say in TileLang: bounds of rows,
// the append of what passes the floor, and the exact end.
#pragma once

#include <cstdint>

#include "../row_span.h"
#include "floor.cuh"
#include "row.cuh"
#include "select.cuh"

namespace tl_topk::lang {

// Of numbers that are not negative; TileLang's own guards against those that are.
__device__ __forceinline__ int quotient(int a, int b) { return a / b; }

// Where the time inside a launch goes. Only where a benchmark asks (-DTL_TOPK_PHASE_CLOCK): then
// the clocks of a block's first thread lie where values would, which must not be asked for.
constexpr int kPhases = 5;  // start, floor known, row read, entries together, end
__device__ __forceinline__ void mark(void* clocks, int phase) {
#ifdef TL_TOPK_PHASE_CLOCK
  if (threadIdx.x == 0) static_cast<long long*>(clocks)[blockIdx.x * kPhases + phase] = clock64();
#endif
}

// kind: 0 not given, 1 int32, 2 int64.
__device__ __forceinline__ IntVector int_vector(const void* data, int kind) {
  return {kind == 0 ? nullptr : data, kind == 2};
}
// Where row `row` starts, counted from the matrix's first score.
__device__ __forceinline__ int64_t row_start(int64_t width, const void* lengths, int lengths_kind,
                                             const void* starts, int starts_kind, int row,
                                             int64_t stride) {
  return row * stride +
         row_span(width, int_vector(lengths, lengths_kind), int_vector(starts, starts_kind), row)
             .begin;
}
__device__ __forceinline__ int32_t row_length(int64_t width, const void* lengths, int lengths_kind,
                                              const void* starts, int starts_kind, int row) {
  return static_cast<int32_t>(
      row_span(width, int_vector(lengths, lengths_kind), int_vector(starts, starts_kind), row)
          .length);
}

// Raw bits (in the low end of an int) as a float that is larger for better scores.
template <int kDtype>
__device__ __forceinline__ float oriented(int bits, int largest) {
  constexpr auto kD = static_cast<Dtype>(kDtype);
  using Raw = typename Element<kD>::Raw;
  const auto raw = static_cast<Raw>(bits);
  return Element<kD>::widen(largest != 0 ? raw : static_cast<Raw>(raw ^ Element<kD>::kSign));
}

__device__ __forceinline__ uint64_t rank_of(float score, int index) {
  return rank_key(order_key(__float_as_uint(score)), static_cast<uint32_t>(index));
}

// The vector that this thread samples as number `load` of `loads`: spread over the row, and so that
// threads that share a group look at different ends of it. The row's first and last vector, which
// may hold others' scores, are left out.
template <int kThreads>
__device__ __forceinline__ int sample_place(int load, int loads, int row_vectors) {
  constexpr uint32_t kSpread = 1265;  // odd, so that no place is taken twice
  const uint32_t places = static_cast<uint32_t>(loads) * kThreads;  // a power of two
  const uint32_t place = (static_cast<uint32_t>(load) * kThreads + threadIdx.x) * kSpread;
  return 1 + static_cast<int>(static_cast<uint64_t>(place & (places - 1)) *
                              static_cast<uint32_t>(row_vectors - 2) / places);
}

// find_floor for all threads of a block.
template <int kThreads>
__device__ __forceinline__ float block_floor(float best, int size, int length, int k,
                                             void* scratch) {
  return find_floor(Block<kThreads>{threadIdx.x}, best, size, length, k, scratch);
}

// Adds a score that has passed the floor, if it is of the row and there is room; counts it anyway.
__device__ __forceinline__ void append(void* list, int* count, int capacity, float score, int index,
                                       int length) {
  if (static_cast<uint32_t>(index) >= static_cast<uint32_t>(length)) return;
  const int at = atomicAdd(count, 1);
  if (at < capacity) static_cast<uint64_t*>(list)[at] = rank_of(score, index);
}

// The same where all of a row is kept: at the place of its index.
__device__ __forceinline__ void keep(void* list, float score, int index, int length) {
  if (static_cast<uint32_t>(index) < static_cast<uint32_t>(length)) {
    static_cast<uint64_t*>(list)[index] = rank_of(score, index);
  }
}

// This block's list to the end of the row's list in global memory, which has `room` for more than
// one block's `capacity`, then a ticket. True, for all
// threads, in the block that comes last: it then has all of the row's list in its own, if there is
// room, and the counters, of entries and tickets, are as they were found.
template <int kThreads>
__device__ __forceinline__ int deliver(void* list_words, int* count, int capacity, void* lists,
                                       int room, int* all_counters, int row, int blocks,
                                       int* shared) {
  auto* const list = static_cast<uint64_t*>(list_words);
  auto* const row_list = static_cast<uint64_t*>(lists) + static_cast<int64_t>(row) * room;
  int* const counters = all_counters + 2 * static_cast<int64_t>(row);
  __syncthreads();
  const int mine = *count;
  if (threadIdx.x == 0 && mine > 0) *shared = atomicAdd(counters, mine);
  __syncthreads();
  if (mine > 0) {
    const int base = *shared;
    // More than its list holds: the row's count must say so too.
    if (mine > capacity && threadIdx.x == 0) atomicAdd(counters, room);
    const int stored = min(mine, capacity);
    for (int i = static_cast<int>(threadIdx.x); i < stored; i += kThreads) {
      if (base + i < room) __stcg(row_list + base + i, list[i]);
    }
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) *shared = atomicAdd(counters + 1, 1);
  __syncthreads();
  const bool last = *shared == blocks - 1;
  __syncthreads();
  if (!last) return 0;
  __threadfence();
  if (threadIdx.x == 0) {
    *count = atomicExch(counters, 0);
    atomicExch(counters + 1, 0);
  }
  __syncthreads();
  if (*count <= min(capacity, room)) {
    for (int i = static_cast<int>(threadIdx.x); i < *count; i += kThreads) {
      list[i] = __ldcg(row_list + i);
    }
  }
  __syncthreads();
  return 1;
}

// The end: the k best of the entries above `floor`, or of the whole row where that cannot be. A row
// that fits the list is there whole; of others there are *count entries, and if those are more than
// `capacity` they lie in the row's list, where several blocks share it. Called by one block a row.
template <int kDtype, int kThreads>
__device__ __forceinline__ void finish(const void* scores, int64_t start, int length,
                                       const void* list, const int* count, int capacity,
                                       void* lists, int room, int blocks, float floor, int* indices,
                                       int64_t indices_stride, void* values, int64_t values_stride,
                                       int with_values, int row_number, int k, int order,
                                       int largest, void* keys, void* scratch_words) {
  constexpr auto kD = static_cast<Dtype>(kDtype);
  using Raw = typename Element<kD>::Raw;
  auto& scratch = *static_cast<Scratch*>(scratch_words);
  const Block<kThreads> block{threadIdx.x};
  const Raw* const first = static_cast<const Raw*>(scores) + start;
  const RowSource<kD, kThreads> row{block, first, static_cast<uint32_t>(length),
                                    largest != 0 ? Raw{0} : Element<kD>::kSign};
  const Output<kD, kThreads> out{
      block,
      first,
      indices + row_number * indices_stride,
      with_values != 0 ? static_cast<Raw*>(values) + row_number * values_stride : nullptr,
      static_cast<uint32_t>(k),
      static_cast<Order>(order),
      largest != 0,
      static_cast<uint64_t*>(keys)};
  __syncthreads();
  if (length <= k) return select_all(row, out);
  if (length <= capacity) {
    const ListSource<kThreads> source{block, static_cast<const uint64_t*>(list), row.length};
    select(block, source, row.length, out.k, scratch,
           [&](uint32_t slot, uint64_t rank) { out.put(slot, rank); });
    return out.finish(out.k);
  }
  auto* const row_list = static_cast<uint64_t*>(lists) + static_cast<int64_t>(row_number) * room;
  const int entries = *count;
  const bool too_few = entries < k;
  if (too_few && select_ties(row, floor, static_cast<const uint64_t*>(list),
                             static_cast<uint32_t>(entries), out, scratch)) {
    out.finish(out.k);
  } else if (too_few || entries > (blocks > 1 ? room : capacity)) {
    select_row(row, floor, out, scratch);
  } else {
    const ListSource<kThreads> source{
        block, entries > capacity ? row_list : static_cast<const uint64_t*>(list),
        static_cast<uint32_t>(entries)};
    select(block, source, source.count, out.k, scratch,
           [&](uint32_t slot, uint64_t rank) { out.put(slot, rank); });
    out.finish(out.k);
  }
  if (blocks > 1) {  // the workspace is left as it was found
    for (int i = static_cast<int>(threadIdx.x); i < min(entries, room); i += kThreads) {
      row_list[i] = 0;
    }
  }
}

}  // namespace tl_topk::lang
