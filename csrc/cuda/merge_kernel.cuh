// The merge of exchange.h: one block a row selects among all ranks' candidates.
//
// Slots are given out in the order of the candidates, which is the same on every rank, by a prefix
// sum and never by an atomic: so all ranks get the same slots, in any order too.
#pragma once

#include <cstdint>

#include "cuda/block_cut.cuh"
#include "cuda/block_order.cuh"
#include "cuda/merge_candidates.cuh"
#include "cuda/row.cuh"
#include "exchange.h"

namespace tl_topk {

// Winners on their way into an order: ascending keys, each with the bits of its value.
struct Pairs {
  uint64_t* keys;
  uint32_t* bits;
};

// Shared memory behind MergeScratch: ordinals of the candidates if staged, then two sets of pairs
// if an order is asked for.
TL_TOPK_HD int64_t staged_bytes(int64_t candidates) { return candidates * 4; }
TL_TOPK_HD int64_t pairs_bytes(int64_t k) { return (k + 3) / 4 * 48; }
TL_TOPK_HD bool sorts_in_shared(const MergeArgs& args) {
  return args.order != Order::kAny && args.k <= kMaxFastK;
}

// Sorts `count` elements in place by one block, for counts and places that the quick ways do not
// serve: a bitonic network whose first step of each run mirrors, so that all pairs point the same
// way and `count` need be no power of two. Begins and ends with a barrier.
template <typename Before, typename Swap>
__device__ __noinline__ void sort_in_block(uint32_t count, Before&& before, Swap&& swap) {
  __syncthreads();
  for (uint64_t run = 2; run < 2 * static_cast<uint64_t>(count); run *= 2) {
    for (uint64_t stride = run / 2; stride > 0; stride /= 2) {
      const bool mirror = stride == run / 2;
      for (uint64_t pair = threadIdx.x; pair < count; pair += kThreads) {
        const uint64_t a = pair / stride * 2 * stride + pair % stride;
        const uint64_t b = mirror ? a / run * run + (run - 1 - a % run) : a + stride;
        if (b < count && before(b, a)) swap(a, b);
      }
      __syncthreads();
    }
  }
}

// Calls write(slot, key, bits) for each of `count` pairs, keys ascending from `low`, below 2^64:
// into equal bins of the span between `low` and `high`, then by comparison within a bin.
template <typename Write>
__device__ __forceinline__ void write_pairs_in_order(const Pairs& pairs, const Pairs& spare,
                                                     uint32_t count, uint64_t low, uint64_t high,
                                                     OrderScratch& scratch, Write&& write) {
  constexpr uint32_t kOrderBits = 11;
  static_assert(kOrderBins == 1u << kOrderBits);
  const uint32_t bits = 64 - __clzll(static_cast<long long>(high - low));
  const uint32_t shift = max(bits, kOrderBits) - kOrderBits;
  const auto bin_of = [&](uint64_t key) { return static_cast<uint32_t>((key - low) >> shift); };
  reinterpret_cast<uint4*>(scratch.bins)[threadIdx.x] = {0, 0, 0, 0};
  if (threadIdx.x == 0) scratch.fullest = 0;
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < count; i += kThreads) {
    atomicAdd(&scratch.bins[bin_of(pairs.keys[i])], 1u);
  }
  __syncthreads();
  bins_to_starts(scratch);
  __syncthreads();
  if (scratch.fullest > kMaxCrowd) {
    sort_in_block(
        count, [&](uint64_t a, uint64_t b) { return pairs.keys[a] < pairs.keys[b]; },
        [&](uint64_t a, uint64_t b) {
          const uint64_t key = pairs.keys[a];
          const uint32_t value = pairs.bits[a];
          pairs.keys[a] = pairs.keys[b];
          pairs.bits[a] = pairs.bits[b];
          pairs.keys[b] = key;
          pairs.bits[b] = value;
        });
    for (uint32_t i = threadIdx.x; i < count; i += kThreads) write(i, pairs.keys[i], pairs.bits[i]);
    return;
  }
  for (uint32_t i = threadIdx.x; i < count; i += kThreads) {
    const uint32_t place = atomicAdd(&scratch.bins[bin_of(pairs.keys[i])], 1u);
    spare.keys[place] = pairs.keys[i];
    spare.bits[place] = pairs.bits[i];
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < count; i += kThreads) {
    const uint64_t key = spare.keys[i];
    const uint32_t bin = bin_of(key);
    const uint32_t end = scratch.bins[bin];
    const uint32_t start = bin == 0 ? 0 : scratch.bins[bin - 1];
    uint32_t slot = start;
    for (uint32_t j = start; j < end; ++j) slot += spare.keys[j] < key;
    write(slot, key, spare.bits[i]);
  }
}

