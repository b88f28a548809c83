// The epilogue of a fused indexer's scoring kernel: which scores can still be among the k best?
//
// The maxima of each warp's first keys are published to all blocks. One warp of each block waits
// for those of its row and takes the value of such a rank for the floor that the k-th score almost
// surely lies above it; meanwhile the others score on and keep what they have. From then on a
// score at or below the floor is dropped by one comparison. A wrong guess costs time, never
// exactness: the selecting kernel counts what passed.
#pragma once

#include <cstdint>

#include "cuda/indexer_exchange.cuh"
#include "key.h"

namespace tl_topk::indexer {

constexpr uint32_t kLanes = 32;
constexpr uint32_t kEveryLane = 0xffffffffu;
constexpr uint32_t kKeysPerWarp = 16;  // of a tile
constexpr uint32_t kMaxQueries = 4;
constexpr uint32_t kMaxWarps = 16;
constexpr uint32_t kSampledTiles = 2;  // of each block, at the most

// A block's, in shared memory; zero at first.
struct FilterState {
  uint32_t ready;  // 1 + the visit whose floors are known
  uint32_t done;   // visits that have ended
  uint32_t counts[kMaxQueries];
  float floors[kMaxQueries];
  float ceilings[kMaxQueries];
  uint32_t maxima[kMaxQueries][kMaxWarps];
};

// What the program sets aside, in words.
static_assert(sizeof(FilterState) <= 80 * 4);

// Where a block is: which part of which sequence's tiles it does.
struct Visit {
  uint32_t block;
  uint32_t sequence;
  uint32_t number;  // of this block's sequences, from 0
  uint32_t tiles;   // that it does here
};

__device__ __forceinline__ uint32_t load_volatile(const uint32_t* p) {
  return *static_cast<const volatile uint32_t*>(p);
}

// Tiles before `block`: all blocks have an equal share, the first few one more.
__device__ __forceinline__ uint32_t tiles_before(uint32_t block, uint32_t total, uint32_t blocks) {
  const uint32_t share = total / blocks;
  return block * share + min(block, total % blocks);
}

__device__ __forceinline__ uint32_t block_of_tile(uint32_t tile, uint32_t total, uint32_t blocks) {
  const uint32_t share = total / blocks;
  const uint32_t longer = total % blocks;  // blocks with one tile more
  if (tile < longer * (share + 1)) return tile / (share + 1);
  return longer + (tile - longer * (share + 1)) / share;
}

// The scores of this warp's keys in one kept tile, one a lane; the upper half has none.
template <uint32_t kTile>
__device__ __forceinline__ void pass_tile(const float* tile, uint32_t first_position,
                                          uint32_t query, FilterState& state, Survivor* segment,
                                          uint32_t capacity) {
  const uint32_t lane = threadIdx.x % kLanes;
  const uint32_t at = threadIdx.x / kLanes * kKeysPerWarp + lane;
  const float score = lane < kKeysPerWarp ? tile[at] : -INFINITY;
  const bool passes = score > state.floors[query];
  const uint32_t votes = __ballot_sync(kEveryLane, passes);
  if (votes == 0) return;
  uint32_t base = 0;
  if (lane == 0) base = atomicAdd(&state.counts[query], __popc(votes));
  base = __shfl_sync(kEveryLane, base, 0);
  const uint32_t place = base + __popc(votes & ((1u << lane) - 1));
  if (passes && place < capacity) segment[place] = {score, first_position + at};
}

// Called by every warp once it has put its scores of tile number `tile` of the row, the visit's
// `turn`-th, into slot min(turn, kKept) of `kept` (slots, queries, kTile).
template <uint32_t kTile, uint32_t kQueries, uint32_t kKept>
__device__ __forceinline__ void filter_tile(const float* kept, FilterState& state,
                                            const Exchange& x, const Visit& visit, uint32_t nonce,
                                            uint32_t turn, uint32_t tile) {
  static_assert(kKept >= kSampledTiles && kQueries <= kMaxQueries);
  const uint32_t lane = threadIdx.x % kLanes;
  const uint32_t warp = threadIdx.x / kLanes;
  __syncwarp();
  if (turn < kSampledTiles) {
    const bool last = turn + 1 == min(kSampledTiles, visit.tiles);
#pragma unroll
    for (uint32_t q = 0; q < kQueries; ++q) {
      const float* scores = kept + (turn * kQueries + q) * kTile + warp * kKeysPerWarp;
      const float score = lane < kKeysPerWarp ? scores[lane] : -INFINITY;
      uint32_t key = __reduce_max_sync(kEveryLane, order_key(__float_as_uint(score)));
      if (lane == 0) {
        if (turn > 0) key = max(key, state.maxima[q][warp]);
        state.maxima[q][warp] = key;
        if (last) {
          uint64_t* const place = x.published(x.segment(visit.block, visit.sequence, q)) + warp;
          *static_cast<volatile uint64_t*>(place) = static_cast<uint64_t>(nonce) << 32 | key;
        }
      }
    }
  }
  const bool ends = turn + 1 == visit.tiles;
  if (turn + 1 < kKept && !ends) return;  // the floors may not be known yet, and there is room
  uint32_t from = turn;
  if (turn < kKept) {
    while (load_volatile(&state.ready) != visit.number + 1) __nanosleep(20);
    __threadfence_block();
    from = 0;
  }
  for (uint32_t t = from; t <= turn; ++t) {
#pragma unroll
    for (uint32_t q = 0; q < kQueries; ++q) {
      pass_tile<kTile>(kept + (min(t, kKept) * kQueries + q) * kTile, (tile - turn + t) * kTile, q,
                       state, x.survivors(x.segment(visit.block, visit.sequence, q)), x.capacity);
    }
  }
}

// Called by all `threads` that filter when they are done with a sequence: the heads of the block's
// segments. `starts` and `ends`: is the row's first tile, or its last, among this block's?
template <uint32_t kQueries>
__device__ __forceinline__ void finish_visit(FilterState& state, const Exchange& x,
                                             const Visit& visit, uint32_t threads, bool starts,
                                             bool ends) {
  asm volatile("bar.sync 14, %0;" ::"r"(threads) : "memory");
  if (threadIdx.x < kQueries) {
    const uint32_t q = threadIdx.x;
    *x.head(x.segment(visit.block, visit.sequence, q)) = {state.counts[q], state.floors[q],
                                                          state.ceilings[q], 0};
    state.counts[q] = 0;
    BlockSpan* const span = x.span(visit.sequence * kQueries + q);
    if (starts) span->first = visit.block;
    if (ends) span->last = visit.block;
  }
  asm volatile("bar.sync 14, %0;" ::"r"(threads) : "memory");
  if (threadIdx.x == 0) *static_cast<volatile uint32_t*>(&state.done) = visit.number + 1;
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

// Called by one warp once for each visit: waits for the row's maxima and finds the floors.
template <uint32_t kTile, uint32_t kQueries>
__device__ __forceinline__ void find_floors(FilterState& state, const Exchange& x,
                                            const Visit& visit, uint32_t nonce, uint32_t before,
                                            uint32_t row_tiles, uint32_t total, uint32_t length,
                                            uint32_t k) {
  constexpr uint32_t kWarpsPerTile = kTile / kKeysPerWarp;
  constexpr uint32_t kPairs = kWarpsPerTile / 2;     // maxima are read two at a time, as one group
  constexpr uint32_t kHeld = kPairs == 8 ? 36 : 18;  // 144 blocks; more are not asked
  constexpr uint32_t kPatience = 64;  // looks, a microsecond each: not all blocks may be running
  const uint32_t lane = threadIdx.x % kLanes;
  uint32_t first = block_of_tile(before, total, x.blocks);
  const uint32_t last = block_of_tile(before + row_tiles - 1, total, x.blocks);
  // A block that comes to this row late is not waited for.
  if (first < last && tiles_before(first, total, x.blocks) < before) ++first;
  const uint32_t groups = min((last - first + 1) * kPairs, kHeld * kLanes);
  const uint32_t most_tiles = (total + x.blocks - 1) / x.blocks;
  const uint32_t group_keys = 2 * kKeysPerWarp * min(kSampledTiles, most_tiles);
  const Ranks ranks = plan_ranks(k, length, groups, group_keys);
#pragma unroll
  for (uint32_t q = 0; q < kQueries; ++q) {
    uint32_t keys[kHeld];
    bool complete = false;
    for (uint32_t look = 0; look < kPatience && !complete && ranks.floor != 0; ++look) {
      bool all_here = true;
      // In batches whose loads are all under way before the first is looked at: registers are few.
      constexpr uint32_t kBatch = 6;
      static_assert(kHeld % kBatch == 0);
#pragma unroll
      for (uint32_t batch = 0; batch < kHeld; batch += kBatch) {
        uint64_t pairs[kBatch][2];
#pragma unroll
        for (uint32_t u = 0; u < kBatch; ++u) {
          const uint32_t group = min((batch + u) * kLanes + lane, groups - 1);
          const uint64_t* pair = x.published(x.segment(first + group / kPairs, visit.sequence, q)) +
                                 group % kPairs * 2;
          asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];"
                       : "=l"(pairs[u][0]), "=l"(pairs[u][1])
                       : "l"(pair));
        }
#pragma unroll
        for (uint32_t u = 0; u < kBatch; ++u) {
          const uint64_t a = pairs[u][0];
          const uint64_t b = pairs[u][1];
          all_here &= a >> 32 == nonce && b >> 32 == nonce;
          const bool counts = (batch + u) * kLanes + lane < groups;
          keys[batch + u] = counts ? max(static_cast<uint32_t>(a), static_cast<uint32_t>(b)) : 0;
        }
      }
      complete = __all_sync(kEveryLane, all_here);
    }
    uint32_t floor = 0;  // the key of NaN: bits_of_key makes it one, see below
    uint32_t ceiling = 0;
    if (complete) {
      uint32_t lowest = 0xffffffffu;
      uint32_t highest = 0;
#pragma unroll
      for (uint32_t u = 0; u < kHeld; ++u) {
        if (u * kLanes + lane < groups) lowest = min(lowest, keys[u]);
        highest = max(highest, keys[u]);
      }
      lowest = __reduce_min_sync(kEveryLane, lowest);
      highest = __reduce_max_sync(kEveryLane, highest);
      // More than `floor` maxima lie above the lower bound, fewer above the upper one.
      uint32_t below = lowest > 0 ? lowest - 1 : 0;
      uint32_t above = highest;
      ceiling = highest;
      while (above - below > 1) {
        const uint32_t middle = below + (above - below) / 2;
        uint32_t better = 0;
#pragma unroll
        for (uint32_t u = 0; u < kHeld; ++u) better += keys[u] > middle;
        better = __reduce_add_sync(kEveryLane, better);
        if (better < ranks.ceiling) ceiling = middle;
        if (better < ranks.floor) {
          above = middle;
        } else {
          below = middle;
          if (better <= ranks.floor + ranks.floor / 16) break;
        }
      }
      floor = below;
    }
    // The floors of the visit before may still be needed.
    while (load_volatile(&state.done) != visit.number) __nanosleep(100);
    if (lane == 0) {
      constexpr uint32_t kMinusInfKey = 0x007fffffu;
      state.floors[q] = floor <= kMinusInfKey ? -INFINITY : __uint_as_float(bits_of_key(floor));
      state.ceilings[q] =
          ceiling <= kMinusInfKey ? -INFINITY : __uint_as_float(bits_of_key(ceiling));
    }
  }
  __threadfence_block();
  if (lane == 0) *static_cast<volatile uint32_t*>(&state.ready) = visit.number + 1;
}

