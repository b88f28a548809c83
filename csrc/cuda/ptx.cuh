// The few PTX instructions CUDA C++ has no name for, each wrapped once.
//
// Addresses of another block's shared memory stay in their own 32-bit form (ClusterAddress): nvcc
// 13.1 to 13.3 miscompile generic pointers that may be either kind on sm_90a.
#pragma once

#include <cstdint>

#include "parts.h"

namespace tl_topk::ptx {

using ClusterAddress = uint32_t;

// Clusters came with compute capability 9.0; kernels that use them are empty before it.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr bool kHasClusters = false;
#else
constexpr bool kHasClusters = true;
#endif

// Of kernels that are launched in clusters alone: otherwise the compiler provides for a launch
// without them, at every barrier of a cluster.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define TL_TOPK_IN_CLUSTERS __cluster_dims__()
#else
#define TL_TOPK_IN_CLUSTERS
#endif

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// All threads of all blocks of the cluster. Release and acquire are what make stores to another
// block's shared memory visible: a relaxed arrive loses them.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The same in two halves, with no ordering of stores: only that every block has come this far.
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The address in block `rank` of the cluster of what `local` points to in this block.
__device__ __forceinline__ ClusterAddress cluster_address(const void* local, uint32_t rank) {
  const uint32_t here = static_cast<uint32_t>(__cvta_generic_to_shared(local));
  ClusterAddress there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(rank));
  return there;
}

__device__ __forceinline__ void remote_store(ClusterAddress a, uint32_t x) {
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(a), "r"(x) : "memory");
}
__device__ __forceinline__ void remote_store(ClusterAddress a, uint32_t x, uint32_t y) {
  asm volatile("st.shared::cluster.v2.u32 [%0], {%1, %2};" ::"r"(a), "r"(x), "r"(y) : "memory");
}
__device__ __forceinline__ void remote_or(ClusterAddress a, uint32_t x) {
  asm volatile("red.relaxed.cluster.shared::cluster.or.b32 [%0], %1;" ::"r"(a), "r"(x) : "memory");
}
__device__ __forceinline__ uint32_t remote_load(ClusterAddress a) {
  uint32_t x;
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(x) : "r"(a) : "memory");
  return x;
}

// Stores that report their own arrival: into another block's shared memory, counted in bytes by the
// mbarrier at `barrier` of the same block. No fence is needed on either side.
__device__ __forceinline__ void store_async(ClusterAddress a, uint32_t x, ClusterAddress barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(a),
      "r"(x), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void store_async(ClusterAddress a, uint64_t x, ClusterAddress barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u64 [%0], %1, [%2];" ::"r"(a),
      "l"(x), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void store_async(ClusterAddress a, uint32_t x, uint32_t y,
                                            ClusterAddress barrier) {
  store_async(a, static_cast<uint64_t>(y) << 32 | x, barrier);
}
// Reductions that report their own arrival likewise: what they change must be changed by nothing
// but atomics meanwhile.
__device__ __forceinline__ void or_async(ClusterAddress a, uint32_t x, ClusterAddress barrier) {
  asm volatile(
      "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.or.b32 [%0], %1, "
      "[%2];" ::"r"(a),
      "r"(x), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void add_async(ClusterAddress a, uint32_t x, ClusterAddress barrier) {
  asm volatile(
      "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%0], %1, "
      "[%2];" ::"r"(a),
      "r"(x), "r"(barrier)
      : "memory");
}

// Prepares a barrier of this block for `arrivals` arrivals a phase.
__device__ __forceinline__ void init_barrier(uint64_t* barrier, uint32_t arrivals) {
  const auto here = static_cast<uint32_t>(__cvta_generic_to_shared(barrier));
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(here), "r"(arrivals) : "memory");
}
// Makes prepared barriers visible to the whole cluster, together with the next cluster barrier.
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Arrives at a barrier of this block and tells it to wait for `bytes` more of asynchronous stores.
__device__ __forceinline__ void arrive_and_expect(uint64_t* barrier, uint32_t bytes) {
  const auto here = static_cast<uint32_t>(__cvta_generic_to_shared(barrier));
  asm volatile("mbarrier.arrive.expect_tx.relaxed.cta.shared::cta.b64 _, [%0], %1;" ::"r"(here),
               "r"(bytes)
               : "memory");
}
// The same at a barrier of any block of the cluster.
__device__ __forceinline__ void arrive_and_expect_at(ClusterAddress barrier, uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.relaxed.cluster.shared::cluster.b64 _, [%0], %1;" ::"r"(barrier),
      "r"(bytes)
      : "memory");
}

// Waits until the barrier's first phase is complete: every arrival made, every byte stored.
// Acquires at the scope of this block only: what was stored lies in its own shared memory, and
// acquiring for the cluster would empty the L1 cache.
__device__ __forceinline__ void await_barrier(uint64_t* barrier) {
  const auto here = static_cast<uint32_t>(__cvta_generic_to_shared(barrier));
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "AGAIN%=:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n"
      "@!done bra AGAIN%=;\n"
      "}" ::"r"(here)
      : "memory");
}

// atomicAdd on a counter in shared memory that lane 0 makes for its warp; other lanes get `x` back.
// Where the address is the same for all lanes the assembler wraps an atomic in a vote of its own:
// what is added to it here, 0 for lane 0, prevents that.
__device__ __forceinline__ uint32_t lane0_add(uint32_t* counter, uint32_t x) {
  const uint32_t lane = threadIdx.x % 32;
  const auto here = static_cast<uint32_t>(__cvta_generic_to_shared(counter)) + lane;
  uint32_t before = x;
  asm volatile(
      "{\n"
      ".reg .pred is_first;\n"
      "setp.eq.u32 is_first, %2, 0;\n"
      "@is_first atom.relaxed.cta.shared::cta.add.u32 %0, [%1], %0;\n"
      "}"
      : "+r"(before)
      : "r"(here), "r"(lane)
      : "memory");
  return before;
}

// atomicAdd on a counter in global memory that orders what it counts: what the caller and its block
// wrote before (a barrier in between) is seen by whoever draws a later number.
__device__ __forceinline__ uint32_t ordered_add(uint32_t* counter, uint32_t x) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(counter), "r"(x)
               : "memory");
  return before;
}

