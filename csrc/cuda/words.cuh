// What is written of the winners of a launch of free order: their indices, or what they are mapped
// to.
//
// A survivor's word is its index, its index moved by the row's offset, or its slot in a paged
// cache. Slots take a page number from the request's table. They are read while the block waits for
// other blocks' counts anyway, of as many survivors as are likely to win, rather than of the
// winners when nothing else is left to do.
#pragma once

#include <cstdint>

#include "cuda/output.cuh"
#include "cuda/ptx.cuh"
#include "cuda/survivors.cuh"
#include "mapping.h"

namespace tl_topk {

// Threads that look after what is mapped: all but those that add up the tables meanwhile. Each has
// the survivors that lie a multiple of their number behind its first.
constexpr uint32_t kMappers = kThreads - kTallyWarps * kWarp;

// Of a launch that maps nothing.
struct Indices {
  static constexpr uint32_t kHolders = kThreads;

  int32_t* to;

  __device__ __forceinline__ void await() const {}
  __device__ __forceinline__ bool known_to_block_alone() const { return false; }
  __device__ __forceinline__ uint32_t of(uint32_t, uint32_t index, bool) const { return index; }
  __device__ __forceinline__ void put(uint32_t slot, uint32_t, uint32_t word, bool there) const {
    ptx::store_if(to + slot, word, there);
  }
};

// The pages of a request, and those already read of a block's first survivors.
struct Pages {
  RequestPages of_request;
  uint32_t first;  // the row's
  int32_t page_log2;
  uint32_t* read;  // in shared memory, behind the list
  uint32_t known;  // so many

  // 2^blocks_log2 blocks share the row's k winners.
  __device__ __forceinline__ void read_likely(const OrderedList& survivors, uint32_t k,
                                              uint32_t blocks_log2) {
    // A block's part of the winners varies by the root of what it is, and lists are in order.
    const uint32_t part = k >> blocks_log2;
    const uint32_t likely = min(part + part / 8 + 64, survivors.listed);
    constexpr uint32_t kWordsOfEntry = sizeof(Entry) / sizeof(uint32_t);
    known = min(likely, kWordsOfEntry * (survivors.capacity - survivors.listed));
    read = reinterpret_cast<uint32_t*>(survivors.list + survivors.listed);
    // All must be in order. A barrier at which those who read none only arrive would do, but
    // racecheck does not know it (bench/results/sanitizer_cdeafe3.log).
    __syncthreads();
    if (threadIdx.x < kThreads - kMappers) return;
#pragma unroll 1
    for (uint32_t i = threadIdx.x - (kThreads - kMappers); i < known; i += kMappers) {
      const uint32_t column = column_of(survivors.list[i].index);
      const bool has_page = column < of_request.columns;
      if (!has_page) read[i] = ~0u;
      ptx::copy_word_async(read + i, of_request.table + column, has_page);
    }
  }
  // Those of this thread's survivors.
  __device__ __forceinline__ void await() const { ptx::await_all_copies(); }

  // Of the block's i-th survivor, of that index; out of range where the request has none.
  __device__ __forceinline__ int32_t of(uint32_t i, uint32_t index, bool enabled) const {
    if (!ptx::unlikely(i >= known)) return static_cast<int32_t>(read[i]);
    const uint32_t column = column_of(index);
    return ptx::load_if(of_request.table + column, enabled && column < of_request.columns, -1);
  }
  __device__ __forceinline__ uint32_t column_of(uint32_t index) const {
    return first + (index >> page_log2);
  }
};

// The low word of a row's offset, which is all that counts of it.
__device__ __forceinline__ const int32_t* offset_of_row(const Mapping& m, uint32_t r) {
  return static_cast<const int32_t*>(m.offsets.data) + (m.offsets.is_int64 ? 2 * r : r);
}

// What is read of a row with one output lies where this multiprocessor has not read lately. It
// shall be found quickly when it is: once the row is on its way, for the parameters that tell where
// come from far as well.
__device__ __forceinline__ void prefetch_mapping(const KernelParams&, uint32_t) {}
__device__ __forceinline__ void prefetch_mapping(const MappedParams& params, uint32_t r) {
  if (threadIdx.x != kWarp || params.only == OnlyOutput::kNone) return;
  if (params.only == OnlyOutput::kRagged) return ptx::prefetch(offset_of_row(params.mapping, r));
  const RequestPages pages = pages_of_plain_row(params.mapping, r);
  if (pages.columns > 0) ptx::prefetch(pages.table);
}

// Of a launch with one output, which the kernel's parameters tell all about but the row's offset.
struct OnlyWords {
  static constexpr uint32_t kHolders = kMappers;