// What TileLang programs call: numbers and pointers only.

__device__ __forceinline__ void allow_next_kernel() {
  asm volatile("griddepcontrol.launch_dependents;");
}

template <uint32_t kTile, uint32_t kQueries>
__device__ __forceinline__ Exchange exchange_at(void* memory, int blocks, int sequences,
                                                int capacity) {
  return {static_cast<unsigned char*>(memory), static_cast<uint32_t>(blocks),
          static_cast<uint32_t>(sequences),    kQueries,
          static_cast<uint32_t>(capacity),     kTile / kKeysPerWarp};
}

template <uint32_t kTile, uint32_t kQueries, uint32_t kKept>
__device__ __forceinline__ void sift(const void* kept, void* state, void* exchange, int blocks,
                                     int sequences, int capacity, int nonce, int block,
                                     int sequence, int number, int tiles, int turn, int tile) {
  const auto u = [](int x) { return static_cast<uint32_t>(x); };
  const auto x = exchange_at<kTile, kQueries>(exchange, blocks, sequences, capacity);
  filter_tile<kTile, kQueries, kKept>(
      static_cast<const float*>(kept), *static_cast<FilterState*>(state), x,
      {u(block), u(sequence), u(number), u(tiles)}, u(nonce), u(turn), u(tile));
}

