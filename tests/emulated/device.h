// Just enough of a GPU to run one thread block on the CPU: every thread is a fiber, which runs
// until it meets the others of its warp or block. Blocks run one after the other, so only kernels
// whose blocks do not wait for one another can be run. Nothing here is fast. Which thread goes on
// first between two meetings is as told: what depends on it is a race.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#define __device__
#define __global__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __restrict__
#define __launch_bounds__(...)
#define CUDART_INF_F INFINITY

using uchar = unsigned char;
using ushort = unsigned short;
using uint = unsigned int;
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct Index3 {
  unsigned x, y, z;
};
inline Index3 threadIdx, blockIdx;
using std::max;
using std::min;

namespace emulated {

constexpr size_t kStackBytes = 128 << 10;
constexpr size_t kGuardBytes = 64 << 10;  // behind shared memory: what is written there is a bug
constexpr uchar kUndefined = 0xA5;

struct Meeting {  // of the lanes of a warp, or of all threads of a block
  unsigned members = 0;
  unsigned arrived = 0;
  unsigned generation = 0;
  uint64_t given[2][32];  // by generation, so that a fast lane overwrites nothing unread
};

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  bool done = false;
};

inline ucontext_t scheduler;
inline std::vector<Fiber> fibers;
inline std::vector<Meeting> warps;
inline Meeting everyone;
inline unsigned current;
inline std::function<void()> body;
inline std::vector<uchar> shared;

inline void step_aside() { swapcontext(&fibers[current].context, &scheduler); }

// Returns the generation that the caller took part in, when all have.
inline unsigned meet(Meeting& meeting) {
  const unsigned mine = meeting.generation;
  if (++meeting.arrived == meeting.members) {
    meeting.arrived = 0;
    ++meeting.generation;
  } else {
    while (meeting.generation == mine) step_aside();
  }
  return mine;
}

template <typename T>
const uint64_t* exchange(T value) {
  Meeting& warp = warps[current / 32];
  uint64_t& place = warp.given[warp.generation % 2][current % 32];
  place = 0;
  std::memcpy(&place, &value, sizeof value);
  return warp.given[meet(warp) % 2];
}

template <typename T>
T of_lane(const uint64_t* given, unsigned lane) {
  T value;
  std::memcpy(&value, given + lane, sizeof value);
  return value;
}

inline void run_fiber() {
  body();
  fibers[current].done = true;
  swapcontext(&fibers[current].context, &scheduler);
}

inline uchar* shared_memory() {
  const auto address = reinterpret_cast<uintptr_t>(shared.data());
  return shared.data() + (1024 - address % 1024) % 1024;
}

// Turns that threads take: upwards, downwards, or anew at random each time, from a seed.
constexpr unsigned kUpwards = 0;
constexpr unsigned kDownwards = 1;

inline void run_block(unsigned block, unsigned threads, size_t shared_bytes, unsigned turns,
                      const std::function<void()>& kernel) {
  body = kernel;
  shared.assign(shared_bytes + 1024 + kGuardBytes, kUndefined);
  blockIdx = {block, 0, 0};
  fibers = std::vector<Fiber>(threads);
  warps.assign(threads / 32, Meeting{});
  for (Meeting& warp : warps) warp.members = 32;
  everyone = Meeting{};
  everyone.members = threads;
  for (Fiber& fiber : fibers) {
    fiber.stack = std::make_unique<char[]>(kStackBytes);
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = &scheduler;
    makecontext(&fiber.context, run_fiber, 0);
  }
  std::vector<unsigned> order(threads);
  std::iota(order.begin(), order.end(), 0);
  if (turns == kDownwards) std::reverse(order.begin(), order.end());
  std::minstd_rand random(turns * 1000 + block);
  for (unsigned left = threads; left > 0;) {
    if (turns > kDownwards) std::shuffle(order.begin(), order.end(), random);
    for (const unsigned thread : order) {
      current = thread;
      if (fibers[current].done) continue;
      threadIdx = {current, 0, 0};
      swapcontext(&scheduler, &fibers[current].context);
      if (fibers[current].done) --left;
    }
  }
  for (const uchar* guard = shared_memory() + shared_bytes; guard < &*shared.end(); ++guard) {
    if (*guard == kUndefined) continue;
    std::fprintf(stderr, "block %u wrote past its %zu bytes of shared memory\n", block,
                 shared_bytes);
    std::abort();
  }
}

}  // namespace emulated

