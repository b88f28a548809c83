// From survivors to winners: by the cut that the count tables give, or by exact digits.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/output.cuh"
#include "cuda/phase_clock.cuh"
#include "cuda/radix.cuh"
#include "cuda/row_ranks.cuh"
#include "cuda/survivor_list.cuh"
#include "cuda/survivors.cuh"
#include "cuda/team.cuh"
#include "cuda/words.cuh"

namespace tl_topk {

// How many of the residual rank before `mine`: one comparison a pair, shared by 2^kLanesLog2 lanes,
// few enough for all of the residual to be ranked at once. Past its end lie zeros, worse than any.
template <uint32_t kLanesLog2>
__device__ __forceinline__ uint32_t count_better(uint64_t mine, const uint64_t* residual,
                                                 uint32_t inside) {
  constexpr uint32_t kLanes = 1u << kLanesLog2;
  constexpr uint32_t kMost = kThreads / kLanes;
  static_assert(kMost <= kMaxResidual);
  constexpr uint32_t kAtOnce = 4;
  const auto* const pairs = reinterpret_cast<const ulonglong2*>(residual) + threadIdx.x % kLanes;
  uint32_t better = 0;
  uint32_t also = 0;  // the other of two: none waits for another
#pragma unroll 1
  for (uint32_t i = 0; i < kMost / 2; i += kAtOnce * kLanes) {
    if (i > 0 && 2 * i >= inside) break;
#pragma unroll
    for (uint32_t j = 0; j < kAtOnce; ++j) {
      const ulonglong2 two = pairs[i + j * kLanes];
      better += two.x > mine;
      also += two.y > mine;
    }
  }
  better += also;
#pragma unroll
  for (uint32_t d = 1; d < kLanes; d *= 2) better += __shfl_xor_sync(kAllLanes, better, d);
  return better;
}

// Calls wins(slot, rank, element) for those of the at most kWarp elements of the cut's bin that are
// among the k best, by one lane each. A warp ranks an element, or two, by one comparison a lane.
// `other` is the lane's element, or worse than any; warps that have no element may stay away.
template <typename F>
__device__ __forceinline__ void rank_few(uint64_t other, uint64_t first, uint64_t second,
                                         const TableCut& c, uint32_t k, F&& wins) {
  constexpr uint32_t kOfWarp = 2;
  static_assert(kOfWarp * kWarps == kWarp);
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t warp = threadIdx.x / kWarp;
  const uint32_t than_first = __popc(__ballot_sync(kAllLanes, other > first));
  const uint32_t than_second = __popc(__ballot_sync(kAllLanes, other > second));
  const uint32_t element = warp + lane * kWarps;  // of the first lanes
  const uint32_t slot = c.above + (lane == 0 ? than_first : than_second);
  if (lane < kOfWarp && element < c.inside && slot < k) {
    wins(slot, lane == 0 ? first : second, element);
  }
}
template <typename F>
__device__ __forceinline__ void rank_few(uint64_t other, const TableCut& c, uint32_t k, F&& wins) {
  const uint32_t warp = threadIdx.x / kWarp;
  rank_few(other, __shfl_sync(kAllLanes, other, warp), __shfl_sync(kAllLanes, other, warp + kWarps),
           c, k, wins);
}
template <typename F>
__device__ __forceinline__ void rank_few(const uint64_t* residual, const TableCut& c, uint32_t k,
                                         F&& wins) {
  const uint32_t warp = threadIdx.x / kWarp;
  if (warp >= c.inside) return;
  // Past the end lie zeros, worse than any.
  rank_few(residual[threadIdx.x % kWarp], residual[warp], residual[warp + kWarps], c, k, wins);
}

// The same for at most kMaxResidual. The more there are, the fewer lanes rank one.
template <typename F>
__device__ __forceinline__ void rank_residual(const uint64_t* residual, const TableCut& c,
                                              uint32_t k, F&& wins) {
  if (!ptx::unlikely(c.inside > kWarp)) return rank_few(residual, c, k, wins);
  const uint32_t lanes_log2 = c.inside <= kThreads / 8 ? 3 : c.inside <= kThreads / 4 ? 2 : 1;
  if (threadIdx.x / kWarp * kWarp >> lanes_log2 >= c.inside) return;
  const uint32_t element = threadIdx.x >> lanes_log2;
  const uint64_t mine = residual[element];
  const uint32_t better = lanes_log2 == 3   ? count_better<3>(mine, residual, c.inside)
                          : lanes_log2 == 2 ? count_better<2>(mine, residual, c.inside)
                                            : count_better<1>(mine, residual, c.inside);
  if (threadIdx.x % (1u << lanes_log2) != 0 || element >= c.inside) return;
  const uint32_t at = c.above + better;
  if (at < k) wins(at, mine, element);
}

// In no order: everything above the cut goes to its slot and the cut's bin to the leader, which
// ranks its at most kMaxResidual elements, and the best of them win too.
template <Scope S, typename Words>
__device__ __forceinline__ void select_free(const OrderedList& survivors, const Words& words,
                                            const TableCut& c, uint32_t k, const Team<S>& team,
                                            SharedState& state) {
  const bool with_words = words.known_to_block_alone();
  const uint32_t residual_bytes = sizeof(uint64_t) + (with_words ? sizeof(uint32_t) : 0);
  if (team.leads() && threadIdx.x == 0) team.expect_residual(c.inside * residual_bytes);
  const Entry* const list = survivors.list;
  const CountTable& own = state.tables[team.rank()];
  const uint32_t above = own.count_above(c.bin);
  const uint32_t inside = own.count(c.bin) - above;
  const Places before = find_places(state.tables, team.rank(), c.bin);
  // First what the leader waits for. Its word is known to the thread that holds the survivor.
  words.await();
  constexpr uint32_t kHolders = Words::kHolders;
  const uint32_t holder = threadIdx.x - (kThreads - kHolders);  // the others': beyond any list
  const uint32_t first = above % kHolders;
  const uint32_t turn = !with_words       ? threadIdx.x
                        : holder >= first ? holder - first
                                          : holder + kHolders - first;
  if (turn < inside) {
    const uint32_t i = above + turn;
    const uint32_t at = before.inside() + turn;
    team.send_residual(&state.residual[at], list[i].rank());
    if (with_words) {
      team.send_residual(&state.residual_words[at], words.of(i, list[i].index, true));
    }
  }
#pragma unroll 1
  for (uint32_t i = holder; i / kWarp * kWarp < above; i += kHolders) {
    const uint32_t index = list[i].index;
    words.put(before.above() + i, index, words.of(i, index, i < above), i < above);
  }
  mark(kPhaseEmit);
  if (!team.leads()) return;
  team.await_residual();
  rank_residual(state.residual, c, k, [&](uint32_t slot, uint64_t rank, uint32_t element) {
    const uint32_t index = index_of_rank(rank);
    words.put(slot, index, with_words ? state.residual_words[element] : words.of(0, index, true),
              true);
  });
}

// The same with values, or in an order. `in_order.by_value()` puts what lies above the cut into
// order of value, and `in_order.by_index(before)` all winners into that of index, or they say that
// they cannot. True if all winners are in their slots, false if they still have to be put in order.
template <Dtype D, bool kMapped, Scope S, typename InOrder>
__device__ __forceinline__ bool select_by_cut(const OrderedList& survivors, const TableCut& c,
                                              const Output<D, kMapped>& out, const Team<S>& team,
                                              SharedState& state, const InOrder& in_order) {
  if (team.leads() && threadIdx.x == 0) team.expect_residual(c.inside * sizeof(uint64_t));
  const Entry* const list = survivors.list;
  const CountTable& own = state.tables[team.rank()];
  const uint32_t above = own.count_above(c.bin);
  const uint32_t inside = own.count(c.bin) - above;
  const Places before = find_places(state.tables, team.rank(), c.bin);
  if (threadIdx.x < inside) {
    team.send_residual(&state.residual[before.inside() + threadIdx.x],
                       list[above + threadIdx.x].rank());
  }
  if (in_order.by_index(before)) return true;
  const bool by_value = out.order == Order::kValue && out.by_all && in_order.by_value();
  if (!by_value) {
    for (uint32_t i = threadIdx.x; i < above; i += kThreads) {
      out.put(team, before.above() + i, list[i]);
    }
  }
  mark(kPhaseEmit);
  const bool written = by_value || out.free_order();
  if (!team.leads()) return written;
  team.await_residual();
  rank_residual(state.residual, c, out.k, [&](uint32_t slot, uint64_t rank, uint32_t) {
    if (written) {
      out.write(slot, index_of_rank(rank));
    } else {
      out.put_ranked(team, slot, rank);
    }
  });
  return written;
}

// Either of them, once the cut is known.
template <Dtype D, bool kMapped, Scope S, typename InOrder>
__device__ __forceinline__ bool select_generally(const OrderedList& survivors, const TableCut& c,
                                                 const Output<D, kMapped>& out, const Team<S>& team,
                                                 SharedState& state, const InOrder& in_order) {
  if constexpr (kMapped) {
    if (out.free_order()) {
      select_free(survivors, AnyWords(out, survivors, team.size_log2()), c, out.k, team, state);
      return true;
    }
  }
  return select_by_cut(survivors, c, out, team, state, in_order);
}

// Lists those of a share that pass, while there is room; state.winners counts all of them.
template <Dtype D>
__device__ __forceinline__ void list_passing(const RowRanks<D>& ranks, const Threshold& t,
                                             uint64_t* list, uint32_t room, SharedState& state) {
  constexpr uint32_t kPerVector = RowRanks<D>::kPerVector;
  ranks.for_each_vector([&](const float (&x)[kPerVector], uint32_t first) {
    const auto rank = [&](uint32_t j) {
      return rank_key(order_key(__float_as_uint(x[j])), first + j);
    };
    uint32_t mine = 0;  // a bit for each that passes
#pragma unroll
    for (uint32_t j = 0; j < kPerVector; ++j) {
      mine |= first + j < ranks.row.length && t.passes(rank(j)) ? 1u << j : 0;
    }
    if (!__any_sync(kAllLanes, mine != 0)) return;
    const ListPlaces places = places_in_list(__popc(mine), &state.winners);
    uint32_t at = places.first + places.before;
#pragma unroll
    for (uint32_t j = 0; j < kPerVector; ++j) {
      if ((mine >> j & 1) != 0 && at < room) list[at] = rank(j);
      at += mine >> j & 1;
    }
  });
}

// The k best of what `ranks` gives this block and its peers, from what `t` already tells of them.
// `ranks(f)` calls f(rank, valid) in whole warps. `list` is memory for `room` ranks: with it, what
// is read from global memory is read once to find the winners.
template <Dtype D, bool kMapped, Scope S, typename Ranks>
__device__ __noinline__ void select_by_radix(const Ranks ranks, Threshold t,
                                             const Output<D, kMapped> out, const Team<S> team,
                                             SharedState& state, uint64_t* list = nullptr,
                                             uint32_t room = 0) {
  __syncthreads();  // the tables, where the digits are counted next, have been read
  t = narrow(t, out.row.length, out.k, out.k, state.radix, ranks,
             [&](uint32_t* bins, uint32_t n) { team.sum(bins, n); });
  if constexpr (std::is_same_v<Ranks, RowRanks<D>>) {
    list_passing(ranks, t, list, room, state);
  } else {
    uint32_t mine = 0;
    ranks([&](uint64_t rank, bool valid) { mine += valid && t.passes(rank); });
    mine = __reduce_add_sync(kAllLanes, mine);
    if (threadIdx.x % kWarp == 0) atomicAdd(&state.winners, mine);
  }
  __syncthreads();
  const uint32_t count = state.winners;
  const uint32_t first = team.sum_before(count);  // this block's slots begin here
  if (count <= room) {
    for (uint32_t i = threadIdx.x; i < count; i += kThreads) {
      out.put_ranked(team, first + i, list[i]);
    }
    return;
  }
  __syncthreads();
  if (threadIdx.x == 0) state.winners = 0;
  __syncthreads();
  ranks([&](uint64_t rank, bool valid) {
    const bool wins = valid && t.passes(rank);
    const uint32_t votes = __ballot_sync(kAllLanes, wins);
    if (votes == 0) return;
    const uint32_t at =
        first + __shfl_sync(kAllLanes, ptx::lane0_add(&state.winners, __popc(votes)), 0);
    if (wins) out.put_ranked(team, at + __popc(votes & ptx::lanes_below()), rank);
  });
}

}  // namespace tl_topk
