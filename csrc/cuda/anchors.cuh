// The floor: a value almost surely below the row's k-th element, from a sample of the row. The
// statistics are in sampling.h.
#pragma once

#include <cstdint>

#include "cuda/row.cuh"
#include "key.h"
#include "parts.h"
#include "sampling.h"

namespace tl_topk {

struct Anchors {
  float floor;    // elements at or below it are rejected; -inf when nothing may be
  float low;      // bin 0 begins here
  float ceiling;  // bins saturate here
};

struct AnchorScratch {
  __align__(16) uint32_t group_keys[kMostGroups];  // read four at a time; zero at first
  float low;
  float ceiling;
  float reach;
};

// Group maxima are compared as keys of 31 bits, so that the sign of a difference says which is
// larger. Their low bits are the group's number: all are distinct, so each has one rank. What the
// low bits held is rounded down, which only lowers the floor.
constexpr uint32_t kGroupBits = kMostGroups - 1;

__device__ __forceinline__ uint32_t group_key(float maximum, uint32_t group) {
  return (order_key_of_number(__float_as_uint(maximum)) >> 1 & ~kGroupBits) | group;
}
__device__ __forceinline__ float anchor_of_key(uint32_t key) {
  const uint32_t rounded = (key & ~kGroupBits) << 1;
  constexpr uint32_t kMinusInfKey = 0x007fffffu;
  return rounded < kMinusInfKey ? -INFINITY : __uint_as_float(bits_of_key(rounded));
}

// The sample that all blocks of a row take alike, so that all of them know the same floor and the
// same map without a word: kLoads vectors a thread, read before all else. Whole lines of 128 bytes,
// evenly spread; each lies elsewhere between its neighbours, so that no period of a row is in step
// with all of them.
template <Dtype D, uint32_t kLoads>
struct CommonSample {
  static constexpr uint32_t kPerVector = Row<D>::kPerVector;

  uint4 loaded[kLoads];

  __device__ __forceinline__ explicit CommonSample(const Row<D>& row) {
    const uint32_t vectors = row.vectors();
#pragma unroll
    for (uint32_t u = 0; u < kLoads; ++u) loaded[u] = row.load(vector(u, vectors));
  }
  __device__ __forceinline__ void widen(uint32_t flip, float (&x)[kLoads * kPerVector]) const {
#pragma unroll
    for (uint32_t u = 0; u < kLoads; ++u) {
      widen_vector<D>(loaded[u], flip,
                      *reinterpret_cast<float (*)[kPerVector]>(x + u * kPerVector));
    }
  }

 private:
  static __device__ __forceinline__ uint32_t vector(uint32_t u, uint32_t vectors) {
    constexpr uint32_t kLine = 8;
    constexpr uint32_t kSampled = kLoads * kThreads / kLine;  // lines, a power of two
    constexpr uint32_t kGoldenRatio = 0x9e3779b9;             // times 2^-32
    const uint32_t line = (u * kThreads + threadIdx.x) / kLine;
    // Strides that are rounded down end before the row does: of one just below two lines for each
    // of the sample, half way.
    const uint32_t lines = max(vectors / kLine, kSampled);
    const uint32_t begin = __umulhi(line * (~0u / kSampled + 1), lines);  // line * lines / kSampled
    const uint32_t place = __umulhi(line * kGoldenRatio, lines / kSampled);
    return (begin + place) * kLine + threadIdx.x % kLine;
  }
};

// A block alone has its sample in what it loads anyway.
template <Dtype D>
struct CommonSample<D, 0> {
  __device__ __forceinline__ explicit CommonSample(const Row<D>&) {}
};

// Begins once the sample x is here, kPerVector elements a load. Every thread gets the anchors.
//
// Each group's maximum is found by atomics of its members (sampling.h). Then a few lanes rank it,
// every one by comparison with a part of the others.
template <uint32_t kGroupCount, uint32_t kPerVector, uint32_t kElements>
__device__ __forceinline__ Anchors find_anchors(const float (&x)[kElements], const SamplePlan& plan,
                                                AnchorScratch& scratch) {
  constexpr uint32_t kLanes = kThreads / kGroupCount;  // that rank one group
  constexpr uint32_t kGroupsOfWarp = kGroupCount / kWarp;
  static_assert(kGroupCount % kWarp == 0);
  const uint32_t warp = threadIdx.x / kWarp;
  const uint32_t member = warp / kGroupsOfWarp;

  float best = -INFINITY;
#pragma unroll
  for (uint32_t i = 0; i < kElements; ++i) {
    const bool sampled =
        plan.takes(member, i / kPerVector, threadIdx.x % kWarp) && i % kPerVector < plan.per_load;
    if (sampled) best = fmaxf(best, x[i]);  // fmaxf passes over NaN
  }
  if (member < plan.warps) {
    const uint32_t group = warp % kGroupsOfWarp * kWarp + threadIdx.x % kWarp;
    atomicMax(&scratch.group_keys[group], group_key(best, group));
  }
  __syncthreads();

  const uint32_t lane = threadIdx.x % kLanes;
  const uint32_t key = scratch.group_keys[threadIdx.x / kLanes];
  // While the others are on their way.
  const float anchor = __uint_as_float(ptx::keep(__float_as_uint(anchor_of_key(key))));
  const auto* keys = reinterpret_cast<const uint4*>(scratch.group_keys);
  uint32_t rank = 1;
#pragma unroll 2
  for (uint32_t i = 0; i < kGroupCount / 4; i += kLanes) {
    const uint4 other = keys[i + lane];  // lanes of a group side by side: no bank twice
    rank += ((key - other.x) >> 31) + ((key - other.y) >> 31);
    rank += ((key - other.z) >> 31) + ((key - other.w) >> 31);
  }
#pragma unroll
  for (uint32_t d = 1; d < kLanes; d *= 2) rank += __shfl_xor_sync(kAllLanes, rank, d) - 1;
  if (lane == 0) {
    if (rank == plan.low_rank) scratch.low = anchor;
    if (rank == plan.ceiling_rank) scratch.ceiling = anchor;
    if (rank == plan.reach_rank) scratch.reach = anchor;
  }
  __syncthreads();
  const float low = scratch.low;
  float ceiling = scratch.ceiling;
  if (plan.reach != 0) ceiling += static_cast<float>(plan.reach) * (ceiling - scratch.reach);
  return {plan.has_floor && kWith<Part::kFloor> ? low : -INFINITY, low, ceiling};
}

}  // namespace tl_topk
