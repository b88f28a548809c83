// The leader's part: the k best of the entries it was delivered.
#pragma once

#include <cstdint>

#include "bin_map.h"
#include "cuda/output.cuh"
#include "cuda/radix.cuh"
#include "cuda/shared_state.cuh"
#include "cuda/survivors.cuh"

namespace tl_topk {

// Where the k-th element lies among the linear bins of the entries above `floor`.
struct Cut {
  BinMap map;
  float floor;
  Crossing crossing;
  bool found;  // false: fewer than k entries lie above the floor

  __device__ int bin(const Entry& e) const { return e.score > floor ? map(e.score) : -1; }
};

constexpr uint32_t kNoBin = 0xffffffffu;

// Expects zeroed select_bins and radix.crossing.bin == kNoBin, both set before a barrier.
__device__ inline Cut find_cut(const EntryList& list, float floor, uint32_t k,
                               SharedState& state) {
  Cut cut;
  cut.floor = floor;
  cut.map = make_bin_map(fmaxf(state.anchors.low, floor), state.anchors.ceiling, kSelectBins);
  uint32_t sure = 0;  // entries in the top bin, which would otherwise queue up at one counter
  list.for_each_group([&](const auto& e, const auto& valid) {
    for (uint32_t u = 0; u < sizeof(valid) / sizeof(bool); ++u) {
      const int bin = valid[u] ? cut.bin(e[u]) : -1;
      if (bin == cut.map.last) {
        ++sure;
      } else if (bin >= 0) {
        atomicAdd(&state.select_bins[bin], 1u);
      }
    }
  });
  sure = __reduce_add_sync(kAllLanes, sure);
  if (threadIdx.x % kWarp == 0 && sure != 0) atomicAdd(&state.select_bins[kSelectBins - 1], sure);
  __syncthreads();
  find_crossing<kSelectBins>(state.select_bins, k, state.radix.scan, &state.radix.crossing);
  __syncthreads();
  cut.crossing = state.radix.crossing;
  cut.found = cut.crossing.bin != kNoBin;
  return cut;
}

// Writes every entry that `wins` accepts to the next free slot.
template <Dtype D, typename Wins>
__device__ __forceinline__ void put_winners(const EntryList& list, const Output<D>& out,
                                            SharedState& state, Wins&& wins) {
  list.for_each_group([&](const auto& e, const auto& valid) {
    constexpr uint32_t kGroup = sizeof(valid) / sizeof(bool);
    bool keep[kGroup];
#pragma unroll
    for (uint32_t u = 0; u < kGroup; ++u) keep[u] = valid[u] && wins(e[u]);
    warp_append<kGroup>(keep, &state.winners, [&](uint32_t u, uint32_t slot) {
      out.put(slot, e[u].index, e[u].rank());
    });
  });
}

// The k best of at least k entries, by digits of their ranks.
template <Dtype D>
__device__ void select_by_radix(const EntryList& list, float floor, const Output<D>& out,
                                SharedState& state) {
  const auto for_each_rank = [&](auto&& f) {
    list.for_each_group([&](const auto& e, const auto& valid) {
      for (uint32_t u = 0; u < sizeof(valid) / sizeof(bool); ++u) {
        f(e[u].rank(), valid[u] && !(e[u].score <= floor));
      }
    });
  };
  const Threshold t = find_threshold(out.row.length, out.k, out.k, state.radix, for_each_rank,
                                     [](uint32_t*) {});
  put_winners(list, out, state, [&](const Entry& e) {
    return !(e.score <= floor) && t.passes(e.rank());
  });
}

// The k best once the cut is found: everything above its bin, and the best of the few inside.
template <Dtype D>
__device__ void select_by_cut(const EntryList& list, const Cut& cut, const Output<D>& out,
                              SharedState& state) {
  const Crossing c = cut.crossing;
  if (c.inside > kMaxResidual) {
    select_by_radix(list, cut.floor, out, state);
    return;
  }
  list.for_each_group([&](const auto& e, const auto& valid) {
    constexpr uint32_t kGroup = sizeof(valid) / sizeof(bool);
    bool above[kGroup];
#pragma unroll
    for (uint32_t u = 0; u < kGroup; ++u) {
      const int bin = valid[u] ? cut.bin(e[u]) : -1;
      above[u] = bin > static_cast<int>(c.bin);
      if (bin == static_cast<int>(c.bin)) {
        state.residual[atomicAdd(&state.residual_count, 1u)] = e[u];
      }
    }
    warp_append<kGroup>(above, &state.winners, [&](uint32_t u, uint32_t slot) {
      out.put(slot, e[u].index, e[u].rank());
    });
  });
  __syncthreads();
  // One comparison a pair: each thread ranks one of the residual against all.
  if (threadIdx.x < c.inside) {
    const Entry mine = state.residual[threadIdx.x];
    const uint64_t rank = mine.rank();
    uint32_t better = 0;
    for (uint32_t i = 0; i < c.inside; ++i) better += state.residual[i].rank() > rank;
    if (c.above + better < out.k) out.put(c.above + better, mine.index, rank);
  }
}

}  // namespace tl_topk
