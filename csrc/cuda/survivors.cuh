// The elements that passed the floor: how warps append them to a list, and how the leader holds it.
#pragma once

#include <cstdint>

#include "cuda/prefix_sum.cuh"
#include "cuda/ptx.cuh"
#include "cuda/row.cuh"
#include "key.h"

namespace tl_topk {

// A score (oriented: larger is better) and its position relative to the row's start.
struct __align__(8) Entry {
  float score;
  uint32_t index;

  __device__ uint64_t rank() const { return rank_key(order_key(__float_as_uint(score)), index); }
};

// How many survivors a block had, and the floor they passed.
struct __align__(8) Delivery {
  uint32_t survivors;
  float floor;
};

// Entries in the leader's shared memory: one segment a block, a power of two of them.
struct EntryList {
  const Entry* entries;
  const Delivery* deliveries;  // one a segment
  uint32_t segments_log2;
  uint32_t stride;  // between segments, in entries

  // Which segment this warp looks at, and from where in what steps.
  struct Share {
    uint32_t segment;
    uint32_t first;
    uint32_t step;
  };
  __device__ __forceinline__ Share share() const {
    const uint32_t warp = threadIdx.x / kWarp;
    const uint32_t log2 = kWarpsLog2 - segments_log2;  // warps on one segment
    return {warp >> log2, (warp & ((1u << log2) - 1)) * kWarp + threadIdx.x % kWarp, kWarp << log2};
  }

  // Calls f(entry, valid) in whole warps, so that f may vote.
  template <typename F>
  __device__ void for_each(F&& f) const {
    const Share mine = share();
    const uint32_t count = deliveries[mine.segment].survivors;
    for (uint32_t i = mine.first; i - threadIdx.x % kWarp < count; i += mine.step) {
      f(entries[mine.segment * stride + min(i, count - 1)], i < count);
    }
  }
};

// The same list spread over the leader's registers, each entry as its index and its bin, so that
// shared memory is read once. kHeld entries a thread.
template <uint32_t kHeld>
struct HeldEntries {
  static constexpr uint32_t kUsual = kHeld * 2 / 3;  // one branch skips the rest, seldom there

  uint32_t index[kHeld];
  int32_t bin[kHeld];  // -1: there is no entry, or not above the floor
  bool more;           // does this warp hold more than kUsual?
  const Entry* first;  // this thread's entries in shared memory, for the few that are looked at
  uint32_t step;       // again

  // `bin_of(score)` is called for entries that are there.
  template <typename BinOf>
  __device__ __forceinline__ HeldEntries(const EntryList& list, BinOf&& bin_of) {
    const EntryList::Share mine = list.share();
    const auto count = static_cast<int32_t>(list.deliveries[mine.segment].survivors);
    step = mine.step;
    more = count > static_cast<int32_t>(step * kUsual);
    first = list.entries + mine.segment * list.stride + mine.first;
    // Past the survivors lies what was there before: read, but never looked at.
    int32_t left = count - static_cast<int32_t>(mine.first);
    const auto load = [&](uint32_t u) {
      const Entry e = first[u * step];
      index[u] = e.index;
      const int32_t b = bin_of(e.score);
      bin[u] = left > static_cast<int32_t>(u * step) ? b : -1;
    };
#pragma unroll
    for (uint32_t u = 0; u < kUsual; ++u) load(u);
#pragma unroll
    for (uint32_t u = kUsual; u < kHeld; ++u) bin[u] = -1;
    if (more) {
#pragma unroll
      for (uint32_t u = kUsual; u < kHeld; ++u) load(u);
    }
  }

  // Calls f(u) for every entry that may be there, unrolled.
  template <typename F>
  __device__ __forceinline__ void for_each(F&& f) const {
#pragma unroll
    for (uint32_t u = 0; u < kUsual; ++u) f(u);
    if (more) {
#pragma unroll
      for (uint32_t u = kUsual; u < kHeld; ++u) f(u);
    }
  }
};

// Positions for the elements that every lane keeps, in a list that `add` reserves room in: one vote
// an element and one atomic a warp. `keep(i)` is asked again where it matters: a comparison is
// cheaper than a predicate kept.
template <uint32_t kElements>
struct WarpAppend {
  uint32_t votes[kElements];
  uint32_t total = 0;
  uint32_t base = 0;

  template <typename Keep>
  __device__ __forceinline__ explicit WarpAppend(Keep&& keep) {
#pragma unroll
    for (uint32_t i = 0; i < kElements; ++i) {
      votes[i] = __ballot_sync(kAllLanes, keep(i));
      total += __popc(votes[i]);
    }
  }
  // `add(n)` reserves n places and returns the first; called by lane 0.
  template <typename Add>
  __device__ __forceinline__ void reserve(Add&& add) {
    if (threadIdx.x % kWarp == 0) base = add(total);
    base = __shfl_sync(kAllLanes, base, 0);
  }
  // Calls store(i, place) for every element, also for those not kept.
  template <typename Store>
  __device__ __forceinline__ void for_each(Store&& store) const {
    const uint32_t below = ptx::lanes_below();
    uint32_t next = base;
#pragma unroll
    for (uint32_t i = 0; i < kElements; ++i) {
      store(i, next + __popc(votes[i] & below));
      next += __popc(votes[i]);
    }
  }
};

}  // namespace tl_topk
