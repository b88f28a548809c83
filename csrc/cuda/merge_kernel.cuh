// The merge of exchange.h: one block a row selects among all ranks' candidates.
//
// Slots are given out in the order of the candidates, which is the same on every rank, by a prefix
// sum and never by an atomic: so all ranks get the same slots, in any order too.
#pragma once

#include <cstdint>

#include "config.h"
#include "cuda/block_cut.cuh"
#include "cuda/block_order.cuh"
#include "cuda/row.cuh"
#include "exchange.h"

namespace tl_topk {

struct MergeParams {
  MergeArgs args;
  Shards shards;
  bool staged;  // ordinals of all candidates are kept in shared memory
};

constexpr uint32_t kMergeLoads = 8;  // candidates of a thread in flight
constexpr uint32_t kMostHeld = kMergeLoads * kThreads;

union MergeScratch {
  CutScratch cut;
  OrderScratch order;
};

// Where the candidates of a row come from. Reading one takes no branch, so that many loads can be
// in flight; where it lies in the whole row is reckoned only for those that matter.
template <Dtype D, bool kWords>
struct CandidateSource {
  const MergeArgs& args;
  const Shards& shards;
  uint32_t row;

  // Its index in the row if kWords, else in its rank's shard.
  __device__ __forceinline__ Candidate read(uint32_t i) const {
    if constexpr (kWords) {
      return candidate_of(args.words[static_cast<int64_t>(row) * args.slots + i]);
    } else {
      const uint32_t rank = i / args.per_rank;
      const Selected part = part_at(args.parts, args.rows, args.per_rank, D, rank);
      const int64_t place = static_cast<int64_t>(row) * args.per_rank + (i - rank * args.per_rank);
      const int32_t index = part.indices[place];
      const uint32_t bits = static_cast<const typename RawOf<D>::Type*>(part.values)[place];
      return {bits, static_cast<uint32_t>(index), index >= 0};
    }
  }
  __device__ __forceinline__ uint32_t index_in_row(uint32_t i, uint32_t index) const {
    if constexpr (kWords) return index;
    return shards.global_index(i / args.per_rank, index);
  }
};

// The candidates of one row, dealt out to the threads. Up to kMostHeld stay in registers (kHeld);
// more are read again at every pass, their ordinals from shared memory if there is room.
template <Dtype D, bool kWords, bool kHeld>
struct RowCandidates {
  CandidateSource<D, kWords> source;
  uint32_t* staged;  // null: no room
  uint32_t n;
  uint32_t ordinal[kMergeLoads] = {};
  uint32_t index[kMergeLoads] = {};
  uint32_t bits[kMergeLoads] = {};

  __device__ __forceinline__ uint32_t place(uint32_t first, uint32_t u) const {
    return first + u * kThreads + threadIdx.x;
  }

  __device__ __forceinline__ void load(uint32_t first) {
    Candidate c[kMergeLoads];
#pragma unroll
    for (uint32_t u = 0; u < kMergeLoads; ++u) c[u] = source.read(min(place(first, u), n - 1));
#pragma unroll
    for (uint32_t u = 0; u < kMergeLoads; ++u) {
      const uint32_t key = order_key(orient(widen<D>(c[u].bits), source.args.largest));
      ordinal[u] = ordinal_of(key, c[u].present && place(first, u) < n);
      index[u] = c[u].index;
      bits[u] = c[u].bits;
    }
  }

  // Calls visit(first) for each batch, the candidates from `first` on.
  template <typename Visit>
  __device__ __forceinline__ void in_batches(Visit&& visit) {
    if constexpr (kHeld) {
      visit(0);
    } else {
      for (uint32_t first = 0; first < n; first += kMostHeld) visit(first);
    }
  }

  __device__ __forceinline__ OrdinalRange load_all() {
    OrdinalRange seen;
    if (n == 0) return seen;
    in_batches([&](uint32_t first) {
      load(first);
#pragma unroll
      for (uint32_t u = 0; u < kMergeLoads; ++u) {
        seen.see(ordinal[u]);
        if (!kHeld && staged != nullptr && place(first, u) < n)
          staged[place(first, u)] = ordinal[u];
      }
    });
    return seen;
  }

