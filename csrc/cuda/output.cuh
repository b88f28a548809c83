// Where the winners go: straight to their slots, or through a sort when the order is asked for.
#pragma once

#include <cstdint>

#include "cuda/block_sort.cuh"
#include "cuda/row.cuh"
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

  // One winner; slots 0 .. k-1 are each put once, in any order.
  __device__ void put(uint32_t slot, uint32_t index, uint64_t rank) const {
    if (order == Order::kAny) {
      write(slot, index);
    } else if (order == Order::kIndex) {
      static_cast<uint32_t*>(sort_buffer)[slot] = index;
    } else {
      static_cast<uint64_t*>(sort_buffer)[slot] = ~rank;  // ascending: best first
    }
  }

  // Called by the whole leading block once `count` winners have been put.
  __device__ void finish(uint32_t count) const {
    if (order == Order::kIndex) {
      sort_and_write(static_cast<uint32_t*>(sort_buffer), count,
                     [](uint32_t key) { return key; });
    } else if (order == Order::kValue) {
      sort_and_write(static_cast<uint64_t*>(sort_buffer), count,
                     [](uint64_t key) { return index_of_rank(~key); });
    }
  }

 private:
  template <typename T, typename IndexOf>
  __device__ void sort_and_write(T* keys, uint32_t count, IndexOf&& index_of) const {
    for (uint32_t i = count + threadIdx.x; i < sort_entries; i += blockDim.x) {
      keys[i] = static_cast<T>(~T{0});
    }
    block_sort(keys, sort_entries);
    for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) write(i, index_of(keys[i]));
  }
};

template <Dtype D>
__device__ __forceinline__ Output<D> make_output(const TopKArgs& args, int64_t r, const Row<D>& row,
                                                 void* sort_buffer, uint32_t sort_entries) {
  using Raw = typename Element<D>::Raw;
  Raw* values = args.values == nullptr
                    ? nullptr
                    : static_cast<Raw*>(args.values) + r * args.values_stride;
  return {row,
          args.indices + r * args.indices_stride,
          values,
          static_cast<uint32_t>(args.problem.k),
          args.problem.order,
          sort_buffer,
          sort_entries};
}

}  // namespace tl_topk