// The rows of the result that this block writes.
template <Dtype D>
struct MergedRow {
  using Raw = typename RawOf<D>::Type;

  int32_t* indices;
  Raw* values;

  __device__ void write(uint32_t slot, uint32_t index, uint32_t bits) const {
    indices[slot] = static_cast<int32_t>(index);
    values[slot] = static_cast<Raw>(bits);
  }
  __device__ uint64_t key(uint32_t slot, Order order, bool largest) const {
    const auto index = static_cast<uint32_t>(indices[slot]);
    if (order == Order::kIndex) return index;
    return ~rank_of_candidate<D>({values[slot], index, true}, largest);
  }
};

// The first `count` slots, in any order so far, where shared memory has no room for them.
template <Dtype D>
__device__ __noinline__ void sort_slots(const MergedRow<D> out, uint32_t count, Order order,
                                        bool largest) {
  sort_in_block(
      count,
      [&](uint64_t a, uint64_t b) {
        return out.key(a, order, largest) < out.key(b, order, largest);
      },
      [&](uint64_t a, uint64_t b) {
        const auto index = static_cast<uint32_t>(out.indices[a]);
        const uint32_t bits = out.values[a];
        out.write(a, static_cast<uint32_t>(out.indices[b]), out.values[b]);
        out.write(b, index, bits);
      });
}

// Those of the first `count` slots that this rank has, as positions in its shard, in their order.
__device__ __forceinline__ void write_local(const int32_t* indices, uint32_t count, uint32_t k,
                                            const Shards& shards, int32_t* local,
                                            uint32_t* warp_sums) {
  uint32_t before = 0;
  for (uint32_t first = 0; first < count; first += kThreads) {
    const uint32_t slot = first + threadIdx.x;
    const uint32_t index = slot < count ? static_cast<uint32_t>(indices[slot]) : 0;
    const bool mine = slot < count && shards.is_mine(index);
    uint32_t total = 0;
    const uint32_t place = before + block_exclusive_sum(mine, warp_sums, &total);
    __syncthreads();  // before the next round's sums
    if (mine) local[place] = static_cast<int32_t>(shards.local_index(index));
    before += total;
  }
  for (uint32_t slot = before + threadIdx.x; slot < k; slot += kThreads) local[slot] = -1;
}

// The sum over the warps before this one of what each counted, x in all of its lanes; *total over
// all. Called by the whole block; what was in shared memory before is seen by all threads after.
__device__ __forceinline__ uint32_t sum_of_warps_before(uint32_t x, uint32_t* warp_sums,
                                                        uint32_t* total) {
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t warp = threadIdx.x / kWarp;
  if (lane == 0) warp_sums[warp] = x;
  __syncthreads();
  const uint32_t sum = lane < kWarps ? warp_sums[lane] : 0;
  *total = __reduce_add_sync(kAllLanes, sum);
  return __reduce_add_sync(kAllLanes, lane < warp ? sum : 0);
}

