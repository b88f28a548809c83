// Off the usual path: where too many crowd into the bin of the k-th element.
#pragma once

#include <cstdint>

#include "bin_map.h"
#include "cuda/count_table.cuh"
#include "cuda/select.cuh"
#include "cuda/survivors.cuh"
#include "cuda/team.cuh"
#include "key.h"

namespace tl_topk {

// The highest of the team's entries in bin `last`, where its blocks' tables have been.
template <uint32_t kHeld, Scope S>
__device__ __forceinline__ float highest_in(const HeldEntries<kHeld>& held, int32_t last,
                                            const Team<S>& team, SharedState& state) {
  uint32_t* const highest = state.radix.bins;  // of each block, as a key; 0 for none
  uint32_t mine = 0;
  held.for_each([&](uint32_t u) {
    const uint32_t key = order_key_of_number(__float_as_uint(held.entry[u].score));
    if (held.bin[u] == last) mine = max(mine, key);
  });
  mine = __reduce_max_sync(kAllLanes, mine);
  if (threadIdx.x < kMaxClusterBlocks) highest[threadIdx.x] = 0;
  __syncthreads();
  if (threadIdx.x % kWarp == 0) atomicMax(&highest[team.rank()], mine);
  __syncthreads();
  team.sum(highest, kMaxClusterBlocks);
  const uint32_t of_all = highest[threadIdx.x % kMaxClusterBlocks];
  return __uint_as_float(bits_of_key(__reduce_max_sync(kAllLanes, of_all)));
}

// Where too many crowd into the bin of the k-th element, bins once more: what lies above it shares
// the last one, it is divided among the others, and what lies below is out. Twice, if need be; and
// before that the last bin, which has no upper end, is divided up to the highest element in it.
// False where the sample misled.
template <uint32_t kHeld, Scope S>
__device__ __forceinline__ bool divide_bins(HeldEntries<kHeld>& held, BinMap map, uint32_t k,
                                            const Team<S>& team, SharedState& state) {
  constexpr int32_t kParts = kTableBins - 1;
  constexpr int kTurns = 3;
#pragma unroll 1
  for (int turn = 0; turn < kTurns; ++turn) {
    const auto cut = static_cast<int32_t>(state.cut.bin);
    if (state.cut.inside <= kMaxResidual) break;
    if (cut != kParts) {
      map = {map.scale * kParts, (map.shift - static_cast<float>(cut)) * kParts, kParts - 1};
    } else if (turn == 0) {
      const float low = (kParts - map.shift) / map.scale;
      __syncthreads();  // the cut has been read, and the tables
      map = map_between(low, highest_in(held, cut, team, state), kTableBins);
    } else {
      break;
    }
    held.for_each([&](uint32_t u) {
      int32_t& bin = held.bin[u];
      bin = bin > cut   ? kParts
            : bin < cut ? -1
                        : static_cast<int32_t>(map(mapped(held.entry[u].score)));
    });
    __syncthreads();  // the cut has been read
    if (threadIdx.x < kTableBins) state.own.bins[threadIdx.x] = 0;
    if (threadIdx.x == 0) state.cut = TableCut::none();
    __syncthreads();
    held.count(state.own);
    __syncthreads();
    team.exchange_tables();
    held.sort(state.tables[team.rank()]);
    tally_tables(state.tables, team.size_log2(), k, state.cut);
    if (!state.cut.found()) return false;
  }
  return true;
}

// How winners are put in order there: once they are all known.
struct InOrderLater {
  __device__ bool by_value() const { return false; }
  __device__ bool by_index(Places) const { return false; }
};

// From the tables to the winners off the usual path. False, and nothing done, where the sample
// misled.
template <uint32_t kHeld, Dtype D, bool kMapped, Scope S>
__device__ __noinline__ bool select_crowded(Entry* list, uint32_t listed, BinMap map,
                                            const Output<D, kMapped> out, const Team<S> team,
                                            SharedState& state) {
  HeldEntries<kHeld> held(list, listed, map);
  if (!divide_bins(held, map, out.k, team, state)) return false;
  const TableCut cut = state.cut;
  const OrderedList survivors{list, state.tables[team.rank()].count(0), kHeld * kThreads};
  if (cut.inside > kMaxResidual || !kWith<Part::kPairs>) {
    constexpr uint32_t kUnknownCount = 0xffffffffu;  // more than any list holds
    select_by_radix(ListRanks{list, survivors.listed}, {0, 64, out.k, kUnknownCount}, out, team,
                    state);
  } else {
    select_generally(survivors, cut, out, team, state, InOrderLater{});
  }
  return true;
}

}  // namespace tl_topk
