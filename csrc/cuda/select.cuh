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

namespace tl_topk {

// What a mapped launch of free order writes instead of indices, and the pages of a block's
// survivors, in registers; nothing of another launch.
template <uint32_t kHeld, bool kMapped>
struct HeldPages {
  template <Dtype D>
  __device__ __forceinline__ HeldPages(const OrderedList<kHeld>&, const Output<D, false>&) {}
};
template <uint32_t kHeld>
struct HeldPages<kHeld, true> {
  // Slots if there are any, else ragged indices, else indices: one loop writes whichever it is.
  int32_t* to;
  uint32_t within;  // the bits of an index that count inside its page
  uint32_t offset;
  uint32_t cache_pages;
  int32_t page_log2;
  bool paged;
  bool more;  // outputs than this one
  int32_t page[kHeld];

  // Reads those of all survivors while the block waits anyway, rather than those of the winners
  // alone when it does not. Nothing here looks at what was read: it arrives in the meantime.
  template <Dtype D>
  __device__ __forceinline__ HeldPages(const OrderedList<kHeld>& survivors,
                                       const Output<D, true>& out) {
    const RowMapping map = *out.mapping;
    paged = map.slots != nullptr;
    const bool ragged = map.ragged != nullptr;
    const bool indices = out.indices != nullptr;
    to = paged ? map.slots : ragged ? map.ragged : out.indices;
    within = paged ? (1u << map.page_log2) - 1 : ~0u;
    offset = paged || !ragged ? 0 : map.offset;
    cache_pages = paged ? map.cache_pages : 1;
    page_log2 = map.page_log2;
    more = static_cast<int>(paged) + ragged + indices > 1;
#pragma unroll
    for (uint32_t u = 0; u < kHeld; ++u) page[u] = 0;
    if (!paged || !out.free_order()) return;
    survivors.for_some(0, survivors.listed, [&](uint32_t u, uint32_t i, bool there) {
      page[u] = load_page(map, survivors.list[i].index, there);
    });
  }

  static __device__ __forceinline__ int32_t load_page(const RowMapping& map, uint32_t index,
                                                      bool enabled) {
    const uint32_t column = map.column(index);
    return ptx::load_if(map.table + column, enabled && column < map.pages, -1);
  }
  // What is written of an index with its page: 0 where no page was asked for.
  __device__ __forceinline__ uint32_t word(int32_t page_, uint32_t index) const {
    const uint32_t sum = (static_cast<uint32_t>(page_) << page_log2) + (index & within) + offset;
    return static_cast<uint32_t>(page_) < cache_pages ? sum : ~0u;
  }
};

// The cut's bin goes to the leader, everything above it to its slot; then the leader ranks the at
// most kMaxResidual elements of the bin, and the best of them win too. `pages` are those of a
// mapped launch; `by_value` puts what lies above the cut into order of value, or says that it
// cannot. True if all winners are in their slots, false if they still have to be put in order.
template <Dtype D, bool kMapped, Scope S, uint32_t kHeld, typename ByValue>
__device__ __forceinline__ bool select_by_cut(const OrderedList<kHeld>& survivors,
                                              const HeldPages<kHeld, kMapped>& pages,
                                              const TableCut c, const Output<D, kMapped>& out,
                                              const Team<S>& team, SharedState& state,
                                              ByValue&& by_value) {
  constexpr uint32_t kResidualBytes = sizeof(uint64_t) + (kMapped ? sizeof(uint32_t) : 0);
  if (team.leads() && threadIdx.x == 0) team.expect_residual(c.inside * kResidualBytes);
  const Entry* const list = survivors.list;
  const CountTable& own = state.tables[team.rank()];
  const uint32_t above = own.count_above(c.bin);
  const uint32_t inside = own.count(c.bin) - above;
  const Places before = find_places(state.tables, team.rank(), c.bin);
  if constexpr (kMapped) {  // with what is written of it, for whoever holds its page
    survivors.for_some(above, above + inside, [&](uint32_t u, uint32_t i, bool there) {
      const uint32_t at = before.inside + i - above;
      if (there) {
        team.send_residual(&state.residual[at], list[i].rank());
        team.send_residual(&state.residual_words[at], pages.word(pages.page[u], list[i].index));
      }
    });
  } else if (threadIdx.x < inside) {
    team.send_residual(&state.residual[before.inside + threadIdx.x],
                       list[above + threadIdx.x].rank());
  }

  const auto store = [&](int32_t* to, auto&& word) {
    survivors.for_some(0, above, [&](uint32_t u, uint32_t i, bool there) {
      ptx::store_if(to + before.above + i, word(u, list[i].index), there);
    });
  };
  const auto index = [](uint32_t, uint32_t i) { return i; };
  bool written = out.free_order();
  const auto put = [&] {
    if (out.order == Order::kValue && out.by_all) written = by_value();
    if (written && !out.free_order()) return;
    survivors.for_some(0, above, [&](uint32_t, uint32_t i, bool there) {
      if (there) out.put(team, before.above + i, list[i]);
    });
  };
  if constexpr (kMapped) {
    if (out.free_order()) {
      store(pages.to, [&](uint32_t u, uint32_t i) { return pages.word(pages.page[u], i); });
      if (pages.more) {
        const RowMapping& map = *out.mapping;
        if (pages.paged && map.ragged != nullptr) {
          store(map.ragged,
                [&](uint32_t, uint32_t i) { return static_cast<uint32_t>(map.place(i)); });
        }
        if (out.indices != nullptr) store(out.indices, index);
      }
    } else {
      put();
    }
  } else if (out.plain()) {  // the common case
    store(out.indices, index);
  } else {
    put();
  }
  mark(kPhaseEmit);
  if (!team.leads()) return written;

  team.await_residual();
  // One comparison a pair: a thread ranks one of the residual, or where there are many, a part of
  // the others for it.
  const auto better_of = [&](uint64_t mine, uint32_t first, uint32_t step) {
    uint32_t better = 0;
    for (uint32_t i = first; i < c.inside; i += step) {  // past the last: zeros, worse than any
      const auto* other = reinterpret_cast<const ulonglong2*>(&state.residual[i]);
      const ulonglong2 a = other[0];
      const ulonglong2 b = other[1];
      better += (a.x > mine) + (a.y > mine) + (b.x > mine) + (b.y > mine);
    }
    return better;
  };
  uint32_t element = threadIdx.x;
  uint64_t mine;
  uint32_t better;
  constexpr uint32_t kFew = 64;
  if (c.inside <= kFew) {
    if (element >= c.inside) return written;
    mine = state.residual[element];
    better = better_of(mine, 0, 4);
  } else {
    constexpr uint32_t kLanes = kThreads / kMaxResidual;
    static_assert(kLanes == 2);
    element = threadIdx.x / kLanes;
    mine = state.residual[element];
    better = better_of(mine, 4 * (threadIdx.x % kLanes), 4 * kLanes);
    better += __shfl_xor_sync(kAllLanes, better, 1);
    if (threadIdx.x % kLanes != 0 || element >= c.inside) return written;
  }
  const uint32_t at = c.above + better;
  if (at >= out.k) return written;
  if constexpr (kMapped) {
    if (out.free_order()) {
      const auto word = static_cast<int32_t>(state.residual_words[element]);
      if (!pages.more) {
        pages.to[at] = word;
      } else {
        out.write(at, index_of_rank(mine), *out.mapping, word);
      }
      return true;
    }
  }
  if (written) {
    out.write(at, index_of_rank(mine));
  } else {
    out.put_ranked(team, at, mine);
  }
  return written;
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
