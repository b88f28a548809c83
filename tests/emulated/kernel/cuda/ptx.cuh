// csrc/cuda/ptx.cuh for emulated kernels: the same functions, in C++. See emulated/cluster.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "cluster.h"
#include "parts.h"

#define TL_TOPK_IN_CLUSTERS

namespace tl_topk::ptx {

using ClusterAddress = uint32_t;
constexpr bool kHasClusters = true;

inline uint32_t cluster_rank() { return emulated::current_block(); }
inline void cluster_sync() { emulated::meet_cluster(); }
inline void cluster_arrive_relaxed() { emulated::arrive_at_cluster(); }
inline void cluster_wait() { emulated::wait_for_cluster(); }
inline ClusterAddress cluster_address(const void* local, uint32_t rank) {
  return emulated::address_of(local, rank);
}

template <typename T>
T* at(ClusterAddress a) {
  return static_cast<T*>(emulated::pointer_to(a));
}
inline void remote_store(ClusterAddress a, uint32_t x) { *at<uint32_t>(a) = x; }
inline void remote_store(ClusterAddress a, uint32_t x, uint32_t y) {
  at<uint32_t>(a)[0] = x;
  at<uint32_t>(a)[1] = y;
}
inline void remote_or(ClusterAddress a, uint32_t x) { *at<uint32_t>(a) |= x; }
inline uint32_t remote_load(ClusterAddress a) { return *at<uint32_t>(a); }

// A barrier in 64 bits: arrivals that are missing (low half), bytes that are (high half, signed).
inline void init_barrier(uint64_t* barrier, uint32_t arrivals) { *barrier = arrivals; }
inline void fence_barrier_init() {}
inline void arrive_and_expect(uint64_t* barrier, uint32_t bytes) {
  *barrier += (static_cast<uint64_t>(bytes) << 32) - 1;
}
inline void arrive_and_expect_at(ClusterAddress barrier, uint32_t bytes) {
  emulated::send(barrier >> 24, [=] { arrive_and_expect(at<uint64_t>(barrier), bytes); });
}
inline void await_barrier(uint64_t* barrier) {
  while (*barrier != 0) emulated::step_aside();
  emulated::progress = true;
}

// Arrives whenever it pleases.
template <typename T, typename F>
void send(ClusterAddress a, ClusterAddress barrier, F&& change) {
  emulated::send(a >> 24, [=] {
    change(*at<T>(a));
    *at<uint64_t>(barrier) -= static_cast<uint64_t>(sizeof(T)) << 32;
  });
}
template <typename T>
void stored(ClusterAddress a, T x, ClusterAddress barrier) {
  send<T>(a, barrier, [x](T& place) { place = x; });
}
inline void store_async(ClusterAddress a, uint32_t x, ClusterAddress barrier) {
  stored(a, x, barrier);
}
inline void store_async(ClusterAddress a, uint64_t x, ClusterAddress barrier) {
  stored(a, x, barrier);
}
inline void store_async(ClusterAddress a, uint32_t x, uint32_t y, ClusterAddress barrier) {
  stored(a, static_cast<uint64_t>(y) << 32 | x, barrier);
}

inline void or_async(ClusterAddress a, uint32_t x, ClusterAddress barrier) {
  send<uint32_t>(a, barrier, [x](uint32_t& place) { place |= x; });
}
inline void add_async(ClusterAddress a, uint32_t x, ClusterAddress barrier) {
  send<uint32_t>(a, barrier, [x](uint32_t& place) { place += x; });
}

inline bool elect() { return threadIdx.x % 32 == 0; }
inline uint32_t lane0_add(uint32_t* counter, uint32_t x) {
  return threadIdx.x % 32 == 0 ? atomicAdd(counter, x) : x;
}
inline uint32_t ordered_add(uint32_t* counter, uint32_t x) { return atomicAdd(counter, x); }
inline void shared_increment(uint32_t* counter, bool enabled) {
  if (enabled) ++*counter;
}
inline uint32_t shared_take(uint32_t* counter, bool enabled) { return enabled ? (*counter)++ : 0; }
inline void store_if(int32_t* p, uint32_t x, bool enabled) {
  if (enabled) *p = static_cast<int32_t>(x);
}
inline void store_if(uint2* p, uint2 x, bool enabled) {
  if (enabled) *p = x;
}
inline void shared_store_if(uint32_t address, uint2 x, bool enabled) {
  if (enabled) *at<uint2>(emulated::running_block << 24 | address) = x;
}
inline void shared_store_if(uint32_t* p, uint32_t x, bool enabled) {
  if (enabled) *p = x;
}
inline int32_t load_if(const int32_t* p, bool enabled, int32_t otherwise) {
  return enabled ? *p : otherwise;
}
inline uint32_t shared_load_if(const uint32_t* p, bool enabled, uint32_t otherwise) {
  return enabled ? *p : otherwise;
}
inline void prefetch(const void*) {}
inline void wait_for_previous_kernel() {}

// Copies are made as late as may be: when they are awaited.
inline void copy_vector_async(uint4* to, const uint4* from) {
  emulated::fibers[emulated::current].copies.push_back({to, from});
}
template <uint32_t kMost, uint32_t kApart>
void copy_vectors_async(uint4* to, const uint4* from, uint32_t apart, uint32_t count) {
  if (count > kMost) emulated::give_up("copies more vectors than it may");
  for (uint32_t u = 0; u < count; ++u) copy_vector_async(to + u * kApart, from + u * apart);
}
inline void commit_copies() {
  emulated::Fiber& fiber = emulated::fibers[emulated::current];
  fiber.groups.push_back(fiber.copies);
  fiber.copies.clear();
}
template <uint32_t kNewest>
void await_copies() {
  std::deque<emulated::Copies>& groups = emulated::fibers[emulated::current].groups;
  for (; groups.size() > kNewest; groups.pop_front()) {
    for (const auto& [to, from] : groups.front()) *to = *from;
  }
}
inline void copy_word_async(uint32_t* to, const int32_t* from, bool enabled) {
  if (!enabled) return;
  if (emulated::chance() % 2 != 0) {  // as early as may be, else as late
    *to = static_cast<uint32_t>(*from);
  } else {
    emulated::fibers[emulated::current].words.push_back({to, from});
  }
}
inline void copy_bulk_async(uint32_t* to, const int32_t* from, uint32_t bytes, uint64_t* barrier) {
  const auto odd = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 != 0; };
  if (bytes % 16 != 0 || odd(to) || odd(from)) emulated::give_up("copies what is not aligned");
  const ClusterAddress there = cluster_address(to, cluster_rank());
  const ClusterAddress counted = cluster_address(barrier, cluster_rank());
  emulated::send(cluster_rank(), [=] {
    std::memcpy(at<void>(there), from, bytes);
    *at<uint64_t>(counted) -= static_cast<uint64_t>(bytes) << 32;
  });
}
inline void await_all_copies() {
  commit_copies();
  await_copies<0>();
  auto& words = emulated::fibers[emulated::current].words;
  for (const auto& [to, from] : words) *to = static_cast<uint32_t>(*from);
  words.clear();
}
inline uint4 load_vector(const uint4* p) { return *p; }
inline uint32_t ones_above(int32_t bits) { return bits < 32 ? ~0u << bits : 0; }
inline uint32_t keep(uint32_t x) { return x; }
inline uint32_t add_from_higher(uint32_t x, uint32_t distance) {
  const uint32_t higher = __shfl_down_sync(~0u, x, distance);
  return threadIdx.x % 32 + distance < 32 ? x + higher : x;
}
inline bool unlikely(bool x) { return x; }
inline uint32_t lanes_below() { return (1u << threadIdx.x % 32) - 1; }

}  // namespace tl_topk::ptx
