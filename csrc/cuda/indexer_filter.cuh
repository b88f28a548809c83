// The epilogue of a fused indexer's program: which scores can still be among the k best?
//
// The maxima of each warp's first keys are published to all blocks. For each query one warp of each
// block waits for those of its row and takes the value of such a rank for the floor that the k-th
// score almost surely lies above it; meanwhile the others score on and keep what they have. From
// then on a score at or below the floor is dropped by one comparison. A wrong guess costs time,
// never exactness: what selects (indexer_tail.cuh) counts what passed.
#pragma once

#include <cstdint>

#include "cuda/indexer_clock.cuh"
#include "cuda/indexer_exchange.cuh"
#include "cuda/indexer_scores.cuh"
#include "key.h"

namespace tl_topk::indexer {

constexpr uint32_t kKeysPerWarp = 16;  // of a tile
constexpr uint32_t kMaxQueries = 4;
constexpr uint32_t kMaxWarps = 16;
constexpr uint32_t kMinusInfKey = 0x007fffffu;

// A block's, in shared memory; zero at first.
struct FilterState {
  uint32_t ready[kMaxQueries];  // 1 + the visit whose floor is known
  uint32_t done;                // visits that have ended
  uint32_t counts[kMaxQueries];
  float floors[kMaxQueries];
  float ceilings[kMaxQueries];      // guesses: the k-th score is not above them
  Survivor* segments[kMaxQueries];  // the visit's, set with the floors
  uint32_t maxima[kMaxQueries][kMaxWarps];
};

// What the program sets aside, in words.
static_assert(sizeof(FilterState) <= 112 * 4);

__device__ __forceinline__ uint32_t load_volatile(const uint32_t* p) {
  return *static_cast<const volatile uint32_t*>(p);
}
__device__ __forceinline__ void store_volatile(uint32_t* p, uint32_t x) {
  *static_cast<volatile uint32_t*>(p) = x;
}

// How many of a block's tiles count for the floor. The more, the nearer it lies to the k-th score;
// and the later it is known.
__device__ __forceinline__ uint32_t sampled_tiles(uint32_t most_tiles) {
  return most_tiles >= 24 ? 4 : most_tiles >= 8 ? 2 : 1;
}
constexpr uint32_t kMostSampled = 4;

// Where a block is: which part of which sequence's tiles it does.
struct Visit {
  uint32_t block;
  uint32_t sequence;
  uint32_t number;      // of this block's sequences, from 0
  uint32_t tiles;       // that it does here
  uint32_t most_tiles;  // that any block does altogether
};

// What a thread holds of a tile: sums[v] as `weigh` deals them.
template <uint32_t kQueries>
struct Dealt {
  static constexpr uint32_t kCount = (2 * kQueries + 3) / 4;

