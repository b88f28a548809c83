// Just enough of a GPU to run the kernels of csrc/cuda on the CPU, a cluster of thread blocks at a
// time: every thread is a fiber, which runs until it meets others of its warp, block or cluster.
// Warps take their turns in any order. Blocks see one another's shared memory; what they send one
// another arrives late and in any order.
// No race is found, but a hang is, what is written outside of shared memory that the launch asked
// for, and what is sent to a block that ends before it arrives.
#pragma once

#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#define __device__
#define __global__
#define __host__
#define __shared__
#define __grid_constant__
#define __forceinline__ inline
#define __noinline__
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)

struct alignas(8) uint2 {
  unsigned x, y;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) ulonglong2 {
  unsigned long long x, y;
};
struct Index3 {
  unsigned x, y, z;
};
inline Index3 threadIdx, blockIdx;
using std::max;
using std::min;

namespace tl_topk {
// Where kernels find their block's shared memory: that of the block that runs.
alignas(128) unsigned char shared_memory[256 << 10];
}  // namespace tl_topk

namespace emulated {

constexpr size_t kStackBytes = 64 << 10;
constexpr size_t kGuardBytes = 1 << 10;  // behind shared memory: what is written there is a bug
constexpr unsigned char kUndefined = 0xA5;

inline void give_up(const char* why) {
  std::fprintf(stderr, "emulated kernel: %s\n", why);
  std::abort();
}

struct Meeting {  // of the lanes of a warp, the threads of a block, or of a cluster
  unsigned members = 0;
  unsigned arrived = 0;
  unsigned generation = 0;
  uint64_t given[2][32];  // by generation, so that a fast lane overwrites nothing unread
};

using Copies = std::vector<std::pair<uint4*, const uint4*>>;

struct Fiber {
  ucontext_t context;
  Copies copies;  // asynchronous ones, of the group that is not complete yet
  std::deque<Copies> groups;
  std::vector<std::pair<uint32_t*, const int32_t*>> words;  // copied one by one, of no group
  bool done = false;
  unsigned cluster_generation = 0;
};

inline ucontext_t scheduler;
inline std::vector<Fiber> fibers;
inline std::vector<Meeting> warps, blocks;
inline Meeting cluster;
inline std::vector<std::vector<unsigned char>> kept;  // shared memory of blocks that do not run
inline unsigned current, threads_of_block, running_block;
inline std::function<void()> body;
inline bool progress;

inline unsigned current_block() { return running_block; }
inline void step_aside() { swapcontext(&fibers[current].context, &scheduler); }

inline unsigned arrive(Meeting& meeting) {
  const unsigned mine = meeting.generation;
  if (++meeting.arrived == meeting.members) {
    meeting.arrived = 0;
    ++meeting.generation;
  }
  return mine;
}
inline void await(Meeting& meeting, unsigned generation) {
  while (meeting.generation == generation) step_aside();
  progress = true;
}
inline unsigned meet(Meeting& meeting) {
  const unsigned mine = arrive(meeting);
  await(meeting, mine);
  return mine;
}
inline void arrive_at_cluster() { fibers[current].cluster_generation = arrive(cluster); }
inline void wait_for_cluster() { await(cluster, fibers[current].cluster_generation); }
inline void meet_cluster() {
  arrive_at_cluster();
  wait_for_cluster();
}

// What is on its way to the shared memory of blocks, and a seed for when it arrives.
struct Message {
  unsigned to;
  std::function<void()> arrive;
};
inline std::vector<Message> messages;
inline std::minstd_rand chance;
inline std::vector<unsigned> running;  // threads of each block that have not ended
inline std::vector<char> stirred;      // what each block waits for may have come

inline void send(unsigned to, std::function<void()> arrive) {
  messages.push_back({to, std::move(arrive)});
}
// Most of them arrive, or all: some are left for every later turn.
inline bool deliver(bool all) {
  std::vector<Message> here;
  std::vector<Message> later;
  for (Message& message : messages) {
    (all || (chance() >> 16) % 8 != 0 ? here : later).push_back(std::move(message));
  }
  messages = std::move(later);
  std::shuffle(here.begin(), here.end(), chance);
  for (const Message& message : here) {
    if (running[message.to] == 0) give_up("sends to a block that has ended");
    message.arrive();
    stirred[message.to] = 1;
  }
  return !here.empty();
}

inline uint32_t address_of(const void* local, uint32_t rank) {
  const auto* byte = static_cast<const unsigned char*>(local);
  return rank << 24 | static_cast<uint32_t>(byte - tl_topk::shared_memory);
}
inline void* pointer_to(uint32_t address) {
  const uint32_t rank = address >> 24;
  unsigned char* memory = rank == running_block ? tl_topk::shared_memory : kept[rank].data();
  return memory + (address & 0xffffff);
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

// A thread's end, wherever it is.
inline void leave() {
  fibers[current].done = true;
  progress = true;
  step_aside();
}
inline void run_fiber() {
  body();
  if (!fibers[current].words.empty()) give_up("leaves copies that come while others are made");
  leave();
}

inline char* stacks(size_t count) {  // kept from launch to launch
  static char* memory = nullptr;
  static size_t held = 0;
  if (count > held) {
    memory = static_cast<char*>(mmap(nullptr, count * kStackBytes, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (memory == MAP_FAILED) std::abort();
    held = count;
  }
  return memory;
}

// Runs blocks first .. first + count - 1 of a grid together.
inline void run_cluster(unsigned first, unsigned count, unsigned threads, size_t shared_bytes,
                        const std::function<void()>& kernel) {
  if (shared_bytes + kGuardBytes > sizeof tl_topk::shared_memory) give_up("too much shared memory");
  const size_t bytes = shared_bytes + kGuardBytes;
  body = kernel;
  threads_of_block = threads;
  fibers = std::vector<Fiber>(count * threads);
  warps.assign(count * threads / 32, Meeting{});
  for (Meeting& warp : warps) warp.members = 32;
  blocks.assign(count, Meeting{});
  for (Meeting& block : blocks) block.members = threads;
  cluster = Meeting{};
  cluster.members = count * threads;
  running.assign(count, threads);
  stirred.assign(count, 1);
  std::vector<unsigned> seen(count, 0);  // generations of the cluster's meeting
  messages.clear();
  kept.assign(count, std::vector<unsigned char>(bytes, kUndefined));
  std::vector<unsigned> turns(threads / 32);  // of warps
  std::iota(turns.begin(), turns.end(), 0u);
  char* const stack = stacks(fibers.size());
  for (size_t i = 0; i < fibers.size(); ++i) {
    getcontext(&fibers[i].context);
    fibers[i].context.uc_stack.ss_sp = stack + i * kStackBytes;
    fibers[i].context.uc_stack.ss_size = kStackBytes;
    fibers[i].context.uc_link = &scheduler;
    makecontext(&fibers[i].context, run_fiber, 0);
  }
  for (size_t left = fibers.size(); left > 0;) {
    bool any = false;
    for (unsigned block = 0; block < count; ++block) {
      running_block = count;  // none: all shared memory is where blocks keep it
      any |= deliver(false);
      if (stirred[block] == 0 && seen[block] == cluster.generation) continue;
      stirred[block] = 0;
      running_block = block;
      std::memcpy(tl_topk::shared_memory, kept[running_block].data(), bytes);
      do {  // until all of its threads wait for another block's
        progress = false;
        std::shuffle(turns.begin(), turns.end(), chance);
        for (unsigned turn = 0; turn < threads; ++turn) {
          const unsigned thread = turns[turn / 32] * 32 + turn % 32;
          current = running_block * threads + thread;
          if (fibers[current].done) continue;
          threadIdx = {thread, 0, 0};
          blockIdx = {first + running_block, 0, 0};
          swapcontext(&scheduler, &fibers[current].context);
          if (fibers[current].done) {
            --left;
            --running[running_block];
          }
        }
        any |= progress;
      } while (progress);
      std::memcpy(kept[running_block].data(), tl_topk::shared_memory, bytes);
      seen[block] = cluster.generation;
    }
    running_block = count;
    if (!any && !deliver(true)) give_up("hangs: all threads wait");
  }
  if (!messages.empty()) give_up("sends to a block that has ended");
  for (const auto& memory : kept) {
    for (size_t i = shared_bytes; i < bytes; ++i) {
      if (memory[i] != kUndefined) give_up("wrote past its shared memory");
    }
  }
}

}  // namespace emulated

inline void __syncthreads() { emulated::meet(emulated::blocks[emulated::running_block]); }
// Does any thread of the block say so?
inline int __syncthreads_or(int mine) {
  static int votes[2][64];  // by generation and block
  const unsigned block = emulated::running_block;
  const unsigned generation = emulated::blocks[block].generation % 2;
  if (emulated::blocks[block].arrived == 0) votes[generation][block] = 0;
  votes[generation][block] |= mine;
  __syncthreads();
  return votes[generation][block] != 0;
}
inline void __syncwarp() { emulated::exchange(0); }
inline void __threadfence() {}
inline uint32_t __cvta_generic_to_shared(const void* local) {
  return static_cast<uint32_t>(static_cast<const unsigned char*>(local) - tl_topk::shared_memory);
}
template <typename T>
T __ldcg(const T* place) {
  return *place;
}
template <typename T>
void __stcg(T* place, T value) {
  *place = value;
}

inline unsigned __ballot_sync(unsigned, bool vote) {
  const uint64_t* given = emulated::exchange(static_cast<unsigned>(vote));
  unsigned votes = 0;
  for (unsigned lane = 0; lane < 32; ++lane) votes |= static_cast<unsigned>(given[lane]) << lane;
  return votes;
}
template <typename T>
unsigned __match_any_sync(unsigned, T value) {
  const uint64_t* given = emulated::exchange(value);
  unsigned equal = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    equal |= static_cast<unsigned>(emulated::of_lane<T>(given, lane) == value) << lane;
  }
  return equal;
}
inline unsigned __any_sync(unsigned mask, bool vote) { return __ballot_sync(mask, vote) != 0; }
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
T __shfl_down_sync(unsigned, T value, unsigned distance) {
  const unsigned lane = threadIdx.x % 32;
  const uint64_t* given = emulated::exchange(value);
  return emulated::of_lane<T>(given, lane + distance < 32 ? lane + distance : lane);
}
template <typename T>
T __shfl_xor_sync(unsigned, T value, unsigned distance) {
  const unsigned lane = threadIdx.x % 32;
  const uint64_t* given = emulated::exchange(value);
  return emulated::of_lane<T>(given, lane ^ distance);
}
template <typename F>
unsigned reduced(unsigned value, F&& f) {
  const uint64_t* given = emulated::exchange(value);
  auto result = emulated::of_lane<unsigned>(given, 0);
  for (unsigned lane = 1; lane < 32; ++lane) {
    result = f(result, emulated::of_lane<unsigned>(given, lane));
  }
  return result;
}
inline unsigned __reduce_add_sync(unsigned, unsigned value) {
  return reduced(value, [](unsigned a, unsigned b) { return a + b; });
}
inline unsigned __reduce_max_sync(unsigned, unsigned value) {
  return reduced(value, [](unsigned a, unsigned b) { return max(a, b); });
}
inline unsigned __reduce_min_sync(unsigned, unsigned value) {
  return reduced(value, [](unsigned a, unsigned b) { return min(a, b); });
}

template <typename T>
T atomicOr(T* place, T bits) {
  const T before = *place;
  *place = before | bits;
  return before;
}
template <typename T, typename U>
T atomicAdd(T* place, U more) {
  const T before = *place;
  *place = before + static_cast<T>(more);
  return before;
}
inline void atomicMin(unsigned* place, unsigned x) { *place = min(*place, x); }
inline void atomicMax(unsigned* place, unsigned x) { *place = max(*place, x); }

inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
  return by == 0 ? high : high << by | low >> (32 - by);
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(unsigned x) { return __builtin_ffs(static_cast<int>(x)); }
inline int __clz(unsigned x) { return x == 0 ? 32 : __builtin_clz(x); }
// The place of the n-th bit that is set, from 1, beginning at `base`.
inline unsigned __fns(unsigned mask, unsigned base, int n) {
  for (unsigned bit = base; bit < 32; ++bit) {
    if ((mask >> bit & 1) != 0 && --n == 0) return bit;
  }
  return 0xffffffff;
}
template <typename To, typename From>
To with_bits_of(From from) {
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}
inline float __uint_as_float(unsigned x) { return with_bits_of<float>(x); }
// What is no number has one bit pattern on a GPU, its sign clear.
inline float __fmaf_rn(float x, float y, float z) {
  const float sum = std::fma(x, y, z);
  return sum == sum ? sum : __uint_as_float(0x7fffffffu);
}
inline float __saturatef(float x) { return !(x > 0) ? 0 : x > 1 ? 1 : x; }
inline unsigned __float_as_uint(float x) { return with_bits_of<unsigned>(x); }
inline float __log2f(float x) { return std::log2(x); }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline unsigned __float2uint_rz(float x) {
  return !(x > 0) ? 0 : x >= 4294967296.0f ? 0xffffffff : static_cast<unsigned>(x);
}

// From here on code is a Hopper GPU's.
#define __CUDA_ARCH__ 900
