// The elements of a block that passed its floor: survivors.
#pragma once

#include <cstdint>

#include "bin_map.h"
#include "cuda/ptx.cuh"
#include "cuda/row.cuh"
#include "key.h"
#include "parts.h"

namespace tl_topk {

// A score (oriented: larger is better) and its position relative to the row's start.
struct __align__(8) Entry {
  float score;
  uint32_t index;

  __device__ uint64_t rank() const { return rank_key(order_key(__float_as_uint(score)), index); }
};

// What the map sees of a score: the score itself.
__device__ __forceinline__ float mapped(float score) {
  if constexpr (kWith<Part::kLinearMap>) return score;
  return static_cast<float>(order_key(__float_as_uint(score)) >> 21);  // exponent and two bits
}
__device__ __forceinline__ BinMap map_between(float low, float ceiling, uint32_t bins) {
  if constexpr (kWith<Part::kLinearMap>) return make_bin_map(low, ceiling, bins);
  return {1.0f, -mapped(low), bins - 1};
}

// A block's list of survivors, spread over its registers; kHeld entries a thread.
template <uint32_t kHeld_>
struct HeldEntries {
  static constexpr uint32_t kHeld = kHeld_;
  // One branch a warp skips the rest, which is seldom there.
  static constexpr uint32_t kUsual = kHeld <= 8 ? 1 : kHeld * 3 / 4;

  const Entry* list;
  uint32_t count;
  BinMap map;
  Entry entry[kHeld];
  int32_t bin[kHeld];  // -1: there is no entry
  bool more;           // does this warp hold more than kUsual a lane?

  __device__ __forceinline__ HeldEntries(const Entry* list_, uint32_t count_, const BinMap& map_)
      : list(list_), count(count_), map(map_) {
    more = count > kThreads * kUsual + threadIdx.x / kWarp * kWarp;
    for_each([&](uint32_t u) {
      // Past the list's end lies what was there before: read, but never looked at.
      const uint32_t i = u * kThreads + threadIdx.x;
      entry[u] = list[i];
      bin[u] = i < count ? static_cast<int32_t>(map(mapped(entry[u].score))) : -1;
    });
  }

  // Calls f(u) for every entry that may be there, unrolled; whole warps do.
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

// A share of the row that one step loads, as ranks, for the paths that compare exactly: calls
// f(rank, valid) in whole warps.
template <Dtype D, uint32_t kLoads>
struct ResidentRanks {
  static constexpr uint32_t kPerVector = Row<D>::kPerVector;
  static constexpr uint32_t kHeld = kLoads * kPerVector;

  float score[kHeld];
  uint32_t first[kLoads];
  uint32_t length;

  __device__ ResidentRanks(const float (&x)[kHeld], const Row<D>& row, const Deal& deal)
      : length(row.length) {
    for (uint32_t u = 0; u < kLoads; ++u) first[u] = row.index(deal.vector(u, 0));
    for (uint32_t u = 0; u < kHeld; ++u) score[u] = x[u];
  }
  template <typename F>
  __device__ __forceinline__ void operator()(F&& f) const {
#pragma unroll
    for (uint32_t u = 0; u < kHeld; ++u) {
      const uint32_t index = first[u / kPerVector] + u % kPerVector;
      f(rank_key(order_key(__float_as_uint(score[u])), index), index < length);
    }
  }
  // f(score); NaN outside the row.
  template <typename F>
  __device__ __forceinline__ void for_each_score(F&& f) const {
#pragma unroll
    for (uint32_t u = 0; u < kHeld; ++u) f(score[u]);
  }
};

struct ListRanks {
  const Entry* list;
  uint32_t count;

  template <typename F>
  __device__ __forceinline__ void operator()(F&& f) const {
    for (uint32_t i = threadIdx.x; i / kWarp * kWarp < count; i += kThreads) {
      f(list[min(i, count - 1)].rank(), i < count);
    }
  }
};

// How lanes come to places in a list that they share: all know by vote how many others keep, and
// one takes places for the warp.
__device__ __forceinline__ uint32_t vote(bool keep) {
  if constexpr (kWith<Part::kVotes>) return __ballot_sync(kAllLanes, keep);
  return keep;  // each for itself
}
template <typename Add>
__device__ __forceinline__ uint32_t take_places(uint32_t total, Add&& add) {
  uint32_t first = 0;
  if (kWith<Part::kVotes> ? threadIdx.x % kWarp == 0 : total != 0) first = add(total);
  return kWith<Part::kVotes> ? __shfl_sync(kAllLanes, first, 0) : first;
}
__device__ __forceinline__ uint32_t voters_below() {
  return kWith<Part::kVotes> ? ptx::lanes_below() : 0;
}

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
      votes[i] = vote(keep(i));
      total += __popc(votes[i]);
    }
  }
  // `add(n)` reserves n places and returns the first; called by lane 0.
  template <typename Add>
  __device__ __forceinline__ void reserve(Add&& add) {
    base = take_places(total, add);
  }
  // Calls store(i, place) for every element, also for those not kept.
  template <typename Store>
  __device__ __forceinline__ void for_each(Store&& store) const {
    const uint32_t below = voters_below();
    uint32_t next = base;
#pragma unroll
    for (uint32_t i = 0; i < kElements; ++i) {
      store(i, next + __popc(votes[i] & below));
      next += __popc(votes[i]);
    }
  }
};

}  // namespace tl_topk