  static __device__ __forceinline__ uint32_t number(uint32_t v) { return 4 * v + threadIdx.x % 4; }
  static __device__ __forceinline__ bool valid(uint32_t v) { return number(v) < 2 * kQueries; }
  static __device__ __forceinline__ uint32_t query(uint32_t v) { return number(v) % kQueries; }
  // The key's place in the tile.
  static __device__ __forceinline__ uint32_t place(uint32_t v) {
    return threadIdx.x / kLanes * kKeysPerWarp + threadIdx.x % kLanes / 4 +
           number(v) / kQueries * 8;
  }
};

template <uint32_t kQueries>
__device__ __forceinline__ void publish_maxima(const float* sums, FilterState& state,
                                               const Exchange& x, const Visit& visit,
                                               uint32_t nonce, uint32_t turn) {
  using Mine = Dealt<kQueries>;
  const uint32_t sampled = min(sampled_tiles(visit.most_tiles), visit.tiles);
  if (turn >= sampled) return;
  const uint32_t warp = threadIdx.x / kLanes;
#pragma unroll
  for (uint32_t q = 0; q < kQueries; ++q) {
    uint32_t key = 0;
#pragma unroll
    for (uint32_t v = 0; v < Mine::kCount; ++v) {
      if (Mine::valid(v) && Mine::query(v) == q) {
        key = max(key, order_key(__float_as_uint(sums[v])));
      }
    }
    key = __reduce_max_sync(kEveryLane, key);
    if (threadIdx.x % kLanes == 0) {
      if (turn > 0) key = max(key, state.maxima[q][warp]);
      state.maxima[q][warp] = key;
      if (turn + 1 == sampled) {
        store_volatile(x.published(x.segment(visit.block, visit.sequence, q)) + warp,
                       marked(key, nonce));
      }
    }
  }
}

// Called by all that multiply once they have their scores of the visit's `turn`-th tile, which is
// the row's `tile`-th. `kept` (kKept, values a thread, threads) holds what is not yet filtered,
// `memo` the floors from when they are known on.
template <uint32_t kTile, uint32_t kQueries, uint32_t kKept>
__device__ __forceinline__ void filter_tile(const float* sums, float* kept, float* memo,
                                            FilterState& state, const Exchange& x,
                                            const Visit& visit, uint32_t nonce, uint32_t turn,
                                            uint32_t tile) {
  using Mine = Dealt<kQueries>;
  constexpr uint32_t kThreads = kTile / kKeysPerWarp * kLanes;
  static_assert(kKept > kMostSampled && kThreads / kLanes <= kMaxWarps);
  if (turn == 0) mark(kMomentFirst);
  mark(kMomentScored);
  publish_maxima<kQueries>(sums, state, x, visit, nonce, turn);

  const auto offer = [&](uint32_t v, float score, uint32_t of_tile) {
    if (!Mine::valid(v) || !(score > memo[v])) return;
    const uint32_t q = Mine::query(v);
    const uint32_t place = atomicAdd(&state.counts[q], 1u);
    if (place < x.capacity) {
      state.segments[q][place] = {score, of_tile * kTile + Mine::place(v)};
    }
  };
  // memo[kCount]: are the floors known, and is nothing kept any more?
  if (turn > 0 && memo[Mine::kCount] != 0.0f) {
#pragma unroll
    for (uint32_t v = 0; v < Mine::kCount; ++v) offer(v, sums[v], tile);
    return;
  }
  const bool must = turn + 1 == visit.tiles || turn + 1 == kKept;
  bool known;
  do {
    known = true;
#pragma unroll
    for (uint32_t q = 0; q < kQueries; ++q) {
      known &= load_volatile(&state.ready[q]) == visit.number + 1;
    }
  } while (must && !known);
  known = __all_sync(kEveryLane, known);
  memo[Mine::kCount] = known ? 1.0f : 0.0f;
  float* const slots = kept + threadIdx.x;
  if (!known) {
#pragma unroll
    for (uint32_t v = 0; v < Mine::kCount; ++v) {
      slots[(turn * Mine::kCount + v) * kThreads] = sums[v];
    }
    return;
  }
  __threadfence_block();
#pragma unroll
  for (uint32_t v = 0; v < Mine::kCount; ++v) {
    memo[v] = *static_cast<const volatile float*>(&state.floors[Mine::query(v)]);
#pragma unroll 1
    for (uint32_t t = 0; t < turn; ++t) {
      offer(v, slots[(t * Mine::kCount + v) * kThreads], tile - turn + t);
    }
    offer(v, sums[v], tile);
  }
}

// Of how many group maxima should the floor be the smallest? 0: there is no floor to be had.
struct Ranks {
  uint32_t floor;
  uint32_t ceiling;
};
__device__ __forceinline__ Ranks plan_ranks(uint32_t k, uint32_t length, uint32_t groups,
                                            uint32_t group_keys) {
  // Winners cluster in real rows, so that fewer groups hold one than chance would have it, and
  // their number scatters more: hence more deviations than for single scores.
  constexpr float kDeviations = 6.0f;
  const float m = static_cast<float>(groups);
  const float share = static_cast<float>(k) / static_cast<float>(length);
  if (share >= 1.0f) return {0, 1};
  const float odds = 1.0f - exp2f(static_cast<float>(group_keys) * __log2f(1.0f - share));
  const float expected = m * odds;
  const float margin = kDeviations * __fsqrt_rn(expected * (1.0f - odds)) + 2.0f;
  const float low = ceilf(expected + margin);
  const float high = floorf(expected - margin);
  return {low < m ? static_cast<uint32_t>(low) : 0, high > 1.0f ? static_cast<uint32_t>(high) : 1};
}

// Called by one warp for query `q` once for each visit: waits for the row's maxima and finds the
// floor. The row's tiles follow `before` others of `total`.
template <uint32_t kTile, uint32_t kQueries>
__device__ __forceinline__ void find_floor(FilterState& state, const Exchange& x,
                                           const Visit& visit, uint32_t q, uint32_t nonce,
                                           uint32_t before, uint32_t row_tiles, uint32_t total,
                                           uint32_t length, uint32_t k) {
  constexpr uint32_t kWarpsPerTile = kTile / kKeysPerWarp;
  constexpr uint32_t kVectors = kWarpsPerTile / 4;  // of four maxima, of a block
  constexpr uint32_t kHeld = kVectors * 9 / 2;      // vectors a lane: 144 blocks
  constexpr uint32_t kMostSteps = 40;
  constexpr uint32_t kPatience = 200;  // looks, half a microsecond each: not all blocks may run
  static_assert(kVectors % 2 == 0);
  const uint32_t lane = threadIdx.x % kLanes;
  uint32_t first = block_of_tile(before, total, x.blocks);
  const uint32_t last = block_of_tile(before + row_tiles - 1, total, x.blocks);
  // A block that comes to this row late is not waited for.
  if (first < last && tiles_before(first, total, x.blocks) < before) ++first;
  const uint32_t vectors = min((last - first + 1) * kVectors, kHeld * kLanes);
  const uint32_t group_keys = 2 * kKeysPerWarp * sampled_tiles(visit.most_tiles);
  const Ranks ranks = plan_ranks(k, length, 2 * vectors, group_keys);

  uint32_t keys[kHeld][2];  // of two warps' maxima the larger
  bool complete = ranks.floor == 0;
  uint32_t floor = 0;
  uint32_t ceiling = 0;
#pragma unroll 1
  for (uint32_t look = 0; look < kPatience && !complete; ++look) {
    bool all_here = true;
    // In batches whose loads are all under way before the first is looked at: registers are few.
    constexpr uint32_t kBatch = 9;
    static_assert(kHeld % kBatch == 0);
#pragma unroll
    for (uint32_t batch = 0; batch < kHeld; batch += kBatch) {
      uint4 four[kBatch];
#pragma unroll
      for (uint32_t u = 0; u < kBatch; ++u) {
        const uint32_t at = min((batch + u) * kLanes + lane, vectors - 1);
        const uint32_t* from =
            x.published(x.segment(first + at / kVectors, visit.sequence, q)) + at % kVectors * 4;
        asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(four[u].x), "=r"(four[u].y), "=r"(four[u].z), "=r"(four[u].w)
                     : "l"(from));
      }
#pragma unroll
      for (uint32_t u = 0; u < kBatch; ++u) {
        const uint32_t differs = ((four[u].x ^ nonce) | (four[u].y ^ nonce) | (four[u].z ^ nonce) |
                                  (four[u].w ^ nonce)) &
                                 kMarkMask;
        all_here &= differs == 0;
        const bool counts = (batch + u) * kLanes + lane < vectors;
        keys[batch + u][0] = counts ? max(four[u].x, four[u].y) & ~kMarkMask : 0;
        keys[batch + u][1] = counts ? max(four[u].z, four[u].w) & ~kMarkMask : 0;
      }
    }
    complete = __all_sync(kEveryLane, all_here);
    // Searched every time, if not to the end, so that the instructions are at hand when it counts.
    const uint32_t most_steps = complete ? kMostSteps : 2;
    uint32_t lowest = 0xffffffffu;
    uint32_t highest = 0;
#pragma unroll
    for (uint32_t u = 0; u < kHeld; ++u) {
      highest = max(highest, max(keys[u][0], keys[u][1]));
      if (u * kLanes + lane < vectors) lowest = min(lowest, min(keys[u][0], keys[u][1]));
    }
    highest = __reduce_max_sync(kEveryLane, highest);
    lowest = __reduce_min_sync(kEveryLane, lowest);
    // More than `wanted` maxima lie above the lower bound, fewer above the upper one. The floor is
    // searched for first, then the ceiling, both by guessing that maxima lie evenly in between.
    uint32_t below = lowest > 0 ? lowest - 1 : 0;
    uint32_t above = highest;
    uint32_t above_below = 2 * vectors;  // maxima above the lower bound
    uint32_t above_above = 0;
    uint32_t wanted = ranks.floor;
    ceiling = highest | kMarkMask;
    floor = below;
#pragma unroll 1
    for (uint32_t step = 0; step < most_steps && above - below > kMarkMask; ++step) {
      const float excess = static_cast<float>(above_below) - static_cast<float>(wanted);
      const float part = __fdividef(excess, static_cast<float>(above_below - above_above));
      const auto width = static_cast<float>(above - below);
      // Every fourth step halves, wherever they lie.
      const float share = step % 4 == 3 ? 0.5f : fminf(fmaxf(part, 0.03f), 0.97f);
      const uint32_t middle = below + max(1u, static_cast<uint32_t>(width * share));
      uint32_t better[4] = {};
#pragma unroll
      for (uint32_t u = 0; u < kHeld; ++u) {
        better[u % 2 * 2] += keys[u][0] > middle;
        better[u % 2 * 2 + 1] += keys[u][1] > middle;
      }
      const uint32_t count =
          __reduce_add_sync(kEveryLane, better[0] + better[1] + better[2] + better[3]);
      if (count < ranks.ceiling) ceiling = min(ceiling, middle | kMarkMask);
      if (count < wanted) {
        above = middle;
        above_above = count;
      } else {
        below = middle;
        above_below = count;
      }
      if (wanted == ranks.floor) {
        if (count >= wanted) floor = middle;
        if (count < wanted || count > wanted + wanted / 16) continue;
        if (!complete || ranks.ceiling + 1 >= wanted) break;
        wanted = ranks.ceiling;
        above = highest;
        above_above = 0;
        step = max(step, kMostSteps - 4);
      } else if (count < wanted && count >= wanted / 2) {
        break;
      }
    }
  }
  if (!complete || ranks.floor == 0) floor = ceiling = 0;
  // The floor of the visit before may still be needed.
  while (load_volatile(&state.done) != visit.number) __nanosleep(100);
  if (lane == 0) {
    const auto value = [](uint32_t key) {
      return key <= kMinusInfKey ? -INFINITY : __uint_as_float(bits_of_key(key));
    };
    state.segments[q] = x.survivors(x.segment(visit.block, visit.sequence, q));
    state.floors[q] = value(floor);
    state.ceilings[q] = value(ceiling);
    __threadfence_block();
    store_volatile(&state.ready[q], visit.number + 1);
  }
}

