// The two steps of exchange.h between which samples are gathered: one block a row.
#pragma once

#include <cstdint>

#include "cuda/block_cut.cuh"
#include "cuda/merge_kernel.cuh"
#include "exchange.h"

namespace tl_topk {

constexpr uint32_t kSampleLoads = 8;  // samples of a thread in flight
constexpr uint32_t kMostSamplesHeld = kSampleLoads * kThreads;

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

// The samples of one row from all ranks, dealt out to the threads. Up to kMostSamplesHeld stay in
// registers (kHeld), more are read again at every pass.
template <bool kHeld>
struct RowSamples {
  const ContributeArgs& args;
  int64_t row;
  uint32_t n;
  uint64_t sample[kSampleLoads] = {};

  // All loads go out before the first is used.
  __device__ __forceinline__ void load(uint32_t first) {
#pragma unroll
    for (uint32_t u = 0; u < kSampleLoads; ++u) {
      const uint32_t i = min(first + u * kThreads + threadIdx.x, n - 1);
      const uint32_t from = i / args.samples;  // lists of one rank's rows follow one another
      const int64_t list = from * args.selected.rows + row;
      sample[u] = args.ranks[list * args.samples + (i - from * args.samples)];
    }
#pragma unroll
    for (uint32_t u = 0; u < kSampleLoads; ++u) {
      if (first + u * kThreads + threadIdx.x >= n) sample[u] = 0;
    }
  }

  // Calls f(i, sample), 0 where there is none; `again` after the first time.
  template <typename F>
  __device__ __forceinline__ void for_each(bool again, F&& f) {
    for (uint32_t first = 0; first < n; first += kMostSamplesHeld) {
      if (!kHeld || !again) load(first);
#pragma unroll
      for (uint32_t u = 0; u < kSampleLoads; ++u) f(first + u * kThreads + threadIdx.x, sample[u]);
    }
  }
};

template <Dtype D, bool kHeld>
__global__ void __launch_bounds__(kThreads, 1)
    contribute_kernel(const __grid_constant__ ContributeArgs args,
                      const __grid_constant__ Shards shards) {
  extern __shared__ __align__(16) unsigned char shared_memory[];
  auto& scratch = *reinterpret_cast<ContributeScratch*>(shared_memory);
  const int64_t row = blockIdx.x;
  RowSamples<kHeld> samples{args, row, shards.ranks * args.samples};

  clear(scratch.cut);
  static_assert(kMaxRanks <= kThreads, "one thread a rank");
  if (threadIdx.x < kMaxRanks) scratch.above[threadIdx.x] = 0;
  const auto ordinal_of_sample = [](uint64_t sample) {
    return ordinal_of(key_of_rank(sample), sample != 0);
  };
  OrdinalRange seen;
  samples.for_each(false, [&](uint32_t, uint64_t sample) { seen.see(ordinal_of_sample(sample)); });
  __syncthreads();
  const Cut cut = find_cut(bound_of(args.k, args.stride), seen, scratch.cut, [&](auto&& f) {
    samples.for_each(true, [&](uint32_t, uint64_t sample) {
      f(ordinal_of_sample(sample), [&] { return index_of_rank(sample); });
    });
  });
  samples.for_each(true, [&](uint32_t i, uint64_t sample) {
    const Side side = cut.side(ordinal_of_sample(sample), [&] { return index_of_rank(sample); });
    if (side == Side::kAbove) atomicAdd(&scratch.above[i / args.samples], 1u);
    if (side != Side::kUndecided || cut.inside == 0) return;
    scratch.cut.tied[atomicAdd(&scratch.cut.tied_count, 1u)] = {sample, i / args.samples};
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