inline void __syncthreads() { emulated::meet(emulated::everyone); }
inline void __syncwarp() { emulated::exchange(0); }
inline void __threadfence() {}

inline unsigned __ballot_sync(unsigned, bool vote) {
  const uint64_t* given = emulated::exchange(static_cast<unsigned>(vote));
  unsigned votes = 0;
  for (unsigned lane = 0; lane < 32; ++lane) votes |= static_cast<unsigned>(given[lane]) << lane;
  return votes;
}
template <typename T>
T __shfl_sync(unsigned, T value, int from) {
  return emulated::of_lane<T>(emulated::exchange(value), from);
}
template <typename T>
T __shfl_up_sync(unsigned, T value, unsigned distance) {
  const unsigned lane = threadIdx.x % 32;
  const uint64_t* given = emulated::exchange(value);
  return emulated::of_lane<T>(given, lane >= distance ? lane - distance : lane);
}
template <typename T>
T __shfl_xor_sync(unsigned, T value, unsigned distance) {
  const unsigned lane = threadIdx.x % 32;
  return emulated::of_lane<T>(emulated::exchange(value), lane ^ distance);
}
inline unsigned __reduce_add_sync(unsigned, unsigned value) {
  const uint64_t* given = emulated::exchange(value);
  unsigned sum = 0;
  for (unsigned lane = 0; lane < 32; ++lane) sum += emulated::of_lane<unsigned>(given, lane);
  return sum;
}

inline unsigned __reduce_max_sync(unsigned, unsigned value) {
  const uint64_t* given = emulated::exchange(value);
  return static_cast<unsigned>(*std::max_element(given, given + 32));
}
inline unsigned __reduce_min_sync(unsigned, unsigned value) {
  const uint64_t* given = emulated::exchange(value);
  return static_cast<unsigned>(*std::min_element(given, given + 32));
}

template <typename T, typename U>
T atomicAdd(T* place, U more) {
  const T before = *place;
  *place = before + more;
  return before;
}
template <typename T>
T atomicExch(T* place, int next) {
  const T before = *place;
  *place = next;
  return before;
}
inline void atomicMin(unsigned long long* place, uint64_t x) {
  *place = std::min<uint64_t>(*place, x);
}
inline void atomicMax(unsigned long long* place, uint64_t x) {
  *place = std::max<uint64_t>(*place, x);
}

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(unsigned x) { return __builtin_ffs(static_cast<int>(x)); }
inline int __clz(unsigned x) { return x == 0 ? 32 : __builtin_clz(x); }
inline int __clzll(uint64_t x) { return x == 0 ? 64 : __builtin_clzll(x); }
template <typename To, typename From>
To with_bits_of(From from) {
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}
inline float __uint_as_float(unsigned x) { return with_bits_of<float>(x); }
inline unsigned __float_as_uint(float x) { return with_bits_of<unsigned>(x); }
inline float __log2f(float x) { return std::log2(x); }
inline float __fdividef(float x, float y) { return x / y; }
template <typename T>
void __stcg(T* place, T value) {
  *place = value;
}
template <typename T>
T __ldcg(const T* place) {
  return *place;
}

namespace tl {
template <int kBytes>
void cp_async_gs_conditional(void* target, const void* source, bool wanted) {
  if (wanted) {
    std::memcpy(target, source, kBytes);
  } else {
    std::memset(target, 0, kBytes);
  }
}
inline void cp_async_commit() {}
template <int kLeft>
void cp_async_wait() {}
}  // namespace tl

// The one instruction that device code of this library writes out: the barrier of a Block.
#define asm
#define volatile(...) __syncthreads()
