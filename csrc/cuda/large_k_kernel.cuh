// The kernel for k beyond kMaxFastK: exact, of any size, and without a workspace, but not hurried.
//
// The threshold comes from radix digits alone; winners are written in index order, each block at
// the offset that the blocks before it leave; order "value" then sorts the result where it lies.
#pragma once

#include <cstdint>

#include "cuda/output.cuh"
#include "cuda/row_ranks.cuh"
#include "cuda/team.cuh"

namespace tl_topk {

// Winners of this block's stretch of the row, and where its output begins.
struct Stretch {
  uint32_t begin;
  uint32_t end;
};

template <Scope S>
__device__ __forceinline__ Stretch stretch_of(const Team<S>& team, uint32_t length) {
  const uint32_t share = (length + (1u << team.size_log2()) - 1) >> team.size_log2();
  const uint32_t begin = min(team.rank() * share, length);
  return {begin, min(begin + share, length)};
}

// Calls f(index, wins, place): `place` counts the winners of this block so far. Whole blocks run
// through it together.
template <Dtype D, typename F>
__device__ __forceinline__ void for_each_winner(const Row<D>& row, const Threshold& t,
                                                const Stretch& stretch, uint32_t* warp_counts,
                                                F&& f) {
  const uint32_t warp = threadIdx.x / kWarp;
  uint32_t before = 0;
  for (uint32_t first = stretch.begin; first < stretch.end; first += kThreads) {
    const uint32_t i = first + threadIdx.x;
    const bool wins = i < stretch.end && t.passes(rank_of(row, i));
    const uint32_t votes = __ballot_sync(kAllLanes, wins);
    if (threadIdx.x % kWarp == 0) warp_counts[warp] = __popc(votes);
    __syncthreads();
    uint32_t place = before + __popc(votes & ptx::lanes_below());
    for (uint32_t w = 0; w < kWarps; ++w) {
      if (w < warp) place += warp_counts[w];
      before += warp_counts[w];
    }
    f(i, wins, place);
    __syncthreads();
  }
  f(0, false, before);
}

// Sorts indices[0 .. count) best first, in global memory: a bitonic network whose first step of
// each run mirrors, so that all pairs point the same way and `count` need be no power of two.
template <Dtype D, Scope S>
__device__ void sort_in_place(const Row<D>& row, int32_t* indices, uint32_t count,
                              const Team<S>& team) {
  const uint32_t threads = kThreads << team.size_log2();
  const uint32_t thread = team.rank() * kThreads + threadIdx.x;
  for (uint64_t run = 2; run < 2 * static_cast<uint64_t>(count); run *= 2) {
    for (uint64_t stride = run / 2; stride > 0; stride /= 2) {
      const bool mirror = stride == run / 2;
      for (uint64_t pair = thread; pair < count; pair += threads) {
        const uint64_t a = pair / stride * 2 * stride + pair % stride;
        const uint64_t b = mirror ? a / run * run + (run - 1 - a % run) : a + stride;
        if (b >= count) continue;
        const int32_t x = indices[a];
        const int32_t y = indices[b];
        if (rank_of(row, x) < rank_of(row, y)) {
          indices[a] = y;
          indices[b] = x;
        }
      }
      team.meet();
    }
  }
}

template <Dtype D, Scope S, bool kMapped>
__device__ __forceinline__ void select_large_k(const Params<kMapped>& params) {
  extern __shared__ __align__(alignof(SharedState)) unsigned char shared_memory[];
  SharedState& state = *reinterpret_cast<SharedState*>(shared_memory);
  const Team<S> team(state, nullptr, params);
  ptx::wait_for_previous_kernel();
  const Row<D> row = find_row<D>(params, team.row());
  const auto out = make_output<kMapped, false>(params, team.row(), row, state.mapping);
  const RowMapping map = mapping_of(params, team.row());
  if (kMapped && threadIdx.x == 0) state.mapping = map;
  // The winners' indices, until the end; in a mapped launch perhaps in another output's memory.
  int32_t* const indices = !kMapped || out.indices != nullptr ? out.indices
                           : map.slots != nullptr             ? map.slots
                                                              : map.ragged;
  const uint32_t count = min(row.length, out.k);
  const uint32_t threads = kThreads << team.size_log2();
  const uint32_t thread = team.rank() * kThreads + threadIdx.x;

  if (row.length <= out.k) {
    for (uint32_t i = thread; i < count; i += threads) indices[i] = static_cast<int32_t>(i);
  } else {
    const RowRanks<D> ranks(row, team.rank(), team.size_log2());
    const Threshold t = narrow({0, 64, out.k, row.length}, row.length, out.k, out.k, state.radix,
                               ranks, [&](uint32_t* bins, uint32_t n) { team.sum(bins, n); });
    const Stretch stretch = stretch_of(team, row.length);
    uint32_t* const warp_counts = state.radix.bins;
    uint32_t mine = 0;
    for_each_winner(row, t, stretch, warp_counts,
                    [&](uint32_t, bool, uint32_t place) { mine = place; });
    const uint32_t offset = team.sum_before(mine);
    for_each_winner(row, t, stretch, warp_counts, [&](uint32_t i, bool wins, uint32_t place) {
      if (wins) indices[offset + place] = static_cast<int32_t>(i);
    });
  }
  team.meet();
  if (out.order == Order::kValue) sort_in_place(row, indices, count, team);
  if (kMapped || out.has_values()) {
    for (uint32_t i = thread; i < count; i += threads) out.write(i, indices[i]);
  }
  for (uint32_t i = count + thread; i < out.k; i += threads) out.pad(i, params.largest, map);
}

template <Dtype D, Scope S, bool kMapped>
__global__ void __launch_bounds__(kThreads, 1)
    large_k_kernel(const __grid_constant__ Params<kMapped> params) {
  if constexpr (S == Scope::kBlock || ptx::kHasClusters) select_large_k<D, S, kMapped>(params);
}

}  // namespace tl_topk
