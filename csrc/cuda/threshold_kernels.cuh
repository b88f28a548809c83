// The two steps of exchange.h between which samples are gathered: one block a row.
#pragma once

#include <cstdint>

#include "cuda/block_cut.cuh"
#include "cuda/merge_kernel.cuh"
#include "exchange.h"

namespace tl_topk {

struct ContributeParams {
  ContributeArgs args;
  Shards shards;
  bool staged;  // the samples are kept in shared memory
};

struct ContributeScratch {
  CutScratch cut;
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

  clear(scratch.cut);
  static_assert(kMaxRanks <= kThreads, "one thread a rank");
  if (threadIdx.x < kMaxRanks) scratch.above[threadIdx.x] = 0;
  const auto ordinal_of_sample = [](uint64_t sample) {
    return ordinal_of(key_of_rank(sample), sample != 0);
  };
  OrdinalRange seen;
  for_each(false, [&](uint32_t, uint64_t sample) { seen.see(ordinal_of_sample(sample)); });
  __syncthreads();
  const Cut cut = find_cut(bound_of(args.k, args.stride), seen, scratch.cut, [&](auto&& f) {
    for_each(true, [&](uint32_t, uint64_t sample) {
      f(ordinal_of_sample(sample), [&] { return index_of_rank(sample); });
    });
  });
  for_each(true, [&](uint32_t from, uint64_t sample) {
    const Side side = cut.side(ordinal_of_sample(sample), [&] { return index_of_rank(sample); });
    if (side == Side::kAbove) atomicAdd(&scratch.above[from], 1u);
    if (side != Side::kUndecided || cut.inside == 0) return;
    scratch.cut.tied[atomicAdd(&scratch.cut.tied_count, 1u)] = {sample, from};
  });
  __syncthreads();
  for_each_wanted(cut, scratch.cut,
                  [&](uint32_t, const Tied& tied) { atomicAdd(&scratch.above[tied.payload], 1u); });
  __syncthreads();
  const uint32_t room =
      threadIdx.x < shards.ranks ? args.stride * (scratch.above[threadIdx.x] + 1) : 0;
  uint32_t total = 0;
  const uint32_t begin = block_exclusive_sum(room, scratch.cut.warp_sums, &total);
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
