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

// Ranks at or above `prefix` in the bits from `shift` up are wanted.
struct Threshold {
  uint64_t prefix;  // already shifted down
  uint32_t shift;
  uint32_t passing;  // how many ranks of the row pass

  __device__ bool passes(uint64_t rank) const { return rank >> shift >= prefix; }
};

// What the search needs in shared memory.
struct RadixScratch {
  uint32_t bins[kDigitBins];
  uint32_t tile_sums[kDigitBins / kWarp];
  Crossing crossing;
};

// Finds a threshold that at least `k` and at most `at_most` (>= k) of `length` > k ranks pass.
// `for_each_rank(f)` calls f(rank, valid) in whole warps for this block's ranks;
// `sum_over_team(bins)` turns this block's counts into the whole team's and ends in a barrier.
template <typename ForEachRank, typename SumOverTeam>
__device__ Threshold find_threshold(uint32_t length, uint32_t k, uint32_t at_most,
                                    RadixScratch& scratch, ForEachRank&& for_each_rank,
                                    SumOverTeam&& sum_over_team) {
  // The inverted index of every element begins with the same ones: no digit is spent on them.
  const uint32_t index_bits = kWarp - __clz(length - 1);
  uint64_t prefix = 0;
  uint32_t shift = 64;
  uint32_t wanted = k;  // among ranks that share the prefix
  while (true) {
    uint32_t bits = kDigitBits;
    if (shift > 32 && shift - 32 < bits) bits = shift - 32;  // a digit is of the key or the index
    if (shift == 32) {
      prefix = (prefix + 1 << (32 - index_bits)) - 1;
      shift = index_bits;
    }
    if (shift < bits) bits = shift;
    const uint32_t next = shift - bits;

    for (uint32_t i = threadIdx.x; i < kDigitBins; i += kThreads) scratch.bins[i] = 0;
    __syncthreads();
    for_each_rank([&](uint64_t rank, bool valid) {
      const bool counted = valid && (shift == 64 || rank >> shift == prefix);
      const auto digit = static_cast<uint32_t>(rank >> next) & ((1u << bits) - 1);
      warp_count(scratch.bins, digit, counted);
    });
    __syncthreads();
    sum_over_team(scratch.bins);
    find_crossing<kDigitBins>(scratch.bins, wanted, scratch.tile_sums, &scratch.crossing);
    __syncthreads();
    const Crossing c = scratch.crossing;
    prefix = prefix << bits | c.bin;
    shift = next;
    wanted -= c.above;
    const uint32_t passing = k - wanted + c.inside;
    if (passing <= at_most) return {prefix, shift, passing};
    __syncthreads();
  }
}

}  // namespace tl_topk
