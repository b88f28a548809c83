// Where the winners go: straight to their slots, or through a sort when the order is asked for.
#pragma once

#include <cstdint>

#include "cuda/block_sort.cuh"
#include "cuda/row.cuh"
#include "cuda/survivors.cuh"
#include "key.h"

namespace tl_topk {

// One row of the result. Values are read again from the row (they lie in L2), so they are copied
// bit for bit, -0 and NaN payloads included.
template <Dtype D>
struct Output {
  using Raw = typename Element<D>::Raw;

  Row<D> row;
  int32_t* indices;
  Raw* values;  // null: not wanted
  uint32_t k;
  Order order;
  void* sort_buffer;  // sort_entries keys of 8 bytes; unused when order is kAny
  uint32_t sort_entries;

  __device__ void write(uint32_t slot, uint32_t index) const {
    indices[slot] = static_cast<int32_t>(index);
    if (values != nullptr) values[slot] = row.first[index];
  }
  __device__ void pad(uint32_t slot, bool largest) const {
    constexpr Raw kInf = D == Dtype::kFloat32   ? static_cast<Raw>(0x7f800000u)
                         : D == Dtype::kFloat16 ? static_cast<Raw>(0x7c00u)
                                                : static_cast<Raw>(0x7f80u);
    constexpr Raw kMinus = static_cast<Raw>(Raw{1} << (8 * sizeof(Raw) - 1));
    indices[slot] = -1;
    if (values != nullptr) values[slot] = largest ? static_cast<Raw>(kInf | kMinus) : kInf;
  }

  // Nothing but indices is wanted, in any order.
  __device__ bool plain() const { return order == Order::kAny && values == nullptr; }

  // One winner; slots 0 .. k-1 are each put once, in any order.
  __device__ __forceinline__ void put(uint32_t slot, const Entry& e) const {
    if (order == Order::kAny) {
      write(slot, e.index);
    } else if (order == Order::kIndex) {
      static_cast<uint32_t*>(sort_buffer)[slot] = e.index;
    } else {
      static_cast<uint64_t*>(sort_buffer)[slot] = ~e.rank();  // ascending: best first
    }
  }

  __device__ __forceinline__ void put_ranked(uint32_t slot, uint64_t rank) const {
    if (order == Order::kValue) {
      static_cast<uint64_t*>(sort_buffer)[slot] = ~rank;
    } else {
      put(slot, {0.0f, index_of_rank(rank)});
    }
  }

  // Called by the whole leading block once `count` winners have been put.
  __device__ void finish(uint32_t count) const {
    if (order == Order::kIndex) {
      sort_and_write(static_cast<uint32_t*>(sort_buffer), count, [](uint32_t key) { return key; });
    } else if (order == Order::kValue) {
      sort_and_write(static_cast<uint64_t*>(sort_buffer), count,
                     [](uint64_t key) { return index_of_rank(~key); });
    }
  }

 private:
  template <typename T, typename IndexOf>
  __device__ void sort_and_write(T* keys, uint32_t count, IndexOf&& index_of) const {
    for (uint32_t i = count + threadIdx.x; i < sort_entries; i += kThreads) {
      keys[i] = static_cast<T>(~T{0});
    }
    block_sort(keys, sort_entries);
    for (uint32_t i = threadIdx.x; i < count; i += kThreads) write(i, index_of(keys[i]));
  }
};

template <Dtype D>
__device__ __forceinline__ Output<D> make_output(const KernelParams& params, uint32_t r,
                                                 const Row<D>& row, void* sort_buffer) {
  using Raw = typename Element<D>::Raw;
  Raw* const values = static_cast<Raw*>(params.values);
  return {row,
          params.indices + r * params.indices_stride,
          values == nullptr ? nullptr : values + r * params.values_stride,
          params.k,
          params.order,
          sort_buffer,
          params.sort_entries};
}

}  // namespace tl_topk
