// How the blocks of a cluster hand their entries to the first of them, for the TileLang selector's
// second variant. TileLang has cluster barriers and a copy between shared memories, but no single
// store to another block's that reports its arrival: hence these.
#pragma once

#include <cstdint>

#include "../host_device.h"
#include "select.cuh"

namespace tl_topk::lang {

__device__ __forceinline__ uint32_t shared_address(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}
__device__ __forceinline__ uint32_t address_in_block(const void* shared, uint32_t rank) {
  uint32_t address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(address)
               : "r"(shared_address(shared)), "r"(rank));
  return address;
}

__device__ __forceinline__ void init_barrier(const uint64_t* barrier) {
  asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
}
// The one arrival, which also says how many bytes the stores of other blocks bring.
__device__ __forceinline__ void expect_bytes(const uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void wait_for_bytes(const uint64_t* barrier) {
  uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], 0;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(done)
        : "r"(shared_address(barrier))
        : "memory");
  }
}

// What the blocks of a cluster meet at, in each one's shared memory.
struct Meeting {
  int entries;  // in the block's list
  int unused;
  uint64_t counted;    // mbarrier: all counts are here
  uint64_t delivered;  // mbarrier, of the first block: all entries are here
  uint32_t counts[16];
};
constexpr uint32_t kMeetingWords = 24;
static_assert(sizeof(Meeting) <= 4 * kMeetingWords);

// To be followed by one deliver_in_cluster() in every block. No fence for all of memory, which
// would wait for the loads on their way: that of the barriers is enough.
template <int kCluster>
__device__ __forceinline__ void cluster_begun(int* meeting_words) {
  auto* const meeting = reinterpret_cast<Meeting*>(meeting_words);
  if (threadIdx.x == 0) {
    init_barrier(&meeting->counted);
    init_barrier(&meeting->delivered);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    expect_bytes(&meeting->counted, kCluster * sizeof(uint32_t));
  }
  __syncwarp();  // the barrier takes whole warps
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

// This block's list to the end of the list of the cluster's first block. 1 in the first block,
// which then has all entries and their number, which may be more than there is room for: then some
// are missing. 0 in the others, which may leave. Every block calls it, once.
//
// Every block tells all others how many entries it has, and so knows where its own go.
template <int kThreads, int kCluster>
__device__ __forceinline__ int deliver_in_cluster(const void* list_words, int* meeting_words,
                                                  int capacity, int rank) {
  const auto* const list = static_cast<const uint64_t*>(list_words);
  auto* const meeting = reinterpret_cast<Meeting*>(meeting_words);
  __syncthreads();
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");  // all blocks have begun
  // Counts beyond the capacity are as good as one just beyond; their sum does not overflow.
  const uint32_t mine = min(meeting->entries, capacity + 1);
  if (threadIdx.x < kCluster) {
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(
            address_in_block(&meeting->counts[rank], threadIdx.x)),
        "r"(mine), "r"(address_in_block(&meeting->counted, threadIdx.x))
        : "memory");
  }
  wait_for_bytes(&meeting->counted);
  const uint32_t count = lane() < kCluster ? meeting->counts[lane()] : 0;
  const uint32_t total = __reduce_add_sync(kAllLanes, count);
  const bool fits = total <= static_cast<uint32_t>(capacity);
  if (rank == 0) {
    if (fits) {
      if (threadIdx.x == 0) {
        expect_bytes(&meeting->delivered, (total - mine) * sizeof(uint64_t));
      }
      wait_for_bytes(&meeting->delivered);
    }
    __syncthreads();  // all have read the block's own number
    if (threadIdx.x == 0) meeting->entries = static_cast<int>(total);
    __syncthreads();
    return 1;
  }
  if (fits) {
    const uint32_t before =
        __reduce_add_sync(kAllLanes, lane() < static_cast<uint32_t>(rank) ? count : 0);
    const uint32_t target = address_in_block(list + before, 0);
    const uint32_t barrier = address_in_block(&meeting->delivered, 0);
    for (uint32_t i = threadIdx.x; i < mine; i += kThreads) {
      asm volatile(
          "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u64 [%0], %1, [%2];" ::"r"(
              target + 8 * i),
          "l"(list[i]), "r"(barrier)
          : "memory");
    }
  }
  return 0;
}

}  // namespace tl_topk::lang
