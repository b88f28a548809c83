// The k best of ranks in a list in shared memory, quickly: one round of counting, where the bin in
// which the k-th rank falls has few enough members. Places of the list that hold 0 are empty.
//
// The loops are short on purpose: a launch runs through them once, so that what is unrolled has to
// be fetched as instructions, which takes longer than running it.
#pragma once

#include <cstdint>

#include "../key.h"
#include "select.cuh"

namespace tl_topk::lang {

constexpr uint32_t kFewTied = 128;  // are compared sooner than they are counted again
static_assert(kFewTied <= kMaxResidual);

// Keys in bins of equal width, a power of two. Those beyond the highest bin end in it.
struct KeyBins {
  uint32_t low;  // no key is lower
  uint32_t shift;

  __device__ __forceinline__ uint32_t operator()(uint64_t rank) const {
    return min((key_of_rank(rank) - low) >> shift, kBins - 1);
  }
};
__device__ __forceinline__ KeyBins bins_between(uint32_t lowest, uint32_t highest) {
  const uint32_t bits = highest > lowest ? 32 - __clz(highest - lowest) : 0;
  return {lowest, bits > kBinBits ? bits - kBinBits : 0};
}

// Makes the scratch ready for counting. A barrier must lie between.
template <uint32_t kThreads>
__device__ __forceinline__ void clear_bins(Block<kThreads> block, Scratch& scratch) {
  constexpr uint32_t kEach = 4;
  for (uint32_t i = block.thread; i < kBins / kEach; i += kThreads) {
    reinterpret_cast<uint4*>(scratch.bins)[i] = {0, 0, 0, 0};
  }
}

// Bins for all keys of a block, from the smallest and the largest of each thread. Has a barrier.
template <uint32_t kThreads>
__device__ __forceinline__ KeyBins bins_of_all(Block<kThreads> block, uint32_t lowest,
                                               uint32_t highest, Scratch& scratch) {
  lowest = __reduce_min_sync(kAllLanes, lowest);
  highest = __reduce_max_sync(kAllLanes, highest);
  if (lane() == 0) {
    scratch.warp_sums[block.thread / 32] = lowest;
    scratch.warp_highest[block.thread / 32] = highest;
  }
  block.sync();
  const uint32_t each = min(lane(), kThreads / 32 - 1);
  return bins_between(__reduce_min_sync(kAllLanes, scratch.warp_sums[each]),
                      __reduce_max_sync(kAllLanes, scratch.warp_highest[each]));
}

__device__ __forceinline__ void count_rank(const KeyBins& bin_of, uint64_t rank, Scratch& scratch) {
  if (rank != 0) atomicAdd(&scratch.bins[bin_of(rank)], 1u);
}

// Counts all `count` ranks of a list, which lies there already or is fetched from `from`.
template <uint32_t kThreads>
__device__ __forceinline__ void count_list(Block<kThreads> block, KeyBins bins, uint64_t* list,
                                           const uint64_t* from, uint32_t count, Scratch& scratch) {
  constexpr uint32_t kAtOnce = 8;
#pragma unroll 1
  for (uint32_t first = block.thread; first < count; first += kAtOnce * kThreads) {
    uint64_t ranks[kAtOnce];
#pragma unroll
    for (uint32_t u = 0; u < kAtOnce; ++u) {
      const uint32_t i = first + u * kThreads;
      ranks[u] = i >= count ? 0 : from != nullptr ? __ldcg(from + i) : list[i];
    }
#pragma unroll
    for (uint32_t u = 0; u < kAtOnce; ++u) {
      const uint32_t i = first + u * kThreads;
      if (from != nullptr && i < count) list[i] = ranks[u];
      count_rank(bins, ranks[u], scratch);
    }
  }
}

// The k best of the list's ranks, all of which have been counted, in no order, to slots 0 .. k-1:
// ranks, or indices in 32 bits each. A bin's members take the slots that its count tells, one after
// another; those of the bin in which the k-th falls are compared, or counted once more in narrower
// bins where they are many. False, with slots written in vain, where too many share a key. Begins
// and ends with a barrier.
template <uint32_t kThreads, typename Slot>
__device__ __noinline__ bool select_counted(Block<kThreads> block, const uint64_t* list,
                                            uint32_t count, KeyBins bins, uint32_t k,
                                            Scratch& scratch, Slot* slots) {
  constexpr uint32_t kAtOnce = 4;
  const auto put = [&](uint32_t at, uint64_t rank) {
    if constexpr (sizeof(Slot) == sizeof rank) {
      slots[at] = rank;
    } else {
      slots[at] = index_of_rank(rank);
    }
  };
  uint32_t filled = 0;
  uint32_t upto = kBins;  // bins in use; the highest of all has no upper end
  bool open = true;
  for (;;) {
    find_crossing<kThreads, true>(block, scratch, k - filled);
    const uint32_t bin = scratch.bin;
    const uint32_t above = scratch.above;
    const uint32_t inside = scratch.inside;
    const uint32_t wanted = k - filled - above;
    const bool all = inside == wanted;
    const bool last = all || inside <= kFewTied;
    if (!last && (bins.shift == 0 || (open && bin == kBins - 1))) return false;
    const uint32_t lowest = last ? bin : bin + 1;
#pragma unroll 1
    for (uint32_t first = block.thread; first < count; first += kAtOnce * kThreads) {
      uint64_t ranks[kAtOnce];
      uint32_t in[kAtOnce];
      uint32_t at[kAtOnce];
      bool taken[kAtOnce];
#pragma unroll
      for (uint32_t u = 0; u < kAtOnce; ++u) {
        const uint32_t i = first + u * kThreads;
        ranks[u] = i < count ? list[i] : 0;
      }
#pragma unroll
      for (uint32_t u = 0; u < kAtOnce; ++u) {
        in[u] = min((key_of_rank(ranks[u]) - bins.low) >> bins.shift, open ? kBins - 1 : ~0u);
        taken[u] = ranks[u] != 0 && in[u] - lowest < upto - lowest;
        at[u] = taken[u] ? atomicAdd(&scratch.bins[in[u]], 1u) : 0;
      }
#pragma unroll
      for (uint32_t u = 0; u < kAtOnce; ++u) {
        if (!taken[u]) continue;
        if (in[u] > bin || all) {
          put(filled + at[u], ranks[u]);
        } else {
          scratch.residual[at[u] - above] = ranks[u];
        }
      }
    }
    block.sync();
    if (last) {
      if (!all) rank_residual(block, inside, wanted, k, scratch, put);
      return true;
    }
    filled += above;
    open = false;
    bins.low += bin << bins.shift;
    upto = bins.shift > kBinBits ? kBins : 1u << bins.shift;
    bins.shift = bins.shift > kBinBits ? bins.shift - kBinBits : 0;
    clear_bins(block, scratch);
    block.sync();
    for (uint32_t i = block.thread; i < count; i += kThreads) {
      const uint32_t in = (key_of_rank(list[i]) - bins.low) >> bins.shift;
      if (list[i] != 0 && in < upto) atomicAdd(&scratch.bins[in], 1u);
    }
  }
}

// select() for what is not worth room among the instructions of the usual way.
template <uint32_t kThreads, typename Source>
__device__ __noinline__ void select_apart(Block<kThreads> block, const Source source,
                                          uint32_t count, uint32_t k, Scratch& scratch,
                                          uint64_t* winners) {
  select(block, source, count, k, scratch,
         [&](uint32_t slot, uint64_t rank) { winners[slot] = rank; });
}

}  // namespace tl_topk::lang
