// From survivors to winners: by the cut that the count tables give, or by exact digits.
#pragma once

#include <cstdint>

#include "cuda/output.cuh"
#include "cuda/radix.cuh"
#include "cuda/survivors.cuh"
#include "cuda/team.cuh"

namespace tl_topk {

// The cache's pages of a mapped launch's entries, in registers; nothing of another launch.
template <uint32_t kHeld, bool kMapped>
struct HeldPages {
  template <Dtype D>
  __device__ __forceinline__ HeldPages(const HeldEntries<kHeld>&, const Output<D, false>&) {}
};
template <uint32_t kHeld>
struct HeldPages<kHeld, true> {
  RowMapping map;
  int32_t page[kHeld];

  // Reads those of all survivors: while the block waits anyway, rather than those of the winners
  // alone when it does not.
  template <Dtype D>
  __device__ __forceinline__ HeldPages(const HeldEntries<kHeld>& held, const Output<D, true>& out)
      : map(*out.mapping) {
    held.for_each(
        [&](uint32_t u) { page[u] = held.bin[u] >= 0 ? map.page_of(held.entry[u].index) : -1; });
  }
  template <Dtype D>
  __device__ __forceinline__ void store_if(uint32_t u, uint32_t at, uint32_t index,
                                           const Output<D, true>& out, bool enabled) const {
    if (map.slots != nullptr) {
      ptx::store_if(map.slots + at, static_cast<uint32_t>(map.slot(page[u], index)), enabled);
    }
    if (map.ragged != nullptr) {
      ptx::store_if(map.ragged + at, static_cast<uint32_t>(map.place(index)), enabled);
    }
    if (out.indices != nullptr) ptx::store_if(out.indices + at, index, enabled);
  }
};

// The cut's bin goes to the leader, everything above it to its slot; then the leader ranks the at
// most kMaxResidual elements of the bin, and the best of them win too.
// `pages` are those of a mapped launch.
template <Dtype D, bool kMapped, Scope S, uint32_t kHeld>
__device__ __forceinline__ void select_by_cut(const HeldEntries<kHeld>& held,
                                              const HeldPages<kHeld, kMapped>& pages,
                                              const Crossing& c, const Output<D, kMapped>& out,
                                              const Team<S>& team, SharedState& state) {
  const auto cut = static_cast<int32_t>(c.bin);
  if (team.leads() && threadIdx.x == 0) team.expect_residual(c.inside);
  const Places before = find_places(state.tables, team.rank(), c.bin);

  uint32_t votes[kHeld];
  uint32_t total = 0;
  uint32_t inside = 0;  // a bit for each of this thread's entries in the cut's bin
  held.for_each([&](uint32_t u) {
    if (held.bin[u] == cut) inside |= 1u << u;
    votes[u] = vote(held.bin[u] > cut);
    total += __popc(votes[u]);
  });
  for (; inside != 0; inside &= inside - 1) {  // seldom any: read again rather than unrolled
    const Entry& e = held.list[(__ffs(inside) - 1) * kThreads + threadIdx.x];
    team.send_residual(before.inside + atomicAdd(&state.residual_count, 1), e.rank());
  }
  __syncwarp();
  uint32_t slot = before.above + take_places(total, &state.winners);
  const uint32_t below = voters_below();
  const bool plain = out.plain();  // the common case
  held.for_each([&](uint32_t u) {
    const uint32_t at = slot + __popc(votes[u] & below);
    bool stored = false;
    if constexpr (kMapped) {
      stored = out.free_order();
      if (stored) pages.store_if(u, at, held.entry[u].index, out, held.bin[u] > cut);
    }
    if (plain) {
      ptx::store_if(out.indices + at, held.entry[u].index, held.bin[u] > cut);
    } else if (!stored && held.bin[u] > cut) {
      out.put(team, at, held.entry[u]);
    }
    slot += __popc(votes[u]);
  });
  mark(kPhaseEmit);
  if (!team.leads()) return;

  team.await_residual();
  // One comparison a pair: each thread ranks one of the residual against all.
  if (threadIdx.x < c.inside) {
    const uint64_t mine = state.residual[threadIdx.x];
    int32_t page = -1;  // read while the ranks are compared
    if constexpr (kMapped) page = out.mapping->page_of(index_of_rank(mine));
    uint32_t better = 0;
    for (uint32_t i = 0; i < c.inside; i += 4) {  // past the last: zeros, worse than any
      const auto* other = reinterpret_cast<const ulonglong2*>(&state.residual[i]);
      const ulonglong2 a = other[0];
      const ulonglong2 b = other[1];
      better += (a.x > mine) + (a.y > mine) + (b.x > mine) + (b.y > mine);
    }
    if (c.above + better >= out.k) return;
    if (kMapped && out.free_order()) {
      out.write(c.above + better, index_of_rank(mine), *out.mapping, page);
    } else {
      out.put_ranked(team, c.above + better, mine);
    }
  }
}

// The k best of what `ranks` gives this block and its peers, from what `t` already tells of them.
// `ranks(f)` calls f(rank, valid) in whole warps.
template <Dtype D, bool kMapped, Scope S, typename Ranks>
__device__ __noinline__ void select_by_radix(const Ranks ranks, Threshold t,
                                             const Output<D, kMapped> out, const Team<S> team,
                                             SharedState& state) {
  __syncthreads();  // the tables, where the digits are counted next, have been read
  t = narrow(t, out.row.length, out.k, out.k, state.radix, ranks,
             [&](uint32_t* bins, uint32_t n) { team.sum(bins, n); });
  // How many this warp has and those before it, then where each of them goes.
  uint32_t mine = 0;
  ranks([&](uint64_t rank, bool valid) { mine += valid && t.passes(rank); });
  mine = __reduce_add_sync(kAllLanes, mine);
  uint32_t slot = __shfl_sync(kAllLanes, ptx::lane0_add(&state.winners, mine), 0);
  __syncthreads();
  slot += team.sum_before(state.winners);
  if (mine == 0) return;
  ranks([&](uint64_t rank, bool valid) {
    const bool wins = valid && t.passes(rank);
    const uint32_t votes = __ballot_sync(kAllLanes, wins);
    if (wins) out.put_ranked(team, slot + __popc(votes & ptx::lanes_below()), rank);
    slot += __popc(votes);
  });
}

}  // namespace tl_topk
