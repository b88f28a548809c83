// Just enough of a GPU to run one thread block on the CPU: every thread is a fiber, which runs
// until it meets the others of its warp or block. Blocks run one after the other, so only kernels
// whose blocks do not wait for one another can be run. Nothing here is fast. Which thread goes on
// first between two meetings is as told: what depends on it is a race. Compiled with
// -fsanitize=thread, every race is reported: that threads run one after the other hides none, for
// nothing but barriers puts what they do in order.
#pragma once

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
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

// What the sanitizer is told. It does not see what emulation itself does.
#ifdef __SANITIZE_THREAD__
inline void* new_thread() { return __tsan_create_fiber(0); }
inline void end_thread(void* thread) { __tsan_destroy_fiber(thread); }
inline void* this_thread() { return __tsan_get_current_fiber(); }
inline void switch_to(void* thread) {
  __tsan_switch_to_fiber(thread, __tsan_switch_to_fiber_no_sync);
}
inline void release(void* at) { __tsan_release(at); }
inline void acquire(void* at) { __tsan_acquire(at); }
extern "C" {
void AnnotateIgnoreReadsBegin(const char*, int);
void AnnotateIgnoreReadsEnd(const char*, int);
void AnnotateIgnoreWritesBegin(const char*, int);
void AnnotateIgnoreWritesEnd(const char*, int);
}
struct Unwatched {
  Unwatched() {
    AnnotateIgnoreReadsBegin("", 0);
    AnnotateIgnoreWritesBegin("", 0);
  }
  ~Unwatched() {
    AnnotateIgnoreWritesEnd("", 0);
    AnnotateIgnoreReadsEnd("", 0);
  }
};
#else
inline void* new_thread() { return nullptr; }
inline void end_thread(void*) {}
inline void* this_thread() { return nullptr; }
inline void switch_to(void*) {}
inline void release(void*) {}
inline void acquire(void*) {}
struct Unwatched {
  ~Unwatched() {}
};
#endif

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
  void* thread = nullptr;
  bool done = false;
};

inline ucontext_t scheduler;
inline void* scheduling_thread;
inline std::vector<Fiber> fibers;
inline std::vector<Meeting> warps;
inline Meeting everyone;
inline unsigned current;
inline std::function<void()> body;
inline std::vector<uchar> shared;

inline void step_aside() {
  switch_to(scheduling_thread);
  swapcontext(&fibers[current].context, &scheduler);
}

// Returns the generation that the caller took part in, when all have. Puts nothing in order.
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

// A barrier: what was done before by any is seen by all after.
inline void synchronise(Meeting& meeting) {
  const Unwatched unwatched;
  // By generation, for the next may begin before all have left.
  void* const here = meeting.given[meeting.generation % 2];
  release(here);
  meet(meeting);
  acquire(here);
}

template <typename T>
const uint64_t* exchange(T value) {
  const Unwatched unwatched;
  Meeting& warp = warps[current / 32];
  uint64_t& place = warp.given[warp.generation % 2][current % 32];
  place = 0;
  std::memcpy(&place, &value, sizeof value);
  return warp.given[meet(warp) % 2];
}

template <typename T>
T of_lane(const uint64_t* given, unsigned lane) {
  const Unwatched unwatched;
  T value;
  std::memcpy(&value, given + lane, sizeof value);
  return value;
}

inline void run_fiber() {
  acquire(&body);
  body();
  release(&body);
  {
    const Unwatched unwatched;
    fibers[current].done = true;
  }
  step_aside();
}

// One for each thread, kept from block to block, and nothing but what is used of them.
inline char* stack_of(size_t thread) {
  constexpr size_t kMostThreads = 1024;
  static char* const all =
      static_cast<char*>(mmap(nullptr, kMostThreads * kStackBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  return all + thread * kStackBytes;
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
  const Unwatched unwatched;
  body = kernel;
  shared.assign(shared_bytes + 1024 + kGuardBytes, kUndefined);
  blockIdx = {block, 0, 0};
  fibers = std::vector<Fiber>(threads);
  warps.assign(threads / 32, Meeting{});
  for (Meeting& warp : warps) warp.members = 32;
  everyone = Meeting{};
  everyone.members = threads;
  for (Fiber& fiber : fibers) {
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = stack_of(&fiber - fibers.data());
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = &scheduler;
    makecontext(&fiber.context, run_fiber, 0);
    fiber.thread = new_thread();
  }
  scheduling_thread = this_thread();
  release(&body);
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
      switch_to(fibers[current].thread);
      swapcontext(&scheduler, &fibers[current].context);
      if (fibers[current].done) --left;
    }
  }
  acquire(&body);
  for (Fiber& fiber : fibers) end_thread(fiber.thread);
  for (const uchar* guard = shared_memory() + shared_bytes; guard < &*shared.end(); ++guard) {
    if (*guard == kUndefined) continue;
    std::fprintf(stderr, "block %u wrote past its %zu bytes of shared memory\n", block,
                 shared_bytes);
    std::abort();
  }
}

}  // namespace emulated

inline void __syncthreads() { emulated::synchronise(emulated::everyone); }
inline void __syncwarp() { emulated::synchronise(emulated::warps[emulated::current / 32]); }
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
  return __atomic_fetch_add(place, static_cast<T>(more), __ATOMIC_RELAXED);
}
template <typename T, typename F>
void replace(T* place, F&& better) {
  T before = __atomic_load_n(place, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(place, &before, better(before), false, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
  }
}
inline void atomicMin(unsigned long long* place, uint64_t x) {
  replace(place, [x](unsigned long long y) { return std::min<unsigned long long>(x, y); });
}
inline void atomicMax(unsigned long long* place, uint64_t x) {
  replace(place, [x](unsigned long long y) { return std::max<unsigned long long>(x, y); });
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
inline float __fadd_rn(float x, float y) { return x + y; }
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
