// The few PTX instructions CUDA C++ has no name for, each wrapped once.
//
// Addresses of another block's shared memory stay in their own 32-bit form (ClusterAddress): nvcc
// 13.1 to 13.3 miscompile generic pointers that may be either kind on sm_90a.
#pragma once

#include <cstdint>

namespace tl_topk::ptx {

using ClusterAddress = uint32_t;

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ __forceinline__ uint32_t cluster_size() {
  uint32_t size;
  asm volatile("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(size));
  return size;
}

// Arrive and wait are split so that work can go between them. Release and acquire are what make
// stores to another block's shared memory visible: a relaxed arrive loses them.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
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
__device__ __forceinline__ uint32_t remote_load(ClusterAddress a) {
  uint32_t x;
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(x) : "r"(a) : "memory");
  return x;
}

__device__ __forceinline__ uint32_t remote_add(ClusterAddress a, uint32_t x) {
  uint32_t before;
  asm volatile("atom.relaxed.cluster.shared::cluster.add.u32 %0, [%1], %2;"
               : "=r"(before)
               : "r"(a), "r"(x)
               : "memory");
  return before;
}

// Programmatic dependent launch: wait until the kernels this one depends on have written their
// results; a no-op when the launch did not ask for overlap.
__device__ __forceinline__ void wait_for_previous_kernel() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
__device__ __forceinline__ void let_next_kernel_start() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// A 16-byte load of data that no thread writes during the kernel.
__device__ __forceinline__ uint4 load_vector(const uint4* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

__device__ __forceinline__ uint32_t lanes_below() {
  uint32_t mask;
  asm("mov.u32 %0, %%lanemask_lt;" : "=r"(mask));
  return mask;
}

}  // namespace tl_topk::ptx