// Predicated forms of a shared-memory increment and a global store, for loops where a branch around
// each would cost more than the instruction.
__device__ __forceinline__ void shared_increment(uint32_t* counter, bool enabled) {
  const auto here = static_cast<uint32_t>(__cvta_generic_to_shared(counter));
  asm volatile(
      "{\n"
      ".reg .pred enabled;\n"
      "setp.ne.u32 enabled, %1, 0;\n"
      "@enabled red.relaxed.cta.shared::cta.add.u32 [%0], 1;\n"
      "}" ::"r"(here),
      "r"(static_cast<uint32_t>(enabled))
      : "memory");
}
// What the counter was before; meaningless where it is not enabled.
__device__ __forceinline__ uint32_t shared_take(uint32_t* counter, bool enabled) {
  const auto here = static_cast<uint32_t>(__cvta_generic_to_shared(counter));
  uint32_t before;
  asm volatile(
      "{\n"
      ".reg .pred enabled;\n"
      "setp.ne.u32 enabled, %2, 0;\n"
      "@enabled atom.relaxed.cta.shared::cta.add.u32 %0, [%1], 1;\n"
      "}"
      : "=r"(before)
      : "r"(here), "r"(static_cast<uint32_t>(enabled))
      : "memory");
  return before;
}
__device__ __forceinline__ void store_if(uint2* p, uint2 x, bool enabled) {
  asm volatile(
      "{\n"
      ".reg .pred enabled;\n"
      "setp.ne.u32 enabled, %3, 0;\n"
      "@enabled st.v2.u32 [%0], {%1, %2};\n"
      "}" ::"l"(p),
      "r"(x.x), "r"(x.y), "r"(static_cast<uint32_t>(enabled))
      : "memory");
}
// Of a word, all bits but the lowest so many; C++ does not define shifts by the whole width.
__device__ __forceinline__ uint32_t ones_above(int32_t bits) {
  uint32_t ones;
  asm("shl.b32 %0, -1, %1;" : "=r"(ones) : "r"(bits));
  return ones;
}

// Into shared memory of this block.
__device__ __forceinline__ void shared_store_if(uint32_t address, uint2 x, bool enabled) {
  asm volatile(
      "{\n"
      ".reg .pred enabled;\n"
      "setp.ne.u32 enabled, %3, 0;\n"
      "@enabled st.shared.v2.u32 [%0], {%1, %2};\n"
      "}" ::"r"(address),
      "r"(x.x), "r"(x.y), "r"(static_cast<uint32_t>(enabled))
      : "memory");
}
__device__ __forceinline__ void shared_store_if(uint32_t* p, uint32_t x, bool enabled) {
  asm volatile(
      "{\n"
      ".reg .pred enabled;\n"
      "setp.ne.u32 enabled, %2, 0;\n"
      "@enabled st.shared.u32 [%0], %1;\n"
      "}" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(p))),
      "r"(x), "r"(static_cast<uint32_t>(enabled))
      : "memory");
}
__device__ __forceinline__ void store_if(int32_t* p, uint32_t x, bool enabled) {
  asm volatile(
      "{\n"
      ".reg .pred enabled;\n"
      "setp.ne.u32 enabled, %2, 0;\n"
      "@enabled st.global.u32 [%0], %1;\n"
      "}" ::"l"(p),
      "r"(x), "r"(static_cast<uint32_t>(enabled))
      : "memory");
}

// A load of data that no thread writes during the kernel, likewise.
__device__ __forceinline__ int32_t load_if(const int32_t* p, bool enabled, int32_t otherwise) {
  int32_t x = otherwise;
  asm volatile(
      "{\n"
      ".reg .pred enabled;\n"
      "setp.ne.u32 enabled, %2, 0;\n"
      "@enabled ld.global.nc.s32 %0, [%1];\n"
      "}"
      : "+r"(x)
      : "l"(p), "r"(static_cast<uint32_t>(enabled)));
  return x;
}