  // Calls f(ordinal, candidate) for each, candidate() telling the rest of it; with kWhole all of it
  // is read beforehand.
  template <bool kWhole = false, typename F>
  __device__ __forceinline__ void for_each(F&& f) {
    in_batches([&](uint32_t first) {
      const bool whole = kHeld || kWhole || staged == nullptr;
      if (!whole) {
#pragma unroll
        for (uint32_t u = 0; u < kMergeLoads; ++u) {
          ordinal[u] = place(first, u) < n ? staged[place(first, u)] : 0;
        }
      } else if (!kHeld) {
        load(first);
      }
#pragma unroll
      for (uint32_t u = 0; u < kMergeLoads; ++u) {
        f(ordinal[u], [&] {
          const uint32_t i = place(first, u);
          Candidate c = whole ? Candidate{bits[u], index[u], true} : source.read(i);
          c.index = source.index_in_row(i, c.index);
          return c;
        });
      }
    });
  }
};

// Winners on their way into an order: ascending keys, each with the bits of its value.
struct Pairs {
  uint64_t* keys;
  uint32_t* bits;
};

// Shared memory behind MergeScratch: ordinals of the candidates if staged, then two sets of pairs
// if an order is asked for.
TL_TOPK_HD int64_t staged_bytes(int64_t candidates) { return (candidates + 3) / 4 * 16; }
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

template <Dtype D, bool kWords, bool kHeld>
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
  RowCandidates<D, kWords, kHeld> candidates{
      {args, shards, row}, params.staged ? reinterpret_cast<uint32_t*>(memory) : nullptr, n};
  if (params.staged) memory += staged_bytes(n);

  clear(scratch.cut);
  const OrdinalRange seen = candidates.load_all();
  __syncthreads();
  const Cut cut = find_cut(k, seen, scratch.cut, [&](auto&& f) {
    candidates.for_each(
        [&](uint32_t ordinal, auto&& candidate) { f(ordinal, [&] { return candidate().index; }); });
  });

  // The undecided go to where they are compared, the others are counted.
  const auto side_of = [&](uint32_t ordinal, auto&& candidate) {
    return cut.side(ordinal, [&] { return candidate().index; });
  };
  uint32_t mine = 0;
  candidates.for_each([&](uint32_t ordinal, auto&& candidate) {
    const Side side = side_of(ordinal, candidate);
    mine += side == Side::kAbove;
    if (side != Side::kUndecided || cut.inside == 0) return;
    const Candidate c = candidate();
    scratch.cut.tied[atomicAdd(&scratch.cut.tied_count, 1u)] = {rank_of_ordinal(ordinal, c.index),
                                                                c.bits};
  });
  uint32_t count = 0;
  uint32_t slot = block_exclusive_sum(mine, scratch.cut.warp_sums, &count);

  const MergedRow<D> out{args.indices + row * args.k,
                         static_cast<typename RawOf<D>::Type*>(args.values) + row * args.k};
  const bool in_shared = sorts_in_shared(args);
  const bool by_value = args.order == Order::kValue;
  const Pairs pairs{reinterpret_cast<uint64_t*>(memory),
                    reinterpret_cast<uint32_t*>(memory + k * sizeof(uint64_t))};
  const auto put = [&](uint32_t at, uint64_t rank, uint32_t bits) {
    if (in_shared) {
      pairs.keys[at] = by_value ? ~rank : index_of_rank(rank);
      pairs.bits[at] = bits;
    } else {
      out.write(at, index_of_rank(rank), bits);
    }
  };
  candidates.template for_each<true>([&](uint32_t ordinal, auto&& candidate) {
    if (side_of(ordinal, candidate) != Side::kAbove) return;
    const Candidate c = candidate();
    put(slot++, rank_of_ordinal(ordinal, c.index), c.bits);
  });
  for_each_wanted(cut, scratch.cut, [&](uint32_t place, const Tied& tied) {
    put(count + place, tied.rank, tied.payload);
  });
  count += cut.wanted;
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
