// How the blocks of a cluster hand their entries to the first of them, for the TileLang selector's
// second variant. TileLang has cluster barriers and a copy between shared memories, but no atomic
// on another block's, and its barriers do not hold the compiler back: hence these.
#pragma once

#include <cstdint>

#include "../host_device.h"

namespace tl_topk::lang {

__device__ __forceinline__ uint32_t address_in_block(const void* shared, uint32_t rank) {
  uint32_t address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(address)
      : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(shared))), "r"(rank));
  return address;
}

// Every thread of every block: what was written before is seen after the wait.
__device__ __forceinline__ void cluster_arrive() {
  __syncwarp();  // the barrier takes whole warps
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// This block's list to the list of the cluster's first block, which may still be growing: both
// reserve places with atomics on the one counter. 1 in the first block, which then has all entries,
// after every block has delivered; 0 in the others. Every block calls it, once, after
// cluster_arrive() by all its threads, when its counter was 0.
template <int kThreads>
__device__ __forceinline__ int deliver_in_cluster(const void* list_words, int* count, int capacity,
                                                  int rank, int* shared) {
  const auto* const list = static_cast<const uint64_t*>(list_words);
  __syncthreads();
  cluster_wait();  // the first block has begun
  if (rank != 0) {
    const int mine = *count;
    if (mine > 0) {
      if (threadIdx.x == 0) {
        // More than its list holds: the first block's count must say so too.
        const int claimed = min(mine, capacity + 1);
        asm volatile("atom.shared::cluster.add.u32 %0, [%1], %2;"
                     : "=r"(*shared)
                     : "r"(address_in_block(count, 0)), "r"(claimed)
                     : "memory");
      }
      __syncthreads();
      const int base = *shared;
      const uint32_t target = address_in_block(list, 0);
      for (int i = static_cast<int>(threadIdx.x); i < min(mine, capacity - base); i += kThreads) {
        asm volatile("st.shared::cluster.u64 [%0], %1;" ::"r"(target + 8 * (base + i)), "l"(list[i])
                     : "memory");
      }
    }
  }
  cluster_arrive();
  cluster_wait();
  return rank == 0;
}

}  // namespace tl_topk::lang
