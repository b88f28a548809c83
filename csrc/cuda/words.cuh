// What is written of the winners of a launch of free order: their indices, or what they are mapped
// to.
//
// A survivor's word is its index, its index moved by the row's offset, or its slot in a paged
// cache. Slots take a page number from the request's table: where each block has room for all that
// a row has, they are copied while the row is on its way. Otherwise those of as many survivors as
// are likely to win are read while the block waits for other blocks' counts anyway, rather than
// those of the winners when nothing else is left to do.
#pragma once

#include <cstdint>

#include "cuda/output.cuh"
#include "cuda/ptx.cuh"
#include "cuda/shared_state.cuh"
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
    // Behind what whole warps look at of the list.
    const uint32_t end = (survivors.listed + kWarp - 1) / kWarp * kWarp;
    known = min(likely, kWordsOfEntry * (survivors.capacity - end));
    read = reinterpret_cast<uint32_t*>(survivors.list + end);
    __syncthreads();  // all are in order
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

// What asks for what is written of a row with one output. Nothing copies pages in bulk before
// compute capability 9.0: none of those launches are given room for them.
constexpr uint32_t kAsker = kWarp;

// By it, before the team opens.
__device__ __forceinline__ void open_pages(const KernelParams&, SharedState&) {}
__device__ __forceinline__ void open_pages(const MappedParams&, SharedState& state) {
  if constexpr (ptx::kHasClusters) {
    if (threadIdx.x != kAsker) return;
    ptx::init_barrier(&state.paged, 1);
    ptx::fence_barrier_init();
  }
}

// Asks once the row itself is on its way: it lies where this multiprocessor has not read lately, as
// do the parameters that tell where.
__device__ __forceinline__ void ask_for_mapping(const KernelParams&, uint32_t, uint32_t*,
                                                SharedState&) {}
// Of slots all pages of the row come to `pages`, in shared memory, by one copy: nothing has to be
// read, nor its place to be found, when winners are known.
__device__ __forceinline__ void ask_for_mapping(const MappedParams& params, uint32_t r,
                                                uint32_t* pages, SharedState& state) {
  if (threadIdx.x != kAsker || params.only == OnlyOutput::kNone) return;
  const Mapping& m = params.mapping;
  if (params.only == OnlyOutput::kRagged) return ptx::prefetch(offset_of_row(m, r));
  const RequestPages from = pages_of_plain_row(m, r);
  if (params.only == OnlyOutput::kFarSlots) {
    if (from.columns > 0) ptx::prefetch(from.table);
  } else if constexpr (ptx::kHasClusters) {
    const uint32_t bytes = static_cast<uint32_t>(m.pages) * static_cast<uint32_t>(sizeof(*pages));
    ptx::arrive_and_expect(&state.paged, bytes);
    ptx::copy_bulk_async(pages, from.table, bytes, &state.paged);
  }
}

// Of a launch with one output, of which every block can tell all.
struct OnlyWords {
  static constexpr uint32_t kHolders = kThreads;

  int32_t* to;
  const uint32_t* pages;
  uint32_t offset;
  bool slots;
  const Mapping& m;

  __device__ __forceinline__ OnlyWords(const MappedParams& params, uint32_t row,
                                       const uint32_t* pages_, SharedState& state)
      : to(params.indices + row * params.indices_stride),
        pages(pages_),
        slots(params.only == OnlyOutput::kSlots),
        m(params.mapping) {
    if (slots) {
      if constexpr (ptx::kHasClusters) ptx::await_barrier(&state.paged);
    } else {
      offset = static_cast<uint32_t>(*offset_of_row(m, row));
    }
  }
  __device__ __forceinline__ void await() const {}
  __device__ __forceinline__ bool known_to_block_alone() const { return false; }
  __device__ __forceinline__ uint32_t of(uint32_t, uint32_t index, bool enabled) const {
    if (!slots) return index + offset;
    const uint32_t column = index >> m.page_log2;
    const bool has_page = enabled && column < static_cast<uint32_t>(m.pages);
    const uint32_t page = ptx::shared_load_if(pages + column, has_page, ~0u);
    return static_cast<uint32_t>(
        slot_in_page(static_cast<int32_t>(page), index, m.page_log2, m.cache_pages));
  }
  __device__ __forceinline__ void put(uint32_t slot, uint32_t, uint32_t word, bool there) const {
    ptx::store_if(to + slot, word, there);
  }
};

// The same of slots with more pages than a block has room for, or pages that lie askew.
struct FarSlots {
  static constexpr uint32_t kHolders = kMappers;

  int32_t* to;
  uint32_t cache_pages;
  Pages pages;

  __device__ __forceinline__ FarSlots(const MappedParams& params, uint32_t row)
      : to(params.indices + row * params.indices_stride), cache_pages(params.mapping.cache_pages) {
    pages.of_request = pages_of_plain_row(params.mapping, row);
    pages.first = 0;
    pages.page_log2 = params.mapping.page_log2;
  }
  __device__ __forceinline__ void await() const { pages.await(); }
  __device__ __forceinline__ bool known_to_block_alone() const { return true; }
  __device__ __forceinline__ uint32_t of(uint32_t i, uint32_t index, bool enabled) const {
    return static_cast<uint32_t>(
        slot_in_page(pages.of(i, index, enabled), index, pages.page_log2, cache_pages));
  }
  __device__ __forceinline__ void put(uint32_t slot, uint32_t, uint32_t word, bool there) const {
    ptx::store_if(to + slot, word, there);
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
