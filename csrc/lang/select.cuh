// The k best of any source of ranks, by one thread block of any size: what programs in other
// languages call, so nothing here knows this library's own launches.
//
// A rank is the 64-bit key of key.h: all ranks of a row are distinct, so the answer is exact and
// ties need no special case. The range in which the k-th rank must lie is cut into 2048 equal bins,
// the bin that holds it becomes the new range, and so on until few enough are left to be compared
// one by one. A range that fits the data needs one or two rounds, any range at most six.
#pragma once

#include <cstdint>

#include "../key.h"

namespace tl_topk::lang {

constexpr uint32_t kAllLanes = 0xffffffffu;
constexpr uint32_t kBinBits = 11;
constexpr uint32_t kBins = 1u << kBinBits;
constexpr uint32_t kMaxResidual = 256;

// What a block needs in shared memory. Where it is handed over as words, this many.
struct Scratch {
  uint64_t residual[kMaxResidual];
  uint32_t bins[kBins];  // at a multiple of 16 bytes
  uint64_t lowest;
  uint64_t highest;
  uint32_t warp_sums[32];
  uint32_t warp_highest[32];
  uint32_t bin;
  uint32_t above;
  uint32_t inside;
  uint32_t winners;
  uint32_t residual_count;
  uint32_t counts[2];
};
constexpr uint32_t kScratchWords = 2672;
static_assert(sizeof(Scratch) <= 4 * kScratchWords);

// Of the ranks in [low, low + 2^bits) there are `inside`, and the best `wanted` of them are among
// the winners; so is every higher rank. 64 bits: no rank is higher.
struct Range {
  uint64_t low;
  uint32_t bits;
  uint32_t wanted;
  uint32_t inside;

  __device__ bool beyond(uint64_t rank) const {
    return bits < 64 && rank >= low && (rank - low) >> bits != 0;
  }
  __device__ bool contains(uint64_t rank) const {
    return rank >= low && (bits == 64 || (rank - low) >> bits == 0);
  }
};

__device__ __forceinline__ uint32_t bit_length(uint64_t x) { return 64 - __clzll(x); }

// The threads that work together: all of a block, or those that a warp-specialised kernel has for
// arithmetic. They meet at a hardware barrier of their own, of those that compilers number from 0.
template <uint32_t kThreads>
struct Block {
  static_assert(kThreads % 32 == 0 && kThreads <= 1024);
  uint32_t thread;  // 0 .. kThreads - 1; a multiple of 32 away from threadIdx.x

