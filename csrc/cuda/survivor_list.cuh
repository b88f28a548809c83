// Listing what passes a block's floor.
#pragma once

#include <cstdint>

#include "cuda/prefix_sum.cuh"
#include "cuda/ptx.cuh"
#include "cuda/row.cuh"
#include "cuda/survivors.cuh"
#include "parts.h"

namespace tl_topk {

// A list of survivors that a block fills: in its shared memory, or its segment of a grid's list.
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
// The same, and each entry's page is on its way to a list beside it: -1 where the table has none.
struct PagedList {
  SharedList list;
  int32_t* pages;
  const RowMapping& map;
  uint32_t capacity = list.capacity;

  struct Cursor {
    SharedList::Cursor entry;
    int32_t* page;
    const int32_t* table;
    uint32_t columns;
    uint32_t first;
    int32_t page_log2;

    __device__ __forceinline__ void put_if(float score, uint32_t index, bool enabled) {
      entry.put_if(score, index, enabled);
      const uint32_t column = first + (index >> page_log2);
      const bool there = column < columns;
      ptx::copy_word_async_if(page, table + column, enabled && there);
      if (enabled && !there) *page = -1;
      page += enabled;
    }
  };
  __device__ __forceinline__ Cursor at(uint32_t place) const {
    return {list.at(place), pages + place, map.table, map.pages, map.first_page, map.page_log2};
  }
};
struct GlobalList {
  Entry* entries;
  uint32_t capacity;

  struct Cursor {
    Entry* entry;

    __device__ __forceinline__ void put_if(float score, uint32_t index, bool enabled) {
      ptx::store_if(reinterpret_cast<uint2*>(entry), {__float_as_uint(score), index}, enabled);
      entry += enabled;
    }
  };
  __device__ __forceinline__ Cursor at(uint32_t place) const { return {entries + place}; }
};

// Where a warp's lanes put `count` elements each into a list that the block shares.
struct ListPlaces {
  uint32_t total;   // of the lanes that take their places together
  uint32_t first;   // of those places
  uint32_t before;  // this lane's own come after so many
};
__device__ __forceinline__ ListPlaces places_in_list(uint32_t count, uint32_t* listed) {
  const uint32_t upto = kWith<Part::kVotes> ? warp_inclusive_sum(count) : count;
  const uint32_t total = kWith<Part::kVotes> ? __shfl_sync(kAllLanes, upto, kWarp - 1) : count;
  if (total == 0) return {0, 0, 0};
  return {total, take_places(total, listed), upto - count};
}

// Lists those of x that lie above the floor; `index_of(i)` gives the index of x[i], and `survivors`
// counts them, also when there is no more room.
template <uint32_t kElements, typename IndexOf, typename List>
__device__ __forceinline__ void list_above(const float (&x)[kElements], const IndexOf& index_of,
                                           float floor, const List& list, uint32_t* survivors) {
  uint32_t mine = 0;
#pragma unroll
  for (uint32_t i = 0; i < kElements; ++i) mine += x[i] > floor;
  const ListPlaces places = places_in_list(mine, survivors);
  if (places.total == 0 || places.first + places.total > list.capacity) return;
  auto cursor = list.at(places.first + places.before);
#pragma unroll
  for (uint32_t i = 0; i < kElements; ++i) cursor.put_if(x[i], index_of(i), x[i] > floor);
}
// The same for what a step has loaded.
template <Dtype D, uint32_t kElements, typename List>
__device__ __forceinline__ void list_step(const float (&x)[kElements], const Row<D>& row,
                                          const Deal& deal, uint32_t step, float floor,
                                          const List& list, uint32_t* survivors) {
  constexpr uint32_t kPerVector = Row<D>::kPerVector;
  list_above(
      x, [&](uint32_t i) { return row.index(deal.vector(i / kPerVector, step)) + i % kPerVector; },
      floor, list, survivors);
}

}  // namespace tl_topk
