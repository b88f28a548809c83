// The two steps of exchange.h between which samples are gathered: one block a row.
#pragma once

#include <cstdint>

#include "cuda/block_rank.cuh"
#include "cuda/merge_kernel.cuh"
#include "exchange.h"

namespace tl_topk {

struct ContributeParams {
  ContributeArgs args;
  Shards shards;
  bool staged;  // the samples are kept in shared memory
};

struct ContributeScratch {
  RankScratch rank;
  uint32_t above[kMaxRanks];  // samples of each rank that reach the bound
  uint32_t begin;             // of this rank's slots
};

template <Dtype D>
__global__ void __launch_bounds__(kThreads)
    sample_kernel(const SampleArgs args, const __grid_constant__ Shards shards) {
  const int64_t row = blockIdx.x;
  for (uint32_t i = threadIdx.x; i < args.samples; i += kThreads) {
    const Candidate c = args.selected.at<D>(shards, shards.rank, row, (i + 1) * args.stride - 1);
    args.ranks[row * args.samples + i] = rank_of_candidate<D>(c, args.largest);
  }
}

template <Dtype D>
__global__ void __launch_bounds__(kThreads, 1)
    contribute_kernel(const __grid_constant__ ContributeParams params) {
  extern __shared__ __align__(16) unsigned char shared_memory[];
  auto& scratch = *reinterpret_cast<ContributeScratch*>(shared_memory);
  auto* const staged = reinterpret_cast<uint64_t*>(shared_memory + sizeof(ContributeScratch));
  const ContributeArgs& args = params.args;
  const Shards& shards = params.shards;
  const int64_t row = blockIdx.x;
  const uint32_t n = shards.ranks * args.samples;
  // The samples of the row, of each rank one behind the other. f(from, sample) is called as often
  // for every thread, with 0 where there is none.
  const auto for_each = [&](bool again, auto&& f) {
    for (uint32_t first = 0; first < n; first += kMostHeld) {
      uint32_t from[kMergeLoads];
      uint64_t sample[kMergeLoads];
#pragma unroll
      for (uint32_t u = 0; u < kMergeLoads; ++u) {
        const uint32_t i = first + u * kThreads + threadIdx.x;
        const uint32_t there = min(i, n - 1);
        from[u] = there / args.samples;
        const int64_t list = from[u] * args.selected.rows + row;
        sample[u] = again && params.staged
                        ? staged[there]
                        : args.ranks[list * args.samples + (there - from[u] * args.samples)];
        if (!again && params.staged && i < n) staged[i] = sample[u];
        if (i >= n) sample[u] = 0;
      }
#pragma unroll
      for (uint32_t u = 0; u < kMergeLoads; ++u) f(from[u], sample[u]);
    }
  };

  clear(scratch.rank);
  static_assert(kMaxRanks <= kThreads, "one thread a rank");
  if (threadIdx.x < kMaxRanks) scratch.above[threadIdx.x] = 0;
  RankRange seen;
  for_each(false, [&](uint32_t, uint64_t rank) { seen.see(rank); });
  __syncthreads();
  const uint64_t bound =
      block_rank(bound_of(args.k, args.stride), seen, scratch.rank,
                 [&](auto&& f) { for_each(true, [&](uint32_t, uint64_t rank) { f(rank); }); });
  for_each(true, [&](uint32_t rank, uint64_t sample) {
    if (sample >= bound) atomicAdd(&scratch.above[rank], 1u);
  });
  __syncthreads();
  const uint32_t room =
      threadIdx.x < shards.ranks ? args.stride * (scratch.above[threadIdx.x] + 1) : 0;
  uint32_t total = 0;
  const uint32_t begin = block_exclusive_sum(room, scratch.rank.warp_sums, &total);
  if (threadIdx.x == shards.rank) scratch.begin = begin;
  __syncthreads();
  const uint32_t own = min(args.stride * (scratch.above[shards.rank] + 1), args.selected.count);
  for (uint32_t slot = threadIdx.x; slot < args.slots; slot += kThreads) {
    const uint32_t i = slot - scratch.begin;  // wraps for slots before
    args.words[row * args.slots + slot] =
        i < own ? word_of(args.selected.at<D>(shards, shards.rank, row, i)) : 0;
  }
}

}  // namespace tl_topk
