// Where the winners go: straight to their slots, or when an order is asked for, to the leader's
// sort; for that of index, if there is room, a bit for each goes to the block that counts this part
// of the row.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/block_order.cuh"
#include "cuda/prefix_sum.cuh"
#include "cuda/row.cuh"
#include "cuda/survivors.cuh"
#include "cuda/team.cuh"
#include "key.h"
#include "mapping.h"

namespace tl_topk {

// Where a row's indices go besides; of a launch that maps nothing, nowhere.
__device__ __forceinline__ RowMapping mapping_of(const KernelParams&, uint32_t) { return {}; }
__device__ __forceinline__ RowMapping mapping_of(const MappedParams& params, uint32_t r) {
  return map_row(params.mapping, r);
}

// One row of the result. Values are copied bit for bit, -0 and NaN payloads included: from the
// entry where it has them, else read again from the row (they lie in L2).
//
// kMapped: there may be other outputs instead of or besides these. Apart, for the code alone would
// slow down what maps nothing.
template <Dtype D, bool kMapped>
struct Output {
  using Raw = typename Element<D>::Raw;

  Row<D> row;
  int32_t* indices;  // null, where something is mapped: not wanted
  Raw* all_values;   // of all rows; null: not wanted
  int64_t values_stride;
  uint32_t number;  // of this row
  uint32_t k;
  Order order;
  uint32_t sort_entries;      // room in the sort buffer; 0 when order is kAny
  bool by_all;                // all blocks put them in order together, where they can
  uint32_t part_log2;         // elements of which a block has the bits; 0: there are none
  const RowMapping* mapping;  // if kMapped

  __device__ __forceinline__ void write(uint32_t slot, uint32_t index) const {
    if constexpr (kMapped) {
      write(slot, index, *mapping, mapping->slot(index));
    } else {
      indices[slot] = static_cast<int32_t>(index);
      if (has_values()) values()[slot] = row.first[index];
    }
  }
  // The same where the score, oriented, is at hand.
  __device__ __forceinline__ void write_scored(uint32_t slot, uint32_t index,
                                               const float* score) const {
    indices[slot] = static_cast<int32_t>(index);
    if (has_values()) write_value(slot, index, *score);
  }
  // Widening a NaN may have changed its bits.
  __device__ __forceinline__ void write_value(uint32_t slot, uint32_t index, float score) const {
    values()[slot] = score == score ? row.raw(score) : row.first[index];
  }
  // The same once the index's slot in the cache is known.
  __device__ __forceinline__ void write(uint32_t slot, uint32_t index, const RowMapping& map,
                                        int32_t cache_slot) const {
    if (map.slots != nullptr) map.slots[slot] = cache_slot;
    if (map.ragged != nullptr) map.ragged[slot] = map.place(index);
    if (indices != nullptr) indices[slot] = static_cast<int32_t>(index);
    if (has_values()) values()[slot] = row.first[index];
  }
  // The same for slots first, first + step, ... below n, of which slot i gets index(i): the pages
  // of several are read together.
  template <typename Index>
  __device__ __forceinline__ void write_mapped(uint32_t first, uint32_t step, uint32_t n,
                                               const RowMapping& map, Index&& index) const {
    constexpr uint32_t kBatch = 4;
    for (uint32_t i = first; i < n; i += kBatch * step) {
      int32_t page[kBatch];
#pragma unroll
      for (uint32_t u = 0; u < kBatch; ++u) {
        const uint32_t at = i + u * step;
        const uint32_t column = at < n ? map.column(index(at)) : map.pages;
        page[u] = ptx::load_if(map.table + column, column < map.pages, -1);
      }
#pragma unroll
      for (uint32_t u = 0; u < kBatch; ++u) {
        const uint32_t at = i + u * step;
        if (at < n) write(at, index(at), map, map.slot(page[u], index(at)));
      }
    }
  }
  __device__ __forceinline__ void pad(uint32_t slot, bool largest, const RowMapping& map) const {
    constexpr Raw kInf = D == Dtype::kFloat32   ? static_cast<Raw>(0x7f800000u)
                         : D == Dtype::kFloat16 ? static_cast<Raw>(0x7c00u)
                                                : static_cast<Raw>(0x7f80u);
    constexpr Raw kMinus = static_cast<Raw>(Raw{1} << (8 * sizeof(Raw) - 1));
    if constexpr (kMapped) {
      if (map.slots != nullptr) map.slots[slot] = -1;
      if (map.ragged != nullptr) map.ragged[slot] = -1;
    }
    if (!kMapped || indices != nullptr) indices[slot] = -1;
    if (has_values()) values()[slot] = largest ? static_cast<Raw>(kInf | kMinus) : kInf;
  }

  __device__ __forceinline__ bool has_values() const { return all_values != nullptr; }
  // Found where it is used, for seldom it is.
  __device__ __forceinline__ Raw* values() const { return all_values + number * values_stride; }

  __device__ bool free_order() const { return order == Order::kAny; }
  // Nothing but indices is wanted, in any order.
  __device__ bool plain() const { return !kMapped && free_order() && !has_values(); }

  // Is the order of index found by bits?
  __device__ bool marks() const { return part_log2 != 0; }

  // Bytes of the keys that all winners together send to the leader's sort.
  __device__ uint32_t sorted_bytes() const {
    return order == Order::kAny     ? 0
           : order == Order::kIndex ? k * static_cast<uint32_t>(sizeof(uint32_t))
                                    : k * static_cast<uint32_t>(sizeof(uint64_t));
  }

