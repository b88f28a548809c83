// What a block that selects from a row has in shared memory, and how much of it.
#pragma once

#include <cstdint>

#include "config.h"
#include "cuda/params.h"
#include "cuda/row.cuh"
#include "cuda/shared_state.cuh"
#include "cuda/step_queue.cuh"
#include "cuda/survivors.cuh"

namespace tl_topk {

// A block's shared memory: its state, the queue of steps, the list of survivors, and room to sort:
// as many keys as asked for, and as many spare ones in place of the list.
struct SharedMemory {
  SharedState& state;
  unsigned char* queue;
  Entry* list;
  void* sort_buffer;
  uint32_t* pages;  // of a row of a mapped launch, if nothing is sorted

  __device__ __forceinline__ SharedMemory(unsigned char* memory, uint32_t queue_bytes,
                                          uint32_t listed, uint32_t sort_entries)
      : state(*reinterpret_cast<SharedState*>(memory)),
        queue(memory + sizeof(SharedState)),
        list(reinterpret_cast<Entry*>(queue + (queue_bytes > 0 ? queue_bytes + kQueueSlack : 0))),
        sort_buffer(list + max(listed, sort_entries)),
        pages(reinterpret_cast<uint32_t*>(list + listed)) {}
};

// Where a thread has room for kHeld survivors, and loads 2^kLoadsLog2 vectors a step.
template <Dtype D, int kLoadsLog2, uint32_t kHeld>
constexpr uint32_t kHeldOf = kHeld == kResident ? Row<D>::kPerVector << kLoadsLog2 : kHeld;

// Vectors a thread loads of a share that stays in registers, at the most.
template <Dtype D>
constexpr int kMostResidentLog2 = D == Dtype::kFloat32 ? 1 : 0;
static_assert(Row<Dtype::kFloat32>::kPerVector << kMostResidentLog2<Dtype::kFloat32> ==
              kMostResident);

// How a share is dealt out (row.cuh). A block alone has its sample in its first step; and what lies
// in a queue is listed one by one, which takes longer the more of it one warp has.
template <Scope S, int64_t kQueue>
constexpr bool kSideBySide = S != Scope::kBlock && kQueue == 0;

template <uint32_t kListed, int64_t kQueue>
__device__ __forceinline__ SharedMemory own_memory(const KernelParams& params) {
  extern __shared__ __align__(alignof(SharedState)) unsigned char shared_memory[];
  return {shared_memory, kQueue, kListed, params.sort_entries()};
}

#ifdef __CUDA_ARCH__
constexpr int64_t kDeepQueue = has_deep_queue(__CUDA_ARCH__ / 10) ? kQueueBytes : 0;
#else
constexpr int64_t kDeepQueue = 0;  // of no kernel
#endif

}  // namespace tl_topk
