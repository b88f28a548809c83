// Listing what passes a block's floor.
#pragma once

#include <cstdint>

#include "cuda/prefix_sum.cuh"
#include "cuda/ptx.cuh"
#include "cuda/row.cuh"
#include "cuda/survivors.cuh"
#include "parts.h"

namespace tl_topk {

// A list of survivors that a block fills, in its shared memory.
struct SharedList {
  Entry* entries;
  uint32_t capacity;

  // Walks along the list, of which this lane fills some consecutive places.
  struct Cursor {
    uint32_t address;

    __device__ __forceinline__ void put_if(float score, uint32_t index, bool enabled) {
      ptx::shared_store_if(address, {__float_as_uint(score), index}, enabled);
      address += enabled ? sizeof(Entry) : 0;
    }
  };
  __device__ __forceinline__ Cursor at(uint32_t place) const {
    return {static_cast<uint32_t>(__cvta_generic_to_shared(entries + place))};
  }
};

// Where a warp's lanes put `count` elements each into a list that the block shares.
struct ListPlaces {
  uint32_t total;   // of the lanes that take their places together
  uint32_t first;   // of those places
  uint32_t before;  // this lane's own come after so many
};
__device__ __forceinline__ ListPlaces places_in_list(uint32_t count, uint32_t* listed) {
  constexpr bool kAlone = kWith<Part::kAtomics>;
  const uint32_t upto = kAlone ? count : warp_inclusive_sum(count);
  const uint32_t total = kAlone ? count : __shfl_sync(kAllLanes, upto, kWarp - 1);
  if (total == 0) return {0, 0, 0};
  return {total, take_places(total, listed), upto - count};
}

// A bit for each of x that lies above the floor, element 0 lowest. `orientation`: -1 where smaller
// is better, else 1.
//
// By subtraction, whose sign is shifted in: fewer instructions than comparing and adding up take,
// and half of them not for the integer units. A difference is 0, whose sign is clear, only of what
// is equal (denormals are kept, and no floor is -0); what is no number has a clear sign as well.
template <uint32_t kElements>
__device__ __forceinline__ uint32_t above_floor(const float (&x)[kElements], float orientation,
                                                float floor) {
  constexpr uint32_t kHalf = (kElements + 1) / 2;  // two halves are shifted at the same time
  uint32_t low = 0;
  uint32_t high = 0;
  const auto sign_below = [&](uint32_t i, uint32_t& bits) {
    bits = __funnelshift_l(__float_as_uint(__fmaf_rn(x[i], -orientation, floor)), bits, 1);
  };
#pragma unroll
  for (uint32_t i = kHalf; i-- > 0;) {
    if (kHalf + i < kElements) sign_below(kHalf + i, high);
    sign_below(i, low);
  }
  return high << kHalf | low;
}

// Lists those of x that lie above the floor; `index_of(i)` gives the index of x[i], and `survivors`
// counts them, also when there is no more room.
template <uint32_t kElements, typename IndexOf>
__device__ __forceinline__ void list_above(const float (&x)[kElements], const IndexOf& index_of,
                                           float floor, const SharedList& list,
                                           uint32_t* survivors) {
  const uint32_t mine = ptx::keep(above_floor(x, 1.0f, floor));  // rather than as many predicates
  const ListPlaces places = places_in_list(__popc(mine), survivors);
  if (places.total == 0 || places.first + places.total > list.capacity) return;
  auto cursor = list.at(places.first + places.before);
#pragma unroll
  for (uint32_t i = 0; i < kElements; ++i) cursor.put_if(x[i], index_of(i), mine >> i & 1);
}
// The same for what a step has loaded.
template <Dtype D, uint32_t kElements>
__device__ __forceinline__ void list_step(const float (&x)[kElements], const Row<D>& row,
                                          const Deal& deal, uint32_t step, float floor,
                                          const SharedList& list, uint32_t* survivors) {
  constexpr uint32_t kPerVector = Row<D>::kPerVector;
  list_above(
      x, [&](uint32_t i) { return row.index(deal.vector(i / kPerVector, step)) + i % kPerVector; },
      floor, list, survivors);
}

}  // namespace tl_topk
