// The leader's part: the k best of the entries it was delivered.
#pragma once

#include <cstdint>

#include "bin_map.h"
#include "cuda/output.cuh"
#include "cuda/radix.cuh"
#include "cuda/shared_state.cuh"
#include "cuda/survivors.cuh"

namespace tl_topk {

constexpr uint32_t kNoBin = 0xffffffffu;

// Finds the bin that holds the k-th entry; its number is kNoBin when there are fewer than k.
// Expects zeroed select_bins, and radix.crossing.bin == kNoBin, set before a barrier.
template <uint32_t kHeld>
__device__ __forceinline__ Crossing find_cut(const HeldEntries<kHeld>& held, uint32_t k,
                                             SharedState& state) {
  held.for_each([&](uint32_t u) {
    ptx::shared_increment(&state.select_bins[held.bin[u]], held.bin[u] >= 0);
  });
  __syncthreads();
  find_crossing<kSelectBins>(state.select_bins, k, state.radix.tile_sums, &state.radix.crossing);
  __syncthreads();
  return state.radix.crossing;
}

// The k best of at least k entries, by digits of their ranks, from what `t` already tells of them.
// Entries at or below `floor` do not count; a NaN floor rejects nothing.
template <Dtype D>
__device__ __noinline__ void select_by_radix(const EntryList list, float floor, Threshold t,
                                             const Output<D> out, SharedState& state) {
  const auto for_each_rank = [&](auto&& f) {
    list.for_each([&](const Entry& e, bool valid) { f(e.rank(), valid && !(e.score <= floor)); });
  };
  t = narrow(t, out.row.length, out.k, out.k, state.radix, for_each_rank,
             [](uint32_t*, uint32_t) {});
  list.for_each([&](const Entry& e, bool valid) {
    const bool wins = valid && !(e.score <= floor) && t.passes(e.rank());
    WarpAppend<1> append([&](uint32_t) { return wins; });
    append.reserve([&](uint32_t n) { return ptx::lane0_add(&state.winners, n); });
    append.for_each([&](uint32_t, uint32_t slot) {
      if (wins) out.put(slot, e);
    });
  });
}

// The k best once the cut is found: everything above its bin, and the best of the at most
// kMaxResidual inside. Expects a zeroed residual.
template <Dtype D, uint32_t kHeld>
__device__ __forceinline__ void select_by_cut(const HeldEntries<kHeld>& held, const Crossing& c,
                                              const Output<D>& out, SharedState& state) {
  const auto cut = static_cast<int32_t>(c.bin);
  bool any_inside = false;
  held.for_each([&](uint32_t u) { any_inside |= held.bin[u] == cut; });
  if (any_inside) {
    held.for_each([&](uint32_t u) {
      if (held.bin[u] == cut) {
        const Entry e = held.first[u * held.step];
        state.residual[atomicAdd(&state.residual_count, 1)] = e.rank();
      }
    });
  }
  WarpAppend<kHeld> append([&](uint32_t u) { return held.bin[u] > cut; });
  append.reserve([&](uint32_t n) { return ptx::lane0_add(&state.winners, n); });
  if (out.plain()) {  // the common case apart: what the leader spends its time on
    append.for_each([&](uint32_t u, uint32_t slot) {
      ptx::store_if(out.indices + slot, held.index[u], held.bin[u] > cut);
    });
  } else {
    append.for_each([&](uint32_t u, uint32_t slot) {
      if (held.bin[u] > cut) out.put(slot, held.first[u * held.step]);
    });
  }
  __syncthreads();
  // One comparison a pair: each thread ranks one of the residual against all. Ranks past the last
  // are zero, worse than any.
  if (threadIdx.x < c.inside) {
    const uint64_t mine = state.residual[threadIdx.x];
    uint32_t better = 0;
    for (uint32_t i = 0; i < c.inside; i += 4) {
      const auto* other = reinterpret_cast<const ulonglong2*>(&state.residual[i]);
      const ulonglong2 a = other[0];
      const ulonglong2 b = other[1];
      better += (a.x > mine) + (a.y > mine) + (b.x > mine) + (b.y > mine);
    }
    if (c.above + better < out.k) out.put_ranked(c.above + better, mine);
  }
}

}  // namespace tl_topk
