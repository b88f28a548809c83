// The exact way to a threshold: digits of the 64-bit rank (value key, then inverted index), highest
// first. Every rank of a row is distinct, so this ends after at most six digits on any input, and
// ties need no special case. The kernels come here when the sample has misled them.
#pragma once

#include <cstdint>

#include "cuda/histogram.cuh"
#include "cuda/prefix_sum.cuh"
#include "key.h"

namespace tl_topk {

constexpr uint32_t kDigitBits = 11;
constexpr uint32_t kDigitBins = 1u << kDigitBits;

// Ranks at or above `prefix` in the bits from `shift` up are wanted, and among those that share the
// prefix all but the best `wanted` are still too many. The whole row: {0, 64, k, length}.
struct Threshold {
  uint64_t prefix;  // already shifted down
  uint32_t shift;
  uint32_t wanted;
  uint32_t passing;  // how many ranks pass

  // The lowest rank that passes.
  __device__ uint64_t lowest() const { return shift == 64 ? 0 : prefix << shift; }
  __device__ bool passes(uint64_t rank) const { return rank >= lowest(); }
  __device__ bool undecided(uint64_t rank) const { return shift == 64 || rank >> shift == prefix; }
};

// What the search needs in shared memory.
struct RadixScratch {
  uint32_t bins[kDigitBins];
  uint32_t tile_sums[kDigitBins / kWarp];
  Crossing crossing;
};

// Narrows `t` down until at most `at_most` (>= k) ranks of a row of `length` pass.
// `for_each_rank(f)` calls f(rank, valid) in whole warps for this block's ranks;
// `sum_over_team(bins, n)` turns this block's counts into the whole team's and ends in a barrier.
template <typename ForEachRank, typename SumOverTeam>
__device__ Threshold narrow(Threshold t, uint32_t length, uint32_t k, uint32_t at_most,
                            RadixScratch& scratch, ForEachRank&& for_each_rank,
                            SumOverTeam&& sum_over_team) {
  // The inverted index of every element begins with the same ones: no digit is spent on them.
  const uint32_t index_bits = kWarp - __clz(length - 1);
  while (t.passing > at_most) {
    if (t.shift == 32) {
      t.prefix = ((t.prefix + 1) << (32 - index_bits)) - 1;
      t.shift = index_bits;
    }
    // A digit is of the key or of the index, never of both.
    const uint32_t bits = min(kDigitBits, t.shift > 32 ? t.shift - 32 : t.shift);
    const uint32_t next = t.shift - bits;

    for (uint32_t i = threadIdx.x; i < kDigitBins; i += kThreads) scratch.bins[i] = 0;
    __syncthreads();
    for_each_rank([&](uint64_t rank, bool valid) {
      const auto digit = static_cast<uint32_t>(rank >> next) & ((1u << bits) - 1);
      warp_count(scratch.bins, digit, valid && t.undecided(rank));
    });
    __syncthreads();
    sum_over_team(scratch.bins, kDigitBins);
    find_crossing<kDigitBins>(scratch.bins, t.wanted, scratch.tile_sums, &scratch.crossing);
    __syncthreads();
    const Crossing c = scratch.crossing;
    t.prefix = (t.prefix << bits) | c.bin;
    t.shift = next;
    t.wanted -= c.above;
    t.passing = k - t.wanted + c.inside;
    __syncthreads();
  }
  return t;
}

}  // namespace tl_topk
