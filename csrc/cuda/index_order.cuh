// Winners in order of index, by all blocks of a row together.
//
// The row is cut into as many parts as it has blocks. A block has a bit for every element of its
// part, which whoever finds a winner there sets; then it writes them in their order, after those of
// all parts before. On the usual path no block waits for another but for what it is sent: bits,
// counts and the cut's bin, which every block ranks for itself.
#pragma once

#include <cstdint>

#include "cuda/output.cuh"
#include "cuda/phase_clock.cuh"
#include "cuda/prefix_sum.cuh"
#include "cuda/select.cuh"
#include "cuda/shared_state.cuh"
#include "cuda/survivors.cuh"
#include "cuda/team.cuh"
#include "key.h"

namespace tl_topk {

// What bits and counts are added to. The team's opening must follow.
template <Dtype D, bool kMapped, Scope S>
__device__ __forceinline__ void open_marks(const Output<D, kMapped>& out, const Team<S>& team,
                                           void* sort_buffer, SharedState& state) {
  if (!ptx::unlikely(out.marks())) return;
  for (uint32_t i = threadIdx.x; i < 1u << out.part_log2 >> 5; i += kThreads) {
    static_cast<uint32_t*>(sort_buffer)[i] = 0;
  }
  if (threadIdx.x < kMaxClusterBlocks) state.marks.in_part[threadIdx.x] = 0;
  if (threadIdx.x == 0) state.marks.before = 0;
  if (threadIdx.x < kWarp && ptx::elect()) team.open_marks();
}

// Calls f(word, at) for this thread's share of the bits of a part, at most 32 at a time; `at` is
// the lowest one's place. However few they are, all threads have some, for each writes its own one
// by one.
template <typename F>
__device__ __forceinline__ void for_own_bits(const uint32_t* bits, uint32_t part_log2, F&& f) {
  const uint32_t share_log2 = max(part_log2, kThreadsLog2) - kThreadsLog2;
  const uint32_t begin = threadIdx.x << share_log2;
  const uint32_t end = min(begin + (1u << share_log2), 1u << part_log2);
  const uint32_t mask = ~0u >> (kWarp - min(1u << share_log2, kWarp));
#pragma unroll 1
  for (uint32_t at = begin; at < end; at += 32) f(bits[at / 32] >> at % 32 & mask, at);
}

// How many winners lie in this block's part: before this thread's, and altogether. Ends in a
// barrier but for the last reads.
__device__ __forceinline__ uint32_t count_marks(const uint32_t* bits, uint32_t part_log2,
                                                uint32_t* warp_sums, uint32_t* of_block) {
  uint32_t count = 0;
  for_own_bits(bits, part_log2, [&](uint32_t word, uint32_t) { count += __popc(word); });
  return block_exclusive_sum(count, warp_sums, of_block);
}
template <Dtype D, bool kMapped, Scope S>
__device__ __forceinline__ void write_marks(const Output<D, kMapped>& out, const Team<S>& team,
                                            const uint32_t* bits, uint32_t slot) {
  const uint32_t first = team.rank() << out.part_log2;
  for_own_bits(bits, out.part_log2, [&](uint32_t word, uint32_t at) {
#pragma unroll 1
    for (; word != 0; word &= word - 1) out.write(slot++, first + at + __ffs(word) - 1);
  });
}

// Off the usual path, where bits have been set by Team::mark_element.
template <Dtype D, bool kMapped, Scope S>
__device__ __noinline__ void write_marked(const Output<D, kMapped> out, const Team<S> team,
                                          const uint32_t* bits, OrderScratch& scratch) {
  team.meet();
  uint32_t of_block;
  const uint32_t before = count_marks(bits, out.part_log2, scratch.warp_sums, &of_block);
  write_marks(out, team, bits, team.sum_before(of_block) + before);
}

// Writes all winners; the leader has been sent the cut's bin already. Called by all blocks.
template <Dtype D, bool kMapped, Scope S>
__device__ __noinline__ void write_by_index(const Entry* list, const TableCut cut,
                                            const Places before, const Output<D, kMapped> out,
                                            const Team<S> team, uint32_t* bits,
                                            SharedState& state) {
  const CountTable& own = state.tables[team.rank()];
  const uint32_t above = own.count_above(cut.bin);
  if constexpr (S != Scope::kBlock) {
    if (!team.leads() && threadIdx.x == 0) team.expect_residual(cut.inside * sizeof(uint64_t));
    const uint32_t inside = own.count(cut.bin) - above;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < inside << team.size_log2(); i += kThreads) {
      const uint32_t to = i & ((1u << team.size_log2()) - 1);
      const uint32_t entry = i >> team.size_log2();
      if (to == 0) continue;
      team.send_residual(&state.residual[before.inside() + entry], list[above + entry].rank(), to);
    }
  }
  const uint32_t in_part = (1u << out.part_log2) - 1;
#pragma unroll 1
  for (uint32_t i = threadIdx.x; i < above; i += kThreads) {
    const uint32_t index = list[i].index;
    const uint32_t part = index >> out.part_log2;
    team.send_mark(part, index & in_part);
    if constexpr (S != Scope::kBlock) ptx::shared_increment(&state.marks.in_part[part], true);
  }
  if constexpr (S != Scope::kBlock) {
    __syncthreads();
    // The last warp, which is the last to have any of the cut's bin to rank.
    if (threadIdx.x / kWarp == kWarps - 1) team.announce_marks();
  }
  mark(kPhaseEmit);

  team.await_residual();
  rank_residual(state.residual, cut, out.k, [&](uint32_t, uint64_t rank, uint32_t) {
    const uint32_t index = index_of_rank(rank);
    const uint32_t part = index >> out.part_log2;
    if (part == team.rank()) atomicOr(bits + (index & in_part) / 32, 1u << index % 32);
    if (part < team.rank()) atomicAdd(&state.marks.before, 1u);
  });
  team.await_marks();
  __syncthreads();
  const uint32_t first = state.marks.before;
  uint32_t of_block;
  const uint32_t earlier = count_marks(bits, out.part_log2, state.order.warp_sums, &of_block);
  write_marks(out, team, bits, first + earlier);
}

}  // namespace tl_topk