  __device__ __forceinline__ void sync() const {
    constexpr int kBarrier = 15;
    asm volatile("barrier.sync %0, %1;" ::"n"(kBarrier), "n"(kThreads) : "memory");
  }
};

__device__ __forceinline__ uint32_t lane() { return threadIdx.x % 32; }
__device__ __forceinline__ uint32_t lanes_below() { return (1u << lane()) - 1; }

// This thread's place among those of its block that pass and count in *counter. In whole warps.
__device__ __forceinline__ uint32_t warp_append(uint32_t* counter, bool passes) {
  const uint32_t votes = __ballot_sync(kAllLanes, passes);
  if (votes == 0) return 0;
  uint32_t base = 0;
  if (lane() == 0) base = atomicAdd(counter, static_cast<uint32_t>(__popc(votes)));
  return __shfl_sync(kAllLanes, base, 0) + __popc(votes & lanes_below());
}

// Adds one to bins[bin] where `counted`. The bin that the first such lane has is settled by vote:
// many equal elements would otherwise queue up at one counter. In whole warps.
__device__ __forceinline__ void warp_count(uint32_t* bins, uint32_t bin, bool counted) {
  const uint32_t votes = __ballot_sync(kAllLanes, counted);
  if (votes == 0) return;
  const int leader = __ffs(votes) - 1;
  const uint32_t common = __shfl_sync(kAllLanes, bin, leader);
  const bool same = counted && bin == common;
  const uint32_t sames = __ballot_sync(kAllLanes, same);
  if (static_cast<int>(lane()) == leader) atomicAdd(bins + common, __popc(sames));
  if (counted && !same) atomicAdd(bins + bin, 1u);
}

// The bin with above < wanted <= above + inside goes to scratch. The bins hold at least `wanted`;
// with kPlaces each is left with how many lie in higher ones, the first place of its members.
// Begins and ends with a barrier.
template <uint32_t kThreads, bool kPlaces = false>
__device__ __forceinline__ void find_crossing(Block<kThreads> block, Scratch& scratch,
                                              uint32_t wanted) {
  constexpr uint32_t kEach = (kBins + kThreads - 1) / kThreads;
  constexpr uint32_t kVectors = kEach * kThreads == kBins && kEach % 4 == 0 ? kEach / 4 : 0;
  block.sync();
  // Thread 0 has the highest bins.
  const uint32_t first = block.thread * kEach;
  auto* const vectors = reinterpret_cast<uint4*>(scratch.bins) + (kBins - first) / 4 - 1;
  uint32_t mine[kEach];
  if constexpr (kVectors != 0) {
#pragma unroll
    for (uint32_t v = 0; v < kVectors; ++v) {
      const uint4 four = *(vectors - v);
      mine[4 * v] = four.w;
      mine[4 * v + 1] = four.z;
      mine[4 * v + 2] = four.y;
      mine[4 * v + 3] = four.x;
    }
  } else {
#pragma unroll
    for (uint32_t j = 0; j < kEach; ++j) {
      mine[j] = first + j < kBins ? scratch.bins[kBins - 1 - first - j] : 0;
    }
  }
  uint32_t sum = 0;
#pragma unroll
  for (uint32_t j = 0; j < kEach; ++j) sum += mine[j];
  uint32_t upto = sum;
#pragma unroll
  for (uint32_t d = 1; d < 32; d *= 2) {
    const uint32_t before = __shfl_up_sync(kAllLanes, upto, d);
    if (lane() >= d) upto += before;
  }
  if (lane() == 31) scratch.warp_sums[block.thread / 32] = upto;
  block.sync();
  const uint32_t earlier = lane() < block.thread / 32 ? scratch.warp_sums[lane()] : 0;
  uint32_t above = __reduce_add_sync(kAllLanes, earlier) + upto - sum;
  const bool here = above < wanted && wanted <= above + sum;
#pragma unroll
  for (uint32_t j = 0; j < kEach; ++j) {
    const uint32_t inside = mine[j];
    if (here && above < wanted && wanted <= above + inside) {
      scratch.bin = kBins - 1 - first - j;
      scratch.above = above;
      scratch.inside = inside;
    }
    mine[j] = above;
    above += inside;
  }
  if constexpr (kPlaces && kVectors != 0) {
#pragma unroll
    for (uint32_t v = 0; v < kVectors; ++v) {
      *(vectors - v) = {mine[4 * v + 3], mine[4 * v + 2], mine[4 * v + 1], mine[4 * v]};
    }
  } else if constexpr (kPlaces) {
#pragma unroll
    for (uint32_t j = 0; j < kEach; ++j) {
      if (first + j < kBins) scratch.bins[kBins - 1 - first - j] = mine[j];
    }
  }
  block.sync();
}

// Makes the range smaller until all it holds is wanted or can be compared one by one.
// `source(f)` calls f(rank, valid) for every rank, in whole warps.
template <uint32_t kThreads, typename Source>
__device__ __forceinline__ Range narrow(Block<kThreads> block, Range range, const Source& source,
                                        Scratch& scratch) {
  while (range.inside > range.wanted && range.inside > kMaxResidual) {
    const uint32_t shift = range.bits > kBinBits ? range.bits - kBinBits : 0;
    block.sync();
    for (uint32_t i = block.thread; i < kBins; i += kThreads) scratch.bins[i] = 0;
    block.sync();
    source([&](uint64_t rank, bool valid) {
      const uint32_t bin = static_cast<uint32_t>((rank - range.low) >> shift);
      warp_count(scratch.bins, bin, valid && range.contains(rank));
    });
    find_crossing(block, scratch, range.wanted);
    range = {range.low + (static_cast<uint64_t>(scratch.bin) << shift), shift,
             range.wanted - scratch.above, scratch.inside};
  }
  return range;
}

// The best `wanted` of the `inside` ranks in scratch.residual, in the last of the k slots. Ends
// with a barrier.
template <uint32_t kThreads, typename Put>
__device__ __forceinline__ void rank_residual(Block<kThreads> block, uint32_t inside,
                                              uint32_t wanted, uint32_t k, const Scratch& scratch,
                                              const Put& put) {
  for (uint32_t i = block.thread; i < inside; i += kThreads) {
    const uint64_t mine = scratch.residual[i];
    uint32_t better = 0;
#pragma unroll 4
    for (uint32_t j = 0; j < inside; ++j) better += scratch.residual[j] > mine;
    if (better < wanted) put(k - wanted + better, mine);
  }
  block.sync();
}

// Calls put(slot, rank) once for each slot 0 .. k-1, in no order. Ends with a barrier.
template <uint32_t kThreads, typename Source, typename Put>
__device__ __forceinline__ void emit(Block<kThreads> block, const Range& range,
                                     const Source& source, uint32_t k, Scratch& scratch,
                                     const Put& put) {
  block.sync();
  if (block.thread == 0) {
    scratch.winners = 0;
    scratch.residual_count = 0;
  }
  block.sync();
  const bool all = range.inside == range.wanted;
  source([&](uint64_t rank, bool valid) {
    const bool inside = valid && range.contains(rank);
    const bool wins = valid && (range.beyond(rank) || (inside && all));
    const uint32_t slot = warp_append(&scratch.winners, wins);
    if (wins) put(slot, rank);
    if (inside && !all) scratch.residual[atomicAdd(&scratch.residual_count, 1u)] = rank;
  });
  block.sync();
  if (!all) rank_residual(block, range.inside, range.wanted, k, scratch, put);
}

// The smallest range that holds all `count` ranks of a source; the best k are wanted.
template <uint32_t kThreads, typename Source>
__device__ __forceinline__ Range span_of(Block<kThreads> block, const Source& source,
                                         uint32_t count, uint32_t k, Scratch& scratch) {
  block.sync();
  if (block.thread == 0) {
    scratch.lowest = ~0ull;
    scratch.highest = 0;
  }
  block.sync();
  uint64_t lowest = ~0ull;
  uint64_t highest = 0;
  source([&](uint64_t rank, bool valid) {
    if (valid && rank < lowest) lowest = rank;
    if (valid && rank > highest) highest = rank;
  });
#pragma unroll
  for (uint32_t d = 16; d > 0; d /= 2) {
    const uint64_t low = __shfl_xor_sync(kAllLanes, lowest, d);
    const uint64_t high = __shfl_xor_sync(kAllLanes, highest, d);
    lowest = low < lowest ? low : lowest;
    highest = high > highest ? high : highest;
  }
  if (lane() == 0) {
    atomicMin(reinterpret_cast<unsigned long long*>(&scratch.lowest), lowest);
    atomicMax(reinterpret_cast<unsigned long long*>(&scratch.highest), highest);
  }
  block.sync();
  return {scratch.lowest, bit_length(scratch.highest - scratch.lowest), k, count};
}

// The k best of `count` >= k > 0 ranks.
template <uint32_t kThreads, typename Source, typename Put>
__device__ __forceinline__ void select(Block<kThreads> block, const Source& source, uint32_t count,
                                       uint32_t k, Scratch& scratch, const Put& put) {
  Range range{0, 64, k, count};  // few enough to be compared one by one as they are
  if (count > kMaxResidual) range = span_of(block, source, count, k, scratch);
  range = narrow(block, range, source, scratch);
  emit(block, range, source, k, scratch, put);
}

// Ranks that lie in a list.
template <uint32_t kThreads>
struct ListSource {
  Block<kThreads> block;
  const uint64_t* ranks;
  uint32_t count;

  template <typename F>
  __device__ __forceinline__ void operator()(const F& f) const {
    for (uint32_t i = block.thread; i - lane() < count; i += kThreads) {
      f(ranks[min(i, count - 1)], i < count);
    }
  }
};

// Sorts n keys ascending in shared memory, n a power of two. Begins and ends with a barrier.
template <uint32_t kThreads>
__device__ __noinline__ void sort_ascending(Block<kThreads> block, uint64_t* keys, uint32_t n) {
  block.sync();
  for (uint32_t run = 2; run <= n; run *= 2) {
    for (uint32_t stride = run / 2; stride > 0; stride /= 2) {
      for (uint32_t pair = block.thread; pair < n / 2; pair += kThreads) {
        const uint32_t a = 2 * pair - (pair & (stride - 1));
        const bool up = (a & run) == 0;
        const uint64_t x = keys[a];
        const uint64_t y = keys[a + stride];
        if ((x > y) == up) {
          keys[a] = y;
          keys[a + stride] = x;
        }
      }
      block.sync();
    }
  }
}

}  // namespace tl_topk::lang