  // One winner; slots 0 .. k-1 are each put once, in any order, by any block.
  template <Scope S>
  __device__ __forceinline__ void put(const Team<S>& team, uint32_t slot, const Entry& e) const {
    if (kMapped && order == Order::kAny) {
      write(slot, e.index);
    } else if (order == Order::kAny) {
      indices[slot] = static_cast<int32_t>(e.index);
      if (has_values()) values()[slot] = row.raw(e.score);
    } else {
      put_key(team, slot, e.rank());
    }
  }
  template <Scope S>
  __device__ __forceinline__ void put_ranked(const Team<S>& team, uint32_t slot,
                                             uint64_t rank) const {
    if (order == Order::kAny) {
      write(slot, index_of_rank(rank));
    } else {
      put_key(team, slot, rank);
    }
  }

 private:
  template <Scope S>
  __device__ __forceinline__ void put_key(const Team<S>& team, uint32_t slot, uint64_t rank) const {
    if (marks()) {
      const uint32_t index = index_of_rank(rank);
      team.mark_element(index >> part_log2, index & ((1u << part_log2) - 1));
    } else if (order == Order::kIndex) {
      team.send_key(0, slot, index_of_rank(rank));
    } else {
      team.send_key(0, slot, ~rank);  // ascending: best first
    }
  }
};

// A map over the range of the winners' values.
__device__ __forceinline__ BinMap map_of_values(const uint64_t* keys, uint32_t count,
                                                OrderScratch& scratch) {
  if (threadIdx.x == 0) {
    scratch.lowest = 0xffffffffu;
    scratch.highest = 0;
  }
  __syncthreads();
  uint32_t lowest = 0xffffffffu;
  uint32_t highest = 0;
  for (uint32_t i = threadIdx.x; i < count; i += kThreads) {
    const uint32_t key = key_of_rank(~keys[i]);
    lowest = min(lowest, key);
    highest = max(highest, key);
  }
  lowest = __reduce_min_sync(kAllLanes, lowest);
  highest = __reduce_max_sync(kAllLanes, highest);
  if (threadIdx.x % kWarp == 0) {
    atomicMin(&scratch.lowest, lowest);
    atomicMax(&scratch.highest, highest);
  }
  __syncthreads();
  return make_bin_map(__uint_as_float(bits_of_key(scratch.lowest)),
                      __uint_as_float(bits_of_key(scratch.highest)), kOrderBins);
}

// Writes the `count` winners in `sort_buffer` in order of index or value. `spare` has room for as
// many keys of 8 bytes. Called by the whole leading block. `out` comes by value: taking its address
// would put it into local memory everywhere.
template <Dtype D, bool kMapped>
__device__ __noinline__ void write_ordered(const Output<D, kMapped> out, uint32_t count,
                                           void* sort_buffer, void* spare, OrderScratch& scratch) {
  __syncthreads();
  // `index` of a key; a mapped launch puts the keys in order before it reads their pages.
  const auto write_by = [&](auto* keys, auto&& bin_of, auto&& index) {
    using Key = std::remove_pointer_t<decltype(keys)>;
    write_in_order(keys, static_cast<Key*>(spare), count, out.sort_entries, scratch, bin_of,
                   [&](uint32_t slot, Key key) {
                     if constexpr (kMapped) {
                       keys[slot] = key;
                     } else {
                       out.write(slot, index(key));
                     }
                   });
    if constexpr (kMapped) {
      __syncthreads();
      out.write_mapped(threadIdx.x, kThreads, count, *out.mapping,
                       [&](uint32_t slot) { return index(keys[slot]); });
    }
  };
  if (out.order == Order::kIndex) {
    // Winners are spread over the row more often than not.
    const float bins_per_element =
        static_cast<float>(kOrderBins) / static_cast<float>(out.row.length);
    write_by(
        static_cast<uint32_t*>(sort_buffer),
        [&](uint32_t index) {
          return min(static_cast<uint32_t>(static_cast<float>(index) * bins_per_element),
                     kOrderBins - 1);
        },
        [](uint32_t index) { return index; });
  } else {
    auto* const keys = static_cast<uint64_t*>(sort_buffer);
    const BinMap map = map_of_values(keys, count, scratch);
    write_by(
        keys,
        [&](uint64_t key) {
          const float score = __uint_as_float(bits_of_key(key_of_rank(~key)));
          return kOrderBins - 1 - map(score);  // best first
        },
        [](uint64_t key) { return index_of_rank(~key); });
  }
}

// Of a row that 2^blocks_log2 blocks put in order together.
__device__ __forceinline__ uint32_t part_log2_of(uint32_t length, uint32_t blocks_log2, Order order,
                                                 uint32_t sort_entries) {
  if (order != Order::kIndex || length <= 1) return 0;
  const uint32_t bits = 32 - __clz(length - 1);
  const uint32_t part_log2 = max(bits, blocks_log2 + 5) - blocks_log2;
  return 1u << part_log2 <= sort_entries * 8 * sizeof(uint64_t) ? part_log2 : 0;
}

// `blocks_log2`: of the blocks that put it in order together, if kByAll.
template <bool kMapped, bool kByAll, Dtype D>
__device__ __forceinline__ Output<D, kMapped> make_output(const KernelParams& params, uint32_t r,
                                                          const Row<D>& row,
                                                          const RowMapping& mapping,
                                                          uint32_t blocks_log2 = 0) {
  using Raw = typename Element<D>::Raw;
  return {row,
          kMapped && params.only != OnlyOutput::kNone ? nullptr
                                                      : params.indices + r * params.indices_stride,
          static_cast<Raw*>(params.values),
          params.values_stride,
          r,
          params.k,
          params.order,
          params.sort_entries(),
          kByAll,
          kByAll ? part_log2_of(row.length, blocks_log2, params.order, params.sort_entries()) : 0,
          &mapping};
}

}  // namespace tl_topk
