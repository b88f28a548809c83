// From survivors to winners: by the cut that the count tables give, or by exact digits.
#pragma once

#include <cstdint>

#include "cuda/output.cuh"
#include "cuda/radix.cuh"
#include "cuda/survivors.cuh"
#include "cuda/team.cuh"

namespace tl_topk {

// The cache slots of a mapped launch's entries, in registers; nothing of another launch.
template <uint32_t kHeld, bool kMapped>
struct HeldSlots {
  template <Dtype D>
  __device__ __forceinline__ HeldSlots(const HeldEntries<kHeld>&, const Output<D, false>&) {}
  static constexpr bool wanted = false;
};
template <uint32_t kHeld>
struct HeldSlots<kHeld, true> {
  bool wanted;  // in another order than any they are found when the order is
  int32_t slot[kHeld];

  // Those of all survivors: while the block waits anyway, rather than those of the winners alone
  // when it does not.
  template <Dtype D>
  __device__ __forceinline__ HeldSlots(const HeldEntries<kHeld>& held, const Output<D, true>& out)
      : wanted(out.free_order() && out.mapping->slots != nullptr) {
    if (!wanted) return;
    const RowMapping map = *out.mapping;
    held.for_each([&](uint32_t u) {  // all under way before the first is used
      const uint32_t column = map.column(held.entry[u].index);
      slot[u] = ptx::load_if(map.table + column, held.bin[u] >= 0 && column < map.pages, -1);
    });
    held.for_each([&](uint32_t u) { slot[u] = map.slot(slot[u], held.entry[u].index); });
  }
};

// The cut's bin goes to the leader, everything above it to its slot; then the leader ranks the at
// most kMaxResidual elements of the bin, and the best of them win too.
// `slots` are those of a mapped launch.
template <Dtype D, bool kMapped, Scope S, uint32_t kHeld>
__device__ __forceinline__ void select_by_cut(const HeldEntries<kHeld>& held,
                                              const HeldSlots<kHeld, kMapped>& slots,
                                              const Crossing& c, const Output<D, kMapped>& out,
                                              const Team<S>& team, SharedState& state) {
  const auto cut = static_cast<int32_t>(c.bin);
  if (team.leads() && threadIdx.x == 0) team.expect_residual(c.inside, slots.wanted);
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
    const uint32_t at = before.inside + atomicAdd(&state.residual_count, 1);
    team.send_residual(at, e.rank());
    if constexpr (kMapped) {
      if (slots.wanted) team.send_residual_slot(at, out.mapping->slot(e.index));
    }
  }
  __syncwarp();
  const uint32_t first = take_places(
      total, [&](uint32_t n) { return before.above + ptx::lane0_add(&state.winners, n); });
  const uint32_t below = voters_below();
  const auto for_winners = [&](auto&& f) {  // f(u, place, whether this lane's entry u wins it)
    uint32_t place = first;
    held.for_each([&](uint32_t u) {
      f(u, place + __popc(votes[u] & below), held.bin[u] > cut);
      place += __popc(votes[u]);
    });
  };
  const auto store_indices = [&] {
    for_winners([&](uint32_t u, uint32_t at, bool wins) {
      ptx::store_if(out.indices + at, held.entry[u].index, wins);
    });
  };
  if (!kMapped && out.plain()) {  // the common case
    store_indices();
  } else if (!kMapped || !out.free_order()) {
    for_winners([&](uint32_t u, uint32_t at, bool wins) {
      if (wins) out.put(team, at, held.entry[u]);
    });
  }
  if constexpr (kMapped) {  // one loop an output: most launches have one
    if (slots.wanted) {
      int32_t* const to = out.mapping->slots;
      for_winners([&](uint32_t u, uint32_t at, bool wins) {
        ptx::store_if(to + at, static_cast<uint32_t>(slots.slot[u]), wins);
      });
    }
    if (out.free_order() && out.mapping->ragged != nullptr) {
      int32_t* const to = out.mapping->ragged;
      const uint32_t offset = out.mapping->offset;
      for_winners([&](uint32_t u, uint32_t at, bool wins) {
        ptx::store_if(to + at, held.entry[u].index + offset, wins);
      });
    }
    if (out.free_order() && out.indices != nullptr) store_indices();
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
    if (c.above + better >= out.k) return;
    if constexpr (kMapped) {
      if (out.free_order()) {
        const int32_t slot = state.residual_slots[threadIdx.x];  // if wanted
        return out.write(c.above + better, index_of_rank(mine), *out.mapping, slot);
      }
    }
    out.put_ranked(team, c.above + better, mine);
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
  uint32_t slot = 0;
  if (threadIdx.x % kWarp == 0) slot = ptx::lane0_add(&state.winners, mine);
  slot = __shfl_sync(kAllLanes, slot, 0);
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