// The same of shared memory, which barriers of the block order.
__device__ __forceinline__ uint32_t shared_load_if(const uint32_t* p, bool enabled,
                                                   uint32_t otherwise) {
  uint32_t x = otherwise;
  asm volatile(
      "{\n"
      ".reg .pred enabled;\n"
      "setp.ne.u32 enabled, %2, 0;\n"
      "@enabled ld.shared.u32 %0, [%1];\n"
      "}"
      : "+r"(x)
      : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(p))), "r"(static_cast<uint32_t>(enabled))
      : "memory");
  return x;
}

// Fetches a line of global memory that a later load will want.
__device__ __forceinline__ void prefetch(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

// Programmatic dependent launch: wait until the kernels this one depends on have written their
// results; a no-op when the launch did not ask for overlap.
__device__ __forceinline__ void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// A 16-byte load of data that no thread writes during the kernel.
__device__ __forceinline__ uint4 load_vector(const uint4* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

// x, computed here: not delayed into a branch that needs it, where nothing else would overlap.
__device__ __forceinline__ uint32_t keep(uint32_t x) {
  asm volatile("" : "+r"(x));
  return x;
}

// Copies 16 bytes from global to shared memory while the thread goes on. `commit_copies` makes one
// group of those since the last; `await_copies` waits until at most kNewest groups are under way.
__device__ __forceinline__ void copy_vector_async(uint32_t to, const uint4* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void copy_vector_async(uint4* to, const uint4* from) {
  copy_vector_async(static_cast<uint32_t>(__cvta_generic_to_shared(to)), from);
}
// `count` of them, at most kMost: kApart vectors apart in shared memory, `apart` in global memory.
template <uint32_t kMost, uint32_t kApart>
__device__ __forceinline__ void copy_vectors_async(uint4* to, const uint4* from, uint32_t apart,
                                                   uint32_t count) {
  const uint32_t here = keep(static_cast<uint32_t>(__cvta_generic_to_shared(to)));
#pragma unroll
  for (uint32_t u = 0; u < kMost; ++u) {
    if (u < count) {
      copy_vector_async(here + u * kApart * static_cast<uint32_t>(sizeof(uint4)),
                        from + size_t{u} * apart);
    }
  }
}
// The same of 4 bytes, which nobody writes during the kernel; `await_all_copies` waits for all that
// this thread has under way.
__device__ __forceinline__ void copy_word_async(uint32_t* to, const int32_t* from, bool enabled) {
  const auto here = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile(
      "{\n"
      ".reg .pred enabled;\n"
      "setp.ne.u32 enabled, %2, 0;\n"
      "@enabled cp.async.ca.shared.global [%0], [%1], 4;\n"
      "}" ::"r"(here),
      "l"(from), "r"(static_cast<uint32_t>(enabled))
      : "memory");
}
// Copies `bytes` of global memory, which nobody writes during the kernel, to shared memory of this
// block while all its threads go on: aligned to 16 bytes, and so many. A barrier of this block that
// expects the bytes counts them in.
__device__ __forceinline__ void copy_bulk_async(uint32_t* to, const int32_t* from, uint32_t bytes,
                                                uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
      "l"(from), "r"(bytes), "r"(static_cast<uint32_t>(__cvta_generic_to_shared(barrier)))
      : "memory");
}
__device__ __forceinline__ void await_all_copies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <uint32_t kNewest>
__device__ __forceinline__ void await_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kNewest) : "memory");
}

// Seldom true: what follows lies apart from the usual code, which then takes fewer lines of the
// instruction cache.
__device__ __forceinline__ bool unlikely(bool x) { return __builtin_expect(x, false); }

// x plus what the lane `distance` higher has, if there is one; the shuffle itself says so. By whole
// warps.
__device__ __forceinline__ uint32_t add_from_higher(uint32_t x, uint32_t distance) {
  asm volatile(
      "{\n"
      ".reg .pred is_there;\n"
      ".reg .u32 higher;\n"
      "shfl.sync.down.b32 higher|is_there, %0, %1, 31, 0xffffffff;\n"
      "@is_there add.u32 %0, %0, higher;\n"
      "}"
      : "+r"(x)
      : "r"(distance));
  return x;
}

// One lane of a whole warp.
__device__ __forceinline__ bool elect() {
#if __CUDA_ARCH__ >= 900
  uint32_t elected;
  asm volatile(
      "{\n"
      ".reg .pred mine;\n"
      "elect.sync _|mine, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, mine;\n"
      "}"
      : "=r"(elected));
  return elected != 0;
#else
  return threadIdx.x % 32 == 0;
#endif
}

__device__ __forceinline__ uint32_t lanes_below() {
  uint32_t mask;
  asm("mov.u32 %0, %%lanemask_lt;" : "=r"(mask));
  return mask;
}

}  // namespace tl_topk::ptx