  const MappedParams& params;
  uint32_t row;
  uint32_t offset;
  Pages pages;

  __device__ __forceinline__ OnlyWords(const MappedParams& params_, uint32_t row_,
                                       const OrderedList& survivors, uint32_t blocks_log2)
      : params(params_), row(row_) {
    if (known_to_block_alone()) {
      pages.of_request = pages_of_plain_row(params.mapping, row);
      pages.first = 0;
      pages.page_log2 = params.mapping.page_log2;
      pages.read_likely(survivors, params.k, blocks_log2);
    } else {
      offset = static_cast<uint32_t>(*offset_of_row(params.mapping, row));
    }
  }
  __device__ __forceinline__ void await() const {
    if (known_to_block_alone()) pages.await();
  }
  // Can nobody but the block that has a survivor tell what is written of it?
  __device__ __forceinline__ bool known_to_block_alone() const {
    return params.only == OnlyOutput::kSlots;
  }
  __device__ __forceinline__ uint32_t of(uint32_t i, uint32_t index, bool enabled) const {
    if (!known_to_block_alone()) return index + offset;
    return static_cast<uint32_t>(slot_in_page(pages.of(i, index, enabled), index, pages.page_log2,
                                              params.mapping.cache_pages));
  }
  __device__ __forceinline__ void put(uint32_t slot, uint32_t, uint32_t word, bool there) const {
    ptx::store_if(params.indices + row * params.indices_stride + slot, word, there);
  }
};

// Of any mapped launch: slots if there are any, else ragged indices, else indices; and what else is
// wanted.
struct AnyWords {
  static constexpr uint32_t kHolders = kMappers;

  const RowMapping& map;
  int32_t* indices;
  Pages pages;

  template <Dtype D>
  __device__ __forceinline__ AnyWords(const Output<D, true>& out, const OrderedList& survivors,
                                      uint32_t blocks_log2)
      : map(*out.mapping), indices(out.indices) {
    if (!known_to_block_alone()) return;
    pages.of_request = {map.table, map.pages};
    pages.first = map.first_page;
    pages.page_log2 = map.page_log2;
    pages.read_likely(survivors, out.k, blocks_log2);
  }
  __device__ __forceinline__ void await() const {
    if (known_to_block_alone()) pages.await();
  }
  __device__ __forceinline__ bool known_to_block_alone() const { return map.slots != nullptr; }
  __device__ __forceinline__ uint32_t of(uint32_t i, uint32_t index, bool enabled) const {
    if (!known_to_block_alone()) return static_cast<uint32_t>(map.place(index));
    return static_cast<uint32_t>(map.slot(pages.of(i, index, enabled), index));
  }
  __device__ __forceinline__ void put(uint32_t slot, uint32_t index, uint32_t word,
                                      bool there) const {
    if (!there) return;
    if (map.slots != nullptr) map.slots[slot] = static_cast<int32_t>(word);
    if (map.ragged != nullptr) map.ragged[slot] = map.place(index);
    if (indices != nullptr) indices[slot] = static_cast<int32_t>(index);
  }
};

}  // namespace tl_topk
