// The elements of a block that passed its floor: survivors.
#pragma once

#include <cstdint>

#include "bin_map.h"
#include "cuda/count_table.cuh"
#include "cuda/ptx.cuh"
#include "cuda/row.cuh"
#include "key.h"
#include "parts.h"

namespace tl_topk {

// A score (oriented: larger is better) and its position relative to the row's start.
struct __align__(8) Entry {
  float score;
  uint32_t index;

  // No entry is NaN. Adding 0 makes one zero of two.
  __device__ uint64_t rank() const {
    return rank_key(order_key_of_number(__float_as_uint(score + 0.0f)), index);
  }
};

__device__ __forceinline__ void put_if(Entry* place, const Entry& e, bool enabled) {
  ptx::shared_store_if(static_cast<uint32_t>(__cvta_generic_to_shared(place)),
                       {__float_as_uint(e.score), e.index}, enabled);
}

// What the map sees of a score: the score itself.
__device__ __forceinline__ float mapped(float score) {
  if constexpr (kWith<Part::kLinearMap>) return score;
  return static_cast<float>(order_key(__float_as_uint(score)) >> 21);  // exponent and two bits
}
__device__ __forceinline__ BinMap map_between(float low, float ceiling, uint32_t bins) {
  if constexpr (kWith<Part::kLinearMap>) return make_bin_map(low, ceiling, bins);
  return {1.0f, -mapped(low), bins - 1};
}

// How lanes come to places in a list that they share: each takes its own from the block's counter
// of those taken. That is faster than if each knew how many the others want and one took them for
// the whole warp (bench/results/ablation.json), as the benchmark has it where this is left out.
__device__ __forceinline__ uint32_t take_places(uint32_t total, uint32_t* taken) {
  if constexpr (kWith<Part::kAtomics>) return total != 0 ? atomicAdd(taken, total) : 0;
  return __shfl_sync(kAllLanes, ptx::lane0_add(taken, total), 0);
}

// A block's survivors in the order of their bins, the highest first. Those above a cut come first,
// so that nothing has to be counted once it is known.
struct OrderedList {
  Entry* list;
  uint32_t listed;
  uint32_t capacity;
};

// Survivors listed in any order, spread over registers to be counted and put in order.
template <uint32_t kHeld_>
struct HeldEntries {
  static constexpr uint32_t kHeld = kHeld_;
  // One branch a warp skips what is seldom there, and another within it what is seldom even then.
  static constexpr uint32_t kUsual = kHeld <= 8 ? 1 : kHeld * 2 / 5;
  static constexpr uint32_t kOften = kHeld <= 8 ? (kHeld + 1) / 2 : kHeld * 3 / 4;

  Entry* list;
  Entry entry[kHeld];
  int32_t bin[kHeld];     // -1: there is no entry
  uint32_t place[kHeld];  // among those of its bin
  bool more;              // does this warp hold more than kUsual a lane?
  bool most;              // more than kOften?

  __device__ __forceinline__ HeldEntries(Entry* list_, uint32_t listed, const BinMap& map)
      : list(list_) {
    more = listed > kThreads * kUsual + threadIdx.x / kWarp * kWarp;
    most = listed > kThreads * kOften + threadIdx.x / kWarp * kWarp;
    for_each([&](uint32_t u) {
      // Past the list's end lies what was there before: read, but never looked at.
      const uint32_t i = u * kThreads + threadIdx.x;
      entry[u] = list[i];
      bin[u] = i < listed ? static_cast<int32_t>(map(mapped(entry[u].score))) : -1;
    });
  }

  // Calls f(u) for every entry that may be there, unrolled; whole warps do.
  template <typename F>
  __device__ __forceinline__ void for_each(F&& f) const {
#pragma unroll
    for (uint32_t u = 0; u < kUsual; ++u) f(u);
    if (more) {
#pragma unroll
      for (uint32_t u = kUsual; u < kOften; ++u) f(u);
      if (kOften < kHeld && most) {
#pragma unroll
        for (uint32_t u = kOften; u < kHeld; ++u) f(u);
      }
    }
  }
  __device__ __forceinline__ void count(BinCounts& counts) {
    for_each(
        [&](uint32_t u) { place[u] = counts.count(static_cast<uint32_t>(bin[u]), bin[u] >= 0); });
  }
  // Puts the list in order, without those that have no bin. All threads hold theirs, and `table` is
  // what they counted.
  __device__ __forceinline__ void sort(const CountTable& table) const {
    for_each([&](uint32_t u) { put_if(list + place_in(table, u), entry[u], bin[u] >= 0); });
  }
  // The same into another list, in global memory.
  __device__ __forceinline__ void sort(const CountTable& table, Entry* to) const {
    for_each([&](uint32_t u) {
      const Entry& e = entry[u];
      ptx::store_if(reinterpret_cast<uint2*>(to + place_in(table, u)),
                    {__float_as_uint(e.score), e.index}, bin[u] >= 0);
    });
  }

 private:
  __device__ __forceinline__ uint32_t place_in(const CountTable& table, uint32_t u) const {
    return table.count_above(static_cast<uint32_t>(bin[u])) + place[u];
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
  // Calls f(x, first) for each vector: its elements, NaN outside the row, and the index of the
  // first.
  template <typename F>
  __device__ __forceinline__ void for_each_vector(F&& f) const {
#pragma unroll
    for (uint32_t u = 0; u < kLoads; ++u) {
      float x[kPerVector];
#pragma unroll
      for (uint32_t j = 0; j < kPerVector; ++j) x[j] = score[u * kPerVector + j];
      f(x, first[u]);
    }
  }
};

// A list of survivors as ranks, likewise.
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

}  // namespace tl_topk
