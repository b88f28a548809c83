// The kernel for k up to kMaxFastK: floor, filter, count, exchange, cut, emit.
//
//   1. Every block loads its share of the row and guesses a floor from what it has just loaded.
//   2. It lists the elements above its floor, a few per cent of the row, and counts them by bins.
//   3. Blocks exchange their counts. From all of them each derives the bin that holds the k-th
//      element, and the slots of its own elements above that bin.
//   4. Those are written by their blocks; the leader ranks the few inside the bin.
//
// That is exact if the bin lies above every floor used; all blocks see whether it does. Where the
// sample misled, or a list overflowed, all blocks find the threshold by exact digits instead.
#pragma once

#include <cstdint>

#include "config.h"
#include "cuda/anchors.cuh"
#include "cuda/phase_clock.cuh"
#include "cuda/row_ranks.cuh"
#include "cuda/select.cuh"
#include "cuda/ties.cuh"

namespace tl_topk {

// Rows no longer than k: everything is selected, and the team shares the writing.
template <Dtype D, bool kMapped, Scope S>
__device__ __noinline__ void select_all(const Output<D, kMapped> out, const RowMapping map,
                                        const Team<S> team, bool largest, void* sort_buffer,
                                        void* spare, SharedState& state) {
  const uint32_t n = out.row.length;
  if (out.order == Order::kValue) {
    if (!team.leads()) return;
    for (uint32_t i = threadIdx.x; i < n; i += kThreads) {
      static_cast<uint64_t*>(sort_buffer)[i] = ~rank_of(out.row, i);
    }
    if (kMapped && threadIdx.x == 0) state.mapping = map;
    write_ordered(out, n, sort_buffer, spare, state.order);
    for (uint32_t i = n + threadIdx.x; i < out.k; i += kThreads) out.pad(i, largest, map);
    return;
  }
  const uint32_t step = kThreads << team.size_log2();
  const uint32_t first = team.rank() * kThreads + threadIdx.x;
  if constexpr (kMapped) {
    out.write_mapped(first, step, n, map, [](uint32_t slot) { return slot; });
    for (uint32_t i = n + first; i < out.k; i += step) out.pad(i, largest, map);
  } else {
    for (uint32_t i = first; i < out.k; i += step) {
      if (i < n) {
        out.write(i, i);
      } else {
        out.pad(i, largest, map);
      }
    }
  }
}

// This lane's vectors of one step. All but the warps at the row's ends pass one check and load
// without another branch.
template <Dtype D, int kLoads>
__device__ __forceinline__ void load_step(const Row<D>& row, const Deal& deal, uint32_t step,
                                          uint4 (&loaded)[kLoads]) {
  constexpr uint32_t kPerVector = Row<D>::kPerVector;
  const uint32_t first = row.index(deal.vector(0, step));
  const uint32_t last = row.index(deal.vector(kLoads - 1, step)) + (kPerVector - 1);
  if (first < row.length && last < row.length && !row.unaligned) {
#pragma unroll
    for (uint32_t u = 0; u < kLoads; ++u) loaded[u] = row.load_inside(deal.vector(u, step));
  } else {
#pragma unroll
    for (uint32_t u = 0; u < kLoads; ++u) loaded[u] = row.load(deal.vector(u, step));
  }
}

template <Dtype D, int kLoads>
__device__ __forceinline__ void widen_step(const uint4 (&loaded)[kLoads], uint32_t flip,
                                           float (&x)[kLoads * Row<D>::kPerVector]) {
  constexpr uint32_t kPerVector = Row<D>::kPerVector;
#pragma unroll
  for (uint32_t u = 0; u < kLoads; ++u) {
    widen_vector<D>(loaded[u], flip, *reinterpret_cast<float (*)[kPerVector]>(x + u * kPerVector));
  }
}

// Lists those of x, loaded by a step, that lie above the floor; `survivors` counts them, also when
// there is no more room.
template <Dtype D, uint32_t kElements>
__device__ __forceinline__ void list_step(const float (&x)[kElements], const Row<D>& row,
                                          const Deal& deal, uint32_t step, float floor, Entry* list,
                                          uint32_t capacity, uint32_t* survivors) {
  constexpr uint32_t kPerVector = Row<D>::kPerVector;
  uint32_t mine = 0;
#pragma unroll
  for (uint32_t i = 0; i < kElements; ++i) mine += x[i] > floor;
  const uint32_t up_to_mine = kWith<Part::kVotes> ? warp_inclusive_sum(mine) : mine;
  const uint32_t total = kWith<Part::kVotes> ? __shfl_sync(kAllLanes, up_to_mine, kWarp - 1) : mine;
  if (total == 0) return;
  const uint32_t first =
      take_places(total, [&](uint32_t n) { return ptx::lane0_add(survivors, n); });
  if (first + total > capacity) return;
  Entry* at = list + first + up_to_mine - mine;
#pragma unroll
  for (uint32_t i = 0; i < kElements; ++i) {
    const uint32_t index = row.index(deal.vector(i / kPerVector, step)) + i % kPerVector;
    if (x[i] > floor) *at++ = {x[i], index};
  }
}

// From all blocks' tables to the winners. `held` gives this block's survivors, `listed` their ranks
// and `rest` those of its whole share, which only the slow paths call.
template <Dtype D, bool kMapped, Scope S, typename Held, typename Listed, typename Rest>
__device__ __forceinline__ void select_by_tables(const Held& held, const Listed& listed,
                                                 const Rest& rest, const BinMap& map,
                                                 const Output<D, kMapped>& out, const Team<S>& team,
                                                 SharedState& state) {
  using Entries = decltype(held());
  const HeldPages<Entries::kHeld, kMapped> pages(held(), out);
  team.await_tables();
  mark(kPhaseExchange);
  tally_tables(state.tables, team.size_log2(), out.k, state.tally);
  mark(kPhaseCut);

  const Tally& tally = state.tally;
  const Crossing cut = tally.cut;
  const float floor = __uint_as_float(bits_of_key(tally.highest_floor));
  // Above the highest floor no block has rejected anything.
  const bool complete = tally.highest_floor == tally.lowest_floor || cut.bin > map(mapped(floor));
  if (tally.overflow != 0 || cut.bin == kNoBin || !complete) {
    const auto ranks = rest();
    select_by_radix(ranks, guess_tie(ranks, out.row, floor, out.k, team, state), out, team, state);
  } else if (cut.inside > kMaxResidual || !kWith<Part::kPairs>) {
    constexpr uint32_t kUnknownCount = 0xffffffffu;  // more than any list holds
    select_by_radix(listed(), {0, 64, out.k, kUnknownCount}, out, team, state);
  } else {
    select_by_cut(held(), pages, cut, out, team, state);
  }
}

// kHeld: how many survivors a thread has room for; kResident where one step loads a block's share,
// which then stays in registers.
template <Dtype D, Scope S, int kLoadsLog2, uint32_t kHeld, bool kMapped>
__device__ __forceinline__ void select_row(const Params<kMapped>& params) {
  constexpr int kLoads = 1 << kLoadsLog2;
  constexpr uint32_t kPerVector = Row<D>::kPerVector;
  constexpr uint32_t kElements = kLoads * kPerVector;
  constexpr bool kOneStep = kHeld == kResident;
  constexpr uint32_t kRoom = (kOneStep ? kElements : kHeld) * kThreads;
  extern __shared__ __align__(16) unsigned char shared_memory[];
  SharedState& state = *reinterpret_cast<SharedState*>(shared_memory);
  Entry* const list = reinterpret_cast<Entry*>(shared_memory + sizeof(SharedState));
  // Room to sort: this many keys, and as many spare ones in place of the list.
  void* const sort_buffer = list + max(kRoom, params.sort_entries);
  const Team<S> team(state, sort_buffer, params);
  mark(kPhaseStart);
  ptx::wait_for_previous_kernel();

  Row<D> row = find_row<D>(params, team.row());
  if constexpr (kOneStep) row.fit(kLoads * kThreads << team.size_log2());
  const auto out = make_output<kMapped>(params, team.row(), row, state.mapping);
  if (row.length <= out.k) {
    const RowMapping map = mapping_of(params, team.row());
    select_all(out, map, team, params.largest, sort_buffer, list, state);
    return;
  }

  // The loads go out first; everything that needs no score is done while they are under way.
  const Deal deal(row.vectors(), kLoadsLog2, team.rank(), team.size_log2());
  uint4 loaded[kLoads];
  load_step<D, kLoads>(row, deal, deal.first_step(), loaded);

  const bool full = row.length == params.width;
  if (threadIdx.x < kTableBins) state.own.bins[threadIdx.x] = 0;
  if (threadIdx.x < kGroups) state.anchors.group_keys[threadIdx.x] = 0;
  if (threadIdx.x < kMaxResidual) state.residual[threadIdx.x] = 0;
  if (threadIdx.x == 0) {
    state.survivors = 0;
    state.winners = 0;
    state.residual_count = 0;
    state.tally.cut.bin = kNoBin;
  }
  if (!full && threadIdx.x == kThreads - 1) {
    state.plan =
        plan_sample(row.length, out.k, kPerVector, kLoads, kThreads, 1u << team.size_log2());
  }
  team.open(out.sorted_bytes());
  // By one thread for all, once there is time: a barrier follows.
  const auto find_mapping = [&] {
    if (kMapped && threadIdx.x == kThreads - kWarp) state.mapping = mapping_of(params, team.row());
  };
  if constexpr (!kOneStep) find_mapping();

  float x[kElements];
  widen_step<D, kLoads>(loaded, row.flip, x);
  mark(kPhaseRead);
  SamplePlan plan = params.full_plan;
  if (!full) plan = state.plan;
  const Anchors anchors = find_anchors<kPerVector>(x, plan, state.anchors);
  const BinMap own_map = map_between(anchors.low, anchors.ceiling, kTableBins);
  team.await_open();
  team.send_map(own_map);
  mark(kPhaseFloor);

  if (threadIdx.x == 0) {
    state.own.overflow = 0;
    state.own.floor_key = order_key_of_number(__float_as_uint(anchors.floor));
  }
  if constexpr (kOneStep) {
    const BinMap map = team.await_map(own_map);
    uint32_t bin[kElements];
#pragma unroll
    for (uint32_t i = 0; i < kElements; ++i) bin[i] = ptx::keep(map(mapped(x[i])));
#pragma unroll
    for (uint32_t i = 0; i < kElements; ++i) state.own.count(bin[i], x[i] > anchors.floor);
    __syncthreads();
    mark(kPhaseCount);
    team.send_table();
    // Listed while the tables are under way.
    find_mapping();
    list_step<D>(x, row, deal, 0, anchors.floor, list, kRoom, &state.survivors);
    const auto held = [&] { return HeldEntries<kElements>(list, state.survivors, map); };
    const auto select = [&](const auto& entries) {
      select_by_tables(
          entries, [&] { return ListRanks{list, state.survivors}; },
          [&] { return ResidentRanks<D, kLoads>(x, row, deal); }, map, out, team, state);
    };
    if constexpr (kMapped) {  // their pages are read while the tables are under way
      __syncthreads();
      const HeldEntries<kElements> now = held();
      select([&] { return now; });
    } else {
      select(held);
    }
  } else {
    for (uint32_t step = deal.first_step();;) {
      const uint32_t next = deal.next_step(step);
      const bool last = next == deal.first_step();
      if (!last) load_step<D, kLoads>(row, deal, next, loaded);
      list_step<D>(x, row, deal, step, anchors.floor, list, kRoom, &state.survivors);
      if (last) break;
      widen_step<D, kLoads>(loaded, row.flip, x);
      step = next;
    }
    __syncthreads();
    mark(kPhaseFilter);
    const bool overflow = state.survivors > kRoom;
    const uint32_t listed = overflow ? 0 : state.survivors;
    if (threadIdx.x == 0) state.own.overflow = overflow;
    const BinMap map = team.await_map(own_map);
    const HeldEntries<kHeld> held(list, listed, map);
    held.for_each(
        [&](uint32_t u) { state.own.count(static_cast<uint32_t>(held.bin[u]), held.bin[u] >= 0); });
    __syncthreads();
    mark(kPhaseCount);
    team.send_table();
    select_by_tables([&] { return held; }, [&] { return ListRanks{list, listed}; },
                     [&] { return RowRanks<D>(row, team.rank(), team.size_log2()); }, map, out,
                     team, state);
  }
  if (!out.free_order() && team.leads()) {
    team.await_keys();
    write_ordered(out, out.k, sort_buffer, list, state.order);
  }
  mark(kPhaseSelect);
  record_phases();
}

template <Dtype D, Scope S, int kLoadsLog2, uint32_t kHeld, bool kMapped>
__global__ void __launch_bounds__(kThreads, S == Scope::kCluster || kLoadsLog2 == 2 ? 1 : 2)
    select_kernel(const __grid_constant__ Params<kMapped> params) {
  if constexpr (S == Scope::kBlock || ptx::kHasClusters) {
    select_row<D, S, kLoadsLog2, kHeld, kMapped>(params);
  }
}

}  // namespace tl_topk
