// From survivors to winners: by the cut that the count tables give, or by exact digits.
#pragma once

#include <cstdint>

#include "cuda/output.cuh"
#include "cuda/radix.cuh"
#include "cuda/survivors.cuh"
#include "cuda/team.cuh"

namespace tl_topk {

// The cut's bin goes to the leader, everything above it to its slot; then the leader ranks the at
// most kMaxResidual elements of the bin, and the best of them win too.
template <Dtype D, Scope S, typename Held>
__device__ __forceinline__ void select_by_cut(const Held& held, const Crossing& c,
                                              const Output<D>& out, const Team<S>& team,
                                              SharedState& state) {
  const auto cut = static_cast<int32_t>(c.bin);
  if (team.leads() && threadIdx.x == 0) team.expect_residual(c.inside);
  const Places before = find_places(state.tables, team.rank(), c.bin);
  bool any_inside = false;
  held.for_each([&](uint32_t u) { any_inside |= held.bin[u] == cut; });
  if (any_inside) {
    held.for_each([&](uint32_t u) {
      if (held.bin[u] == cut) {
        team.send_residual(before.inside + atomicAdd(&state.residual_count, 1),
                           held.entry(u).rank());
      }
    });
  }
  WarpAppend<Held::kHeld> append([&](uint32_t u) { return held.bin[u] > cut; });
  append.reserve([&](uint32_t n) { return before.above + ptx::lane0_add(&state.winners, n); });
  if (out.plain()) {  // the common case apart
    append.for_each([&](uint32_t u, uint32_t slot) {
      ptx::store_if(out.indices + slot, held.entry(u).index, held.bin[u] > cut);
    });
  } else {
    append.for_each([&](uint32_t u, uint32_t slot) {
      if (held.bin[u] > cut) out.put(team, slot, held.entry(u));
    });
  }
  mark(kPhaseEmit);
  if (!team.leads()) return;

  team.await_residual();
  // One comparison a pair: each thread ranks one of the residual against all.
  if (threadIdx.x < c.inside) {
    const uint64_t mine = state.residual[threadIdx.x];
    uint32_t better = 0;
    for (uint32_t i = 0; i < c.inside; i += 4) {  // past the last: zeros, worse than any
      const auto* other = reinterpret_cast<const ulonglong2*>(&state.residual[i]);
      const ulonglong2 a = other[0];
      const ulonglong2 b = other[1];
      better += (a.x > mine) + (a.y > mine) + (b.x > mine) + (b.y > mine);
    }
    if (c.above + better < out.k) out.put_ranked(team, c.above + better, mine);
  }
}

// The k best of what `ranks` gives this block and its peers, from what `t` already tells of them.
// `ranks(f)` calls f(rank, valid) in whole warps.
template <Dtype D, Scope S, typename Ranks>
__device__ __noinline__ void select_by_radix(const Ranks ranks, Threshold t, const Output<D> out,
                                             const Team<S> team, SharedState& state) {
  __syncthreads();  // the tables, where the digits are counted next, have been read
  t = narrow(t, out.row.length, out.k, out.k, state.radix, ranks,
             [&](uint32_t* bins, uint32_t n) { team.sum(bins, n); });
  ranks([&](uint64_t rank, bool valid) {
    const bool wins = valid && t.passes(rank);
    WarpAppend<1> append([&](uint32_t) { return wins; });
    if (append.total == 0) return;
    append.reserve([&](uint32_t n) { return team.add_winners(n); });
    append.for_each([&](uint32_t, uint32_t slot) {
      if (wins) out.put_ranked(team, slot, rank);
    });
  });
  team.meet();  // the leader's counter is there until the last has used it
}

}  // namespace tl_topk
