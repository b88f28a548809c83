// The pages of a mapped launch of free order: from the winners' indices to what is written of them.
#pragma once

#include <cstdint>

#include "cuda/output.cuh"
#include "cuda/ptx.cuh"
#include "cuda/survivors.cuh"
#include "mapping.h"

namespace tl_topk {

// What is written instead of indices, and the pages of a block's survivors; nothing of a launch
// that maps nothing.
template <uint32_t kHeld, bool kMapped>
struct HeldPages {
  static constexpr uint32_t kPages = 0;  // so that the winners' loop is not unrolled

  template <Dtype D>
  __device__ __forceinline__ HeldPages(const OrderedList<kHeld>&, const Output<D, false>&,
                                       uint32_t) {}
  __device__ __forceinline__ bool known_to_holder_alone() const { return false; }
  __device__ __forceinline__ uint32_t word(uint32_t, uint32_t, uint32_t, bool) const { return 0; }
};
template <uint32_t kHeld>
struct HeldPages<kHeld, true> {
  // Of a thread: enough for its winners where every block has about as many as another. Those of
  // more are read once they are known to win.
  static constexpr uint32_t kPages = kHeld <= 8 ? (kHeld + 1) / 3 : kHeld / 2;

  // Slots if there are any, else ragged indices, else indices: one loop writes whichever it is.
  int32_t* to;
  bool paged;
  bool more;  // outputs than this one

  // Reads those of the survivors that are likely to win while the block waits anyway, rather than
  // those of the winners alone when it does not. Nothing here looks at what was read: it arrives in
  // the meantime. 2^blocks_log2 blocks share the row.
  template <Dtype D>
  __device__ __forceinline__ HeldPages(const OrderedList<kHeld>& survivors,
                                       const Output<D, true>& out, uint32_t blocks_log2) {
    const RowMapping map = *out.mapping;
    paged = map.slots != nullptr;
    const bool ragged = map.ragged != nullptr;
    const bool indices = out.indices != nullptr;
    to = paged ? map.slots : ragged ? map.ragged : out.indices;
    more = static_cast<int>(paged) + ragged + indices > 1;
    within_ = paged ? (1u << map.page_log2) - 1 : ~0u;
    offset_ = paged || !ragged ? 0 : map.offset;
    cache_pages_ = paged ? map.cache_pages : 1;
    page_log2_ = map.page_log2;
    loads_ = paged && out.free_order();
    table_ = map.table;
    first_page_ = map.first_page;
    pages_ = map.pages;
    // A block's part of the winners varies by the root of what it is, and lists are in order.
    const uint32_t part = out.k >> blocks_log2;
    likely_ = min(min(part + part / 8 + 64, survivors.listed), kPages * kThreads);
#pragma unroll
    for (uint32_t u = 0; u < kPages; ++u) page_[u] = 0;
    if (!loads_) return;
    __syncthreads();  // all are in order
    survivors.template for_some<kPages>(0, likely_, [&](uint32_t u, uint32_t i, bool there) {
      if (u < kPages) page_[u] = load(survivors.list[i].index, there);
    });
  }

  // Has a survivor's page been read by the thread that holds it, and by no other?
  __device__ __forceinline__ bool known_to_holder_alone() const { return loads_; }
  // What is written of the index of this thread's u-th survivor, the i-th of all; or nothing of
  // use.
  __device__ __forceinline__ uint32_t word(uint32_t u, uint32_t i, uint32_t index,
                                           bool enabled) const {
    int32_t page = u < kPages ? page_[u] : 0;
    if (ptx::unlikely(i >= likely_)) page = load(index, enabled);
    return word_of(page, index);
  }
  // The same of any index, where any thread can tell.
  __device__ __forceinline__ uint32_t word(uint32_t index) const { return word_of(0, index); }

 private:
  __device__ __forceinline__ int32_t load(uint32_t index, bool enabled) const {
    const uint32_t column = first_page_ + (index >> page_log2_);
    return ptx::load_if(table_ + column, enabled && column < pages_, -1);
  }
  // `page`: 0 where none is wanted.
  __device__ __forceinline__ uint32_t word_of(int32_t page, uint32_t index) const {
    const uint32_t sum = (static_cast<uint32_t>(page) << page_log2_) + (index & within_) + offset_;
    return static_cast<uint32_t>(page) < cache_pages_ ? sum : ~0u;
  }

  const int32_t* table_;
  uint32_t first_page_;
  uint32_t pages_;
  uint32_t likely_;  // so many of the list have been read
  uint32_t within_;  // the bits of an index that count inside its page
  uint32_t offset_;
  uint32_t cache_pages_;
  int32_t page_log2_;
  bool loads_;
  int32_t page_[kPages];
};

}  // namespace tl_topk
