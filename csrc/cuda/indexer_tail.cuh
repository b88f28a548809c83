// The end of a fused indexer's program: the block that has a row's last tile selects
// (indexer_select.cuh) from what all blocks let through.
//
// It waits for blocks of lower numbers only, which the GPU has started before it: no deadlock, even
// where not all blocks run at the same time.
#pragma once

#include <cstdint>

#include "cuda/indexer_filter.cuh"
#include "cuda/indexer_select.cuh"

namespace tl_topk::indexer {

// What a rehearsal needs in shared memory: a state with next to no list, and an exchange.
constexpr uint32_t kRehearsalWords = kTailWords + 32;

// Called by one warp of a block that will select, while the first keys are on their way: goes once
// through the selection, of one survivor of one segment. When it is in earnest, the instructions
// lie in the multiprocessor's cache.
template <uint32_t kCapacity>
__device__ __forceinline__ void rehearse(void* memory) {
  auto& state = *static_cast<TailState<kCapacity>*>(memory);
  unsigned char* const parts = reinterpret_cast<unsigned char*>(state.list + 1) + 8;
  const Exchange exchange{parts, 0, 1, 1, 1, 4};
  if (threadIdx.x % kLanes == 0) {
    *exchange.head(0) = {tag_of(1), 1, order_key(__float_as_uint(1.0f))};
    *exchange.survivors(0) = {2.0f, 0};
  }
  __syncwarp();
  const TailParams params{nullptr,
                          reinterpret_cast<int32_t*>(parts + 48),
                          nullptr,
                          nullptr,
                          exchange,
                          kPageKeys,
                          0,
                          1,
                          Result::kPositions};
  if (threadIdx.x % kLanes == 0) Tail<kCapacity>::prepare(state, params, 0, 2, 3.0f);
  Tail<kCapacity>::run(static_cast<uint32_t>(__cvta_generic_to_shared(memory)), kRehearsalBarrier,
                       kLanes, threadIdx.x % kLanes, 0, 0, 1);
}

// Called by all that multiply when they are done with a sequence: writes the heads of the block's
// segments and, where the row's last tile is among this block's, selects.
template <uint32_t kTile, uint32_t kQueries, uint32_t kTeams, uint32_t kCapacity, uint32_t kRatio,
          bool kLensPerQuery>
__device__ __forceinline__ void finish_visit(FilterState& state, void* tails, const TailParams& p,
                                             const Visit& visit, uint32_t nonce, bool ends,
                                             uint32_t before, uint32_t total, const int* lens) {
  constexpr uint32_t kThreads = kTile / kKeysPerWarp * kLanes;
  constexpr uint32_t kTeamThreads = kThreads / kTeams;
  const Exchange& x = p.exchange;
  mark(kMomentFloor);
  const uint32_t team = threadIdx.x / kTeamThreads;
  auto& tail_state = static_cast<TailState<kCapacity>*>(tails)[team];
  const auto prepare = [&](uint32_t q) {
    if (threadIdx.x % kTeamThreads != 0) return;
    const int length = row_length<kQueries, kRatio, kLensPerQuery>(
        lens, static_cast<int>(visit.sequence), static_cast<int>(q),
        static_cast<int>(p.width / kPageKeys));
    Tail<kCapacity>::prepare(tail_state, p, visit.sequence * kQueries + q,
                             static_cast<uint32_t>(length), state.ceilings[q]);
  };
  if (ends) prepare(team);
  named_sync(kConsumersBarrier, kThreads);  // all survivors and scores are written
  if (threadIdx.x < kQueries) {
    const uint32_t q = threadIdx.x;
    SegmentHead* const head = x.head(x.segment(visit.block, visit.sequence, q));
    const uint64_t content =
        static_cast<uint64_t>(order_key_of_number(__float_as_uint(state.floors[q]))) << 32 |
        state.counts[q];
    asm volatile(
        "fence.acq_rel.gpu;\n"
        "st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};" ::"l"(head),
        "l"(tag_of(nonce)), "l"(content)
        : "memory");
    state.counts[q] = 0;
  }
  mark(kMomentPassed);
  if (ends) {
    const uint32_t first = block_of_tile(before, total, x.blocks);
#pragma unroll 1
    for (uint32_t q = team; q < kQueries; q += kTeams) {
      if (q != team) prepare(q);
      Tail<kCapacity>::run(static_cast<uint32_t>(__cvta_generic_to_shared(&tail_state)),
                           kTeamBarrier + team, kTeamThreads, threadIdx.x % kTeamThreads, first,
                           visit.block, nonce);
      mark(kMomentEnd);
    }
  }
  named_sync(kConsumersBarrier, kThreads);  // counters and tails may be used again
  if (threadIdx.x == 0) store_volatile(&state.done, visit.number + 1);
}

// What TileLang programs call: numbers and pointers only.

// Called by `threads` threads of every block: the results of sequences of which nothing is seen.
template <int kQueries, int kRatio, bool kLensPerQuery>
__device__ __forceinline__ void fill_empty(const int* lens, int sequences, int table_width,
                                           int block, int blocks, int threads, int* indices,
                                           int k) {
#pragma unroll 1
  for (int s = block; s < sequences; s += blocks) {
    if (extent_on_pages<kQueries, kRatio, kLensPerQuery>(lens, s, table_width).keys > 0) continue;
    int* const row = indices + static_cast<int64_t>(s) * kQueries * k;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < kQueries * k; i += threads) row[i] = -1;
  }
}

template <uint32_t kTile, uint32_t kQueries, uint32_t kTeams, uint32_t kCapacity, uint32_t kRatio,
          bool kLensPerQuery>
__device__ __forceinline__ void conclude(void* state, void* tails, void* exchange, int blocks,
                                         int sequences, int capacity, int nonce, int block,
                                         int sequence, int number, int tiles, int total, int before,
                                         bool ends, const int* lens, const float* scores,
                                         int* indices, const int* table, const int* offsets,
                                         int width, int pages, int k, int result) {
  const auto u = [](int x) { return static_cast<uint32_t>(x); };
  const TailParams params{scores,
                          indices,
                          table,
                          offsets,
                          exchange_at<kTile, kQueries>(exchange, blocks, sequences, capacity),
                          u(width),
                          u(pages),
                          u(k),
                          static_cast<Result>(result)};
  finish_visit<kTile, kQueries, kTeams, kCapacity, kRatio, kLensPerQuery>(
      *static_cast<FilterState*>(state), tails, params,
      {u(block), u(sequence), u(number), u(tiles), 0}, u(nonce), ends, u(before), u(total), lens);
}

}  // namespace tl_topk::indexer