// What TileLang programs call: numbers and pointers only.

template <uint32_t kTile, uint32_t kQueries>
__device__ __forceinline__ Exchange exchange_at(void* memory, int blocks, int sequences,
                                                int capacity) {
  return {static_cast<unsigned char*>(memory), static_cast<uint32_t>(blocks),
          static_cast<uint32_t>(sequences),    kQueries,
          static_cast<uint32_t>(capacity),     kTile / kKeysPerWarp};
}

template <uint32_t kTile, uint32_t kQueries, uint32_t kKept>
__device__ __forceinline__ void sift(const float* sums, float* kept, float* memo, void* state,
                                     void* exchange, int blocks, int sequences, int capacity,
                                     int nonce, int block, int sequence, int number, int tiles,
                                     int total, int turn, int tile) {
  const auto u = [](int x) { return static_cast<uint32_t>(x); };
  filter_tile<kTile, kQueries, kKept>(
      sums, kept, memo, *static_cast<FilterState*>(state),
      exchange_at<kTile, kQueries>(exchange, blocks, sequences, capacity),
      {u(block), u(sequence), u(number), u(tiles), (u(total) + u(blocks) - 1) / u(blocks)},
      u(nonce), u(turn), u(tile));
}

template <uint32_t kTile, uint32_t kQueries>
__device__ __forceinline__ void guess(void* state, void* exchange, int blocks, int sequences,
                                      int capacity, int nonce, int block, int sequence, int number,
                                      int query, int before, int row_tiles, int total, int length,
                                      int k) {
  const auto u = [](int x) { return static_cast<uint32_t>(x); };
  find_floor<kTile, kQueries>(
      *static_cast<FilterState*>(state),
      exchange_at<kTile, kQueries>(exchange, blocks, sequences, capacity),
      {u(block), u(sequence), u(number), 0, (u(total) + u(blocks) - 1) / u(blocks)}, u(query),
      u(nonce), u(before), u(row_tiles), u(total), u(length), u(k));
}

}  // namespace tl_topk::indexer
