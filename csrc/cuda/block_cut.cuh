// Where one block cuts a few thousand candidates so that the best `wanted` lie above, exact on any
// input.
//
// Candidates are told apart by their *ordinal*, the key plus one, 0 where there is none; equal ones
// by index. A pass counts the ordinals of a span into 2048 equal bins; the bin of the wanted one is
// the next pass's span. The first span is that between the least and the greatest ordinal, in which
// the scores of a tail are spread well, so one pass nearly always does. Where very many are equal,
// the same passes go over their indices.
#pragma once

#include <cstdint>

#include "cuda/prefix_sum.cuh"
#include "cuda/ptx.cuh"
#include "cuda/row.cuh"
#include "key.h"

namespace tl_topk {

constexpr uint32_t kCutBins = 2048;
constexpr uint32_t kCutBinBits = 11;
constexpr uint32_t kMaxTied = 256;  // candidates that are compared with one another
constexpr uint32_t kNoCrossing = 0xffffffffu;

// A key is at most that of +inf, so that no ordinal overflows.
__device__ __forceinline__ uint32_t ordinal_of(uint32_t key, bool present) {
  return present ? key + 1 : 0;
}
__device__ __forceinline__ uint64_t rank_of_ordinal(uint32_t ordinal, uint32_t index) {
  return rank_key(ordinal - 1, index);
}

struct Tied {
  uint64_t rank;
  uint32_t payload;
};

struct CutScratch {
  uint32_t bins[kCutBins];
  uint32_t tile_sums[kCutBins / kWarp];
  uint32_t warp_sums[kWarps];
  Crossing crossing;
  uint32_t lowest;  // ordinal of those present
  uint32_t highest;
  uint32_t tied_count;
  Tied tied[kMaxTied];
};

enum class Side : uint8_t { kBelow, kUndecided, kAbove };

// Ordinals from `high` on are above the cut, and of those from `low` on, `inside` in number, the
// best `wanted`. In a tie `low` is the only undecided ordinal, and inverted indices are compared in
// the same way.
struct Cut {
  uint32_t low;
  uint32_t high;
  bool tie;
  uint32_t tie_low;
  uint64_t tie_high;
  uint32_t wanted;
  uint32_t inside;

  template <typename Index>
  __device__ __forceinline__ Side side(uint32_t ordinal, Index&& index) const {
    if (ordinal >= high) return Side::kAbove;
    if (ordinal < low) return Side::kBelow;
    if (!tie) return Side::kUndecided;
    const uint32_t inverted = ~index();
    if (inverted >= tie_high) return Side::kAbove;
    return inverted < tie_low ? Side::kBelow : Side::kUndecided;
  }
};

// A barrier must follow.
__device__ __forceinline__ void clear(CutScratch& scratch) {
  reinterpret_cast<uint4*>(scratch.bins)[threadIdx.x] = {0, 0, 0, 0};
  static_assert(kCutBins == 4 * kThreads);
  if (threadIdx.x == 0) {
    scratch.lowest = 0xffffffffu;
    scratch.highest = 0;
    scratch.tied_count = 0;
    scratch.crossing.bin = kNoCrossing;
  }
}

// The least and the greatest ordinal that a thread has seen.
struct OrdinalRange {
  uint32_t lowest_less_one = 0xffffffffu;  // 0, for none, wraps to the greatest
  uint32_t highest = 0;

  __device__ __forceinline__ void see(uint32_t ordinal) {
    lowest_less_one = min(lowest_less_one, ordinal - 1);
    highest = max(highest, ordinal);
  }
};

// Begins after a barrier that follows clear(). for_each(f) calls f(ordinal, index) for each of this
// thread's candidates, index() being where it lies; `seen` has seen their ordinals.
template <typename ForEach>
__device__ __forceinline__ Cut find_cut(uint32_t wanted, const OrdinalRange& seen,
                                        CutScratch& scratch, ForEach&& for_each) {
  const uint32_t lowest = __reduce_min_sync(kAllLanes, seen.lowest_less_one);
  const uint32_t highest = __reduce_max_sync(kAllLanes, seen.highest);
  if (threadIdx.x % kWarp == 0) {
    atomicMin(&scratch.lowest, lowest);
    atomicMax(&scratch.highest, highest);
  }
  __syncthreads();
  Cut cut{scratch.lowest + 1, 0, false, 0, 0, wanted, 0};
  if (scratch.highest == 0) return {1, 1, false, 0, 0, 0, 0};  // there is none

  uint32_t low = cut.low;
  const uint32_t bits = 32 - __clz(scratch.highest - low);
  uint32_t shift = max(bits, kCutBinBits) - kCutBinBits;
  uint32_t bins = kCutBins;  // of which the span consists
  while (true) {
    if (!cut.tie) {
      for_each([&](uint32_t ordinal, auto&&) {
        const uint32_t bin = (ordinal - low) >> shift;
        ptx::shared_increment(&scratch.bins[bin], ordinal >= low && bin < bins);
      });
    } else {
      for_each([&](uint32_t ordinal, auto&& index) {
        if (ordinal != cut.low) return;
        const uint32_t inverted = ~index();
        const uint32_t bin = (inverted - low) >> shift;
        if (inverted >= low && bin < bins) atomicAdd(&scratch.bins[bin], 1u);
      });
    }
    __syncthreads();
    find_crossing<kCutBins>(scratch.bins, cut.wanted, scratch.tile_sums, &scratch.crossing);
    __syncthreads();
    const Crossing crossing = scratch.crossing;
    if (crossing.bin == kNoCrossing) return {1, 1, false, 0, 0, 0, 0};  // all are wanted
    low += crossing.bin << shift;
    const uint64_t high = static_cast<uint64_t>(low) + (uint64_t{1} << shift);
    cut.wanted -= crossing.above;
    cut.inside = crossing.inside;
    (cut.tie ? cut.tie_low : cut.low) = low;
    if (cut.tie) {
      cut.tie_high = high;
    } else {
      cut.high = static_cast<uint32_t>(high);
    }
    // The whole bin is, or, which no rank that works right sends, they are one and the same.
    if (cut.inside == cut.wanted || (cut.tie && shift == 0 && cut.inside > 1)) {
      if (cut.tie) {
        cut.tie_high = low;
      } else {
        cut.high = low;
      }
      cut.wanted = cut.inside = 0;
      return cut;
    }
    if (cut.inside <= kMaxTied) return cut;
    if (shift == 0) {  // as many are equal
      cut.tie = true;
      low = kSignBit;  // inverted indices have this bit
      shift = 31 - kCutBinBits;
      bins = kCutBins;
    } else {
      bins = 1u << min(shift, kCutBinBits);
      shift = max(shift, kCutBinBits) - kCutBinBits;
    }
    reinterpret_cast<uint4*>(scratch.bins)[threadIdx.x] = {0, 0, 0, 0};
    __syncthreads();
  }
}

// Calls f(place, tied) for those of the undecided that are wanted, place 0 for the best of them.
// Begins after a barrier that follows their being put into scratch.tied.
template <typename F>
__device__ __forceinline__ void for_each_wanted(const Cut& cut, const CutScratch& scratch, F&& f) {
  if (threadIdx.x >= cut.inside) return;
  const Tied mine = scratch.tied[threadIdx.x];
  uint32_t better = 0;
  for (uint32_t j = 0; j < cut.inside; ++j) better += scratch.tied[j].rank > mine.rank;
  if (better < cut.wanted) f(better, mine);
}

}  // namespace tl_topk
