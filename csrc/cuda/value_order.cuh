// Winners in order of value, by all blocks of a row together.
//
// The bins that were counted are in that order already. From all tables each block knows where
// every bin's winners come, and its own among them; it takes a part of the slots, is sent the bins
// that reach into it, and ranks each winner within its bin. So no block has more than a part to do,
// and no table is exchanged again.
#pragma once

#include <cstdint>

#include "bin_map.h"
#include "cuda/count_table.cuh"
#include "cuda/output.cuh"
#include "cuda/shared_state.cuh"
#include "cuda/survivors.cuh"
#include "cuda/team.cuh"
#include "key.h"

namespace tl_topk {

constexpr uint32_t kMostInBin = 128;  // winners, each compared with all others there

// Where a bin's winners begin, and this block's among them: two halves of a word.
struct BinStart {
  uint32_t word;

  __device__ static BinStart of(uint32_t all, uint32_t own) { return {all | own << 16}; }
  __device__ uint32_t all() const { return word & 0xffff; }
  __device__ uint32_t own() const { return word >> 16; }
};

// Writes what lies above the cut; `map` gives the bins that were counted, and `keys` has room for
// all winners. False, and nothing done, where too many crowd into a bin. Called by all blocks.
template <Dtype D, bool kMapped, Scope S>
__device__ __noinline__ bool write_by_value(const Entry* list, const BinMap map, const TableCut cut,
                                            const Output<D, kMapped> out, const Team<S> team,
                                            uint64_t* keys, SharedState& state) {
  const uint32_t blocks = 1u << team.size_log2();
  const uint32_t each = (cut.above + blocks - 1) >> team.size_log2();
  const uint32_t part_log2 = 32 - __clz(max(each, 1u) - 1);
  const uint32_t begin = min(team.rank() << part_log2, cut.above);  // of this block's slots
  const uint32_t end = min((team.rank() + 1) << part_log2, cut.above);

  uint32_t* const starts = state.own.bins;  // whose counts are in the tables
  static_assert(kTableBins <= kThreads);
  bool crowded = false;
  if (threadIdx.x < kTableBins) {
    const uint32_t bin = threadIdx.x;
    uint32_t above = 0;
    uint32_t inside = 0;
    uint32_t before = 0;  // of earlier blocks
#pragma unroll
    for (uint32_t b = 0; b < kMaxClusterBlocks; ++b) {
      if (b >= blocks) break;
      const uint32_t higher = state.tables[b].count_above(bin);
      const uint32_t here = state.tables[b].count(bin) - higher;
      above += higher;
      inside += here;
      before += b < team.rank() ? here : 0;
    }
    starts[bin] = BinStart::of(above, above + before).word;
    if (bin > cut.bin && above < end && above + inside > begin) {
      atomicMin(&state.reach_begin, above);
      atomicMax(&state.reach_end, above + inside);
    }
    crowded = bin > cut.bin && inside > kMostInBin;
  }
  if (__syncthreads_or(crowded)) return false;

  const auto start_of = [&](uint32_t bin) { return BinStart{starts[bin]}; };
  const auto bin_of = [&](float score) { return map(mapped(score)); };
  const uint32_t first = min(state.reach_begin, state.reach_end);
  const uint32_t last = state.reach_end;
  if (threadIdx.x == 0) team.expect_keys((last - first) * static_cast<uint32_t>(sizeof(uint64_t)));
  const CountTable& own = state.tables[team.rank()];
  for (uint32_t i = threadIdx.x; i < own.count_above(cut.bin); i += kThreads) {
    const Entry& e = list[i];
    const uint32_t bin = bin_of(e.score);
    const BinStart start = start_of(bin);
    const uint32_t at = start.own() + i - own.count_above(bin);
    const uint32_t stop = start_of(bin - 1).all();
    for (uint32_t to = start.all() >> part_log2; to <= (stop - 1) >> part_log2; ++to) {
      team.send_key(to, at, ~e.rank());
    }
  }

  team.await_keys();
  // A few lanes rank a key together; whole warps go round.
  constexpr uint32_t kLanes = 2;
  const uint32_t part = threadIdx.x % kLanes;
  for (uint32_t i = first + threadIdx.x / kLanes; i - threadIdx.x % kWarp / kLanes < last;
       i += kThreads / kLanes) {
    const uint64_t key = keys[min(i, last - 1)];  // ascending: best first
    const uint32_t bin = bin_of(__uint_as_float(bits_of_key(key_of_rank(~key))));
    const uint32_t start = start_of(bin).all();
    const uint32_t stop = start_of(bin - 1).all();
    uint32_t better = 0;
    for (uint32_t j = start + part; j < stop; j += kLanes) better += keys[j] < key;
#pragma unroll
    for (uint32_t d = 1; d < kLanes; d *= 2) better += __shfl_xor_sync(kAllLanes, better, d);
    const uint32_t slot = start + better;
    if (part == 0 && i < last && slot >= begin && slot < end) out.write(slot, index_of_rank(~key));
  }
  return true;
}

}  // namespace tl_topk
