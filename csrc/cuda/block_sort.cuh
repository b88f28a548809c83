// A bitonic sort of one block's keys: the same few microseconds whatever the data.
#pragma once

#include <cstdint>

#include "cuda/row.cuh"

namespace tl_topk {

// Sorts kThreads * kEach keys ascending, in shared memory. Each thread takes kEach consecutive keys
// into registers, so that short strides cost no communication and middle ones only shuffles;
// strides beyond a warp go through shared memory. Begins and ends with a barrier.
template <uint32_t kEach, typename T>
__device__ __noinline__ void sort_block(T* keys) {
  const uint32_t thread = threadIdx.x;
  T key[kEach];
  __syncthreads();
#pragma unroll
  for (uint32_t j = 0; j < kEach; ++j) key[j] = keys[thread * kEach + j];

  // Keeps the smaller or the larger of a pair, as the run's direction and the side of the pair ask.
  const auto keep = [](T mine, T other, bool smaller) {
    return (mine < other) == smaller ? mine : other;
  };
  for (uint32_t run = 2; run <= kThreads * kEach; run *= 2) {
    for (uint32_t stride = run / 2; stride >= kEach; stride /= 2) {
      const uint32_t distance = stride / kEach;  // between the threads of a pair
      const bool up = (thread * kEach & run) == 0;
      const bool smaller = ((thread & distance) == 0) == up;
      if (distance >= kWarp) {
        __syncthreads();
#pragma unroll
        for (uint32_t j = 0; j < kEach; ++j) keys[j * kThreads + thread] = key[j];
        __syncthreads();
      }
#pragma unroll
      for (uint32_t j = 0; j < kEach; ++j) {
        const T other = distance >= kWarp ? keys[j * kThreads + (thread ^ distance)]
                                          : __shfl_xor_sync(kAllLanes, key[j], distance);
        key[j] = keep(key[j], other, smaller);
      }
    }
#pragma unroll
    for (uint32_t stride = kEach / 2; stride > 0; stride /= 2) {
      if (stride >= run) continue;
#pragma unroll
      for (uint32_t j = 0; j < kEach; ++j) {
        if ((j & stride) != 0) continue;
        const bool up = ((thread * kEach + j) & run) == 0;
        const T a = key[j];
        const T b = key[j + stride];
        key[j] = keep(a, b, up);
        key[j + stride] = keep(b, a, !up);
      }
    }
  }
  __syncthreads();
#pragma unroll
  for (uint32_t j = 0; j < kEach; ++j) keys[thread * kEach + j] = key[j];
  __syncthreads();
}

// The same for n keys, a power of two from kThreads to 8 * kThreads.
template <typename T>
__device__ __forceinline__ void block_sort(T* keys, uint32_t n) {
  switch (n / kThreads) {
    case 1:
      return sort_block<1>(keys);
    case 2:
      return sort_block<2>(keys);
    case 4:
      return sort_block<4>(keys);
    default:
      return sort_block<8>(keys);
  }
}

}  // namespace tl_topk