template <uint32_t kTile, uint32_t kQueries>
__device__ __forceinline__ void conclude(void* state, void* exchange, int blocks, int sequences,
                                         int capacity, int block, int sequence, int number,
                                         int tiles, bool starts, bool ends) {
  const auto u = [](int x) { return static_cast<uint32_t>(x); };
  const auto x = exchange_at<kTile, kQueries>(exchange, blocks, sequences, capacity);
  constexpr uint32_t kThreads = kTile / kKeysPerWarp * kLanes;
  finish_visit<kQueries>(*static_cast<FilterState*>(state), x,
                         {u(block), u(sequence), u(number), u(tiles)}, kThreads, starts, ends);
}

template <uint32_t kTile, uint32_t kQueries>
__device__ __forceinline__ void guess(void* state, void* exchange, int blocks, int sequences,
                                      int capacity, int nonce, int block, int sequence, int number,
                                      int before, int row_tiles, int total, int length, int k) {
  const auto u = [](int x) { return static_cast<uint32_t>(x); };
  const auto x = exchange_at<kTile, kQueries>(exchange, blocks, sequences, capacity);
  find_floors<kTile, kQueries>(*static_cast<FilterState*>(state), x,
                               {u(block), u(sequence), u(number), 0}, u(nonce), u(before),
                               u(row_tiles), u(total), u(length), u(k));
}

}  // namespace tl_topk::indexer