template <Dtype D, bool kWords, uint32_t kHeldQuads>
__global__ void __launch_bounds__(kThreads, 1)
    merge_kernel(const __grid_constant__ MergeParams params) {
  extern __shared__ __align__(16) unsigned char shared_memory[];
  auto& scratch = *reinterpret_cast<MergeScratch*>(shared_memory);
  const MergeArgs& args = params.args;
  const Shards& shards = params.shards;
  const uint32_t row = blockIdx.x;
  const auto k = static_cast<uint32_t>(args.k);
  unsigned char* memory = shared_memory + sizeof(MergeScratch);
  const uint32_t n = args.candidates(shards);
  RowCandidates<D, kWords, kHeldQuads> candidates{
      {args, shards, row}, params.staged ? reinterpret_cast<uint4*>(memory) : nullptr, n / kQuad};
  if (params.staged) memory += staged_bytes(n);

  clear(scratch.cut);
  const OrdinalRange seen = candidates.load_all();
  __syncthreads();
  const Cut cut = find_cut(k, seen, scratch.cut, [&](auto&& f) {
    candidates.for_each(
        [&](uint32_t ordinal, auto&& candidate) { f(ordinal, [&] { return candidate().index; }); });
  });

  // The undecided go to where they are compared, the others are counted: by votes, so that a warp's
  // slots lie side by side. Ties by the hundred, in which a candidate's side takes its index too,
  // have passes of their own: the usual ones are short.
  uint32_t mine = 0;  // of this warp
  bool some_undecided = false;
  const auto side_of = [&](uint32_t ordinal, auto&& candidate) {
    return cut.side(ordinal, [&] { return candidate().index; });
  };
  if (!cut.tie) {
    candidates.for_each([&](uint32_t ordinal, auto&&) {
      mine += __popc(__ballot_sync(kAllLanes, ordinal >= cut.high));
      some_undecided |= ordinal >= cut.low && ordinal < cut.high;
    });
  } else {
    candidates.for_each([&](uint32_t ordinal, auto&& candidate) {
      const Side side = side_of(ordinal, candidate);
      mine += __popc(__ballot_sync(kAllLanes, side == Side::kAbove));
      some_undecided |= side == Side::kUndecided;
    });
  }
  if (some_undecided && cut.inside > 0) {
    candidates.for_each([&](uint32_t ordinal, auto&& candidate) {
      if (side_of(ordinal, candidate) != Side::kUndecided) return;
      const Candidate c = candidate();
      scratch.cut.tied[atomicAdd(&scratch.cut.tied_count, 1u)] = {rank_of_ordinal(ordinal, c.index),
                                                                  c.bits};
    });
  }
  uint32_t count = 0;
  uint32_t first = sum_of_warps_before(mine, scratch.cut.warp_sums, &count);

  const MergedRow<D> out{args.indices + row * args.k,
                         static_cast<typename RawOf<D>::Type*>(args.values) + row * args.k};
  const bool in_shared = sorts_in_shared(args);
  const bool by_value = args.order == Order::kValue;
  const Pairs pairs{reinterpret_cast<uint64_t*>(memory),
                    reinterpret_cast<uint32_t*>(memory + k * sizeof(uint64_t))};
  const auto put = [&](uint32_t at, uint64_t rank, uint32_t bits) {
    if (at >= k) return;  // whatever the other ranks have sent
    if (in_shared) {
      pairs.keys[at] = by_value ? ~rank : index_of_rank(rank);
      pairs.bits[at] = bits;
    } else {
      out.write(at, index_of_rank(rank), bits);
    }
  };
  const uint32_t lanes_before = (1u << threadIdx.x % kWarp) - 1;
  const auto slot_of = [&](bool above) {
    const uint32_t votes = __ballot_sync(kAllLanes, above);
    const uint32_t slot = first + __popc(votes & lanes_before);
    first += __popc(votes);
    return slot;
  };
  if (!cut.tie && !in_shared) {
    candidates.template for_each<true>([&](uint32_t ordinal, auto&& candidate) {
      const bool above = ordinal >= cut.high;
      const uint32_t slot = slot_of(above);
      if (!above || slot >= k) return;
      const Candidate c = candidate();
      out.write(slot, c.index, c.bits);
    });
  } else {
    candidates.template for_each<true>([&](uint32_t ordinal, auto&& candidate) {
      const bool above = side_of(ordinal, candidate) == Side::kAbove;
      const uint32_t slot = slot_of(above);
      if (!above) return;
      const Candidate c = candidate();
      put(slot, rank_of_ordinal(ordinal, c.index), c.bits);
    });
  }
  for_each_wanted(cut, scratch.cut, [&](uint32_t place, const Tied& tied) {
    put(count + place, tied.rank, tied.payload);
  });
  count = min(count + cut.wanted, k);
  if (in_shared) {
    const uint64_t best = rank_of_ordinal(scratch.cut.highest, 0);
    const uint64_t worst = rank_of_ordinal(max(cut.low, scratch.cut.lowest + 1), 0xffffffffu);
    unsigned char* const behind = memory + pairs_bytes(k);
    const Pairs spare{reinterpret_cast<uint64_t*>(behind),
                      reinterpret_cast<uint32_t*>(behind + k * sizeof(uint64_t))};
    __syncthreads();
    write_pairs_in_order(
        pairs, spare, count, by_value ? ~best : 0, by_value ? ~worst : shards.width, scratch.order,
        [&](uint32_t at, uint64_t key, uint32_t bits) {
          out.write(at, by_value ? index_of_rank(~key) : static_cast<uint32_t>(key), bits);
        });
  } else if (args.order != Order::kAny) {
    sort_slots(out, count, args.order, args.largest);
  }
  for (uint32_t i = count + threadIdx.x; i < k; i += kThreads) {
    out.write(i, 0xffffffffu, padding_of<D>(args.largest));
  }
  if (args.local_indices == nullptr) return;
  __syncthreads();
  write_local(out.indices, count, k, shards, args.local_indices + row * args.k,
              scratch.cut.warp_sums);
}

}  // namespace tl_topk
