// The kernel for k up to kMaxFastK: floor, filter, count, exchange, cut, emit.
//
//   1. Every block reads the same sample of the row, and with it knows the same floor and the same
//      bins as the others; its share of the row is on the way meanwhile.
//   2. It counts the elements above the floor, a few per cent of the row, by bins.
//   3. Blocks exchange their counts, and put their elements in the order of bins while those are
//      under way. From all counts each derives the bin that holds the k-th element, and the slots
//      of its own elements above that bin: the first ones of its list.
//   4. Those are written by their blocks; the leader ranks the few inside the bin. Where they are
//      many, the bin is divided into bins first.
//
// That is exact if the bin lies above the floor; all blocks see whether it does. Where the
// sample misled, or a list overflowed, all blocks find the threshold by exact digits instead.
//
// Short rows that one block takes alone, in no order, go another way: short_row.cuh.
#pragma once

#include <cstdint>
#include <type_traits>

#include "config.h"
#include "cuda/anchors.cuh"
#include "cuda/finish_otherwise.cuh"
#include "cuda/index_order.cuh"
#include "cuda/phase_clock.cuh"
#include "cuda/row_memory.cuh"
#include "cuda/select_ordered.cuh"
#include "cuda/short_row.cuh"
#include "cuda/step_queue.cuh"

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

// In one vector: its fields one by one would be as many loads.
__device__ __forceinline__ void copy_plan(const SamplePlan& from, SamplePlan& to) {
  static_assert(sizeof(SamplePlan) == sizeof(uint4));
  reinterpret_cast<uint4&>(to) = reinterpret_cast<const uint4&>(from);
}
__device__ __forceinline__ SamplePlan plan_of(const SharedState& state) {
  SamplePlan plan;
  copy_plan(state.plan, plan);
  return plan;
}

// All that needs no score, done while the first loads are on their way; the sample has up to
// kSampleLoads vectors a thread, of the first step or common to all blocks. A barrier must follow.
template <uint32_t kSampleLoads, uint32_t kGroupCount, bool kCommonSample, Dtype D>
__device__ __forceinline__ void prepare(const KernelParams& params, const Row<D>& row,
                                        SharedState& state) {
  if (threadIdx.x < kTableBins) state.own.bins[threadIdx.x] = 0;
  if (threadIdx.x < kGroupCount) state.anchors.group_keys[threadIdx.x] = 0;
  if (threadIdx.x < kMaxResidual) state.residual[threadIdx.x] = 0;
  if (threadIdx.x == 0) {
    state.survivors = 0;
    state.winners = 0;
    state.reach_begin = ~0u;
    state.reach_end = 0;
    state.cut = TableCut::none();
  }
  if (threadIdx.x == kThreads - 1) {
    constexpr uint32_t kPerVector = Row<D>::kPerVector;
    copy_plan(params.full_plan, state.plan);
    if (ptx::unlikely(row.length != params.width)) {
      state.plan =
          kCommonSample
              ? plan_sample(row.length, params.k, kPerVector, kSampleLoads, kThreads, kGroupCount)
              : plan_first_step(row.length, params.k, kPerVector, kSampleLoads, kThreads);
      state.plan.fit(params.order);
    }
  }
}

// A mapped launch's row, where its parameters do not tell all about it: read by one thread, and
// kept once the floor is known. Before the loads of a queue: behind them, integers of the row's own
// would arrive last. A barrier must follow the keeping.
template <typename Params>
struct MappingReader {
  static constexpr bool kMapped = std::is_same_v<Params, MappedParams>;

  bool reads = false;
  RowMapping mapping;

  __device__ __forceinline__ MappingReader(const Params& params, uint32_t row_number) {
    if constexpr (kMapped) {
      if (params.only != OnlyOutput::kNone) return;
      reads = threadIdx.x == kWarp;
      if (reads) mapping = map_row(params.mapping, row_number);
    }
  }
  __device__ __forceinline__ void keep(SharedState& state) const {
    if (kMapped && ptx::unlikely(reads)) state.mapping = mapping;
  }
};

// A team's row of which one step loads all, which then stays in registers. `row_number` counts rows
// of the launch.
//
// The blocks of a cluster take the same sample, so that all of them know the same bins without a
// word; a block alone has its own in what it loads anyway.
template <Dtype D, Scope S, int kLoadsLog2, bool kMapped>
__device__ __forceinline__ void select_resident(const Params<kMapped>& params, uint32_t row_number,
                                                const Row<D>& row, const Team<S>& team,
                                                const SharedMemory& memory) {
  constexpr int kLoads = 1 << kLoadsLog2;
  constexpr uint32_t kPerVector = Row<D>::kPerVector;
  constexpr uint32_t kElements = kLoads * kPerVector;
  constexpr bool kCommonSample = S != Scope::kBlock;
  constexpr uint32_t kSampleLoads = kCommonSample ? sample_loads(kPerVector, false) : kLoads;
  SharedState& state = memory.state;
  Entry* const list = memory.list;

  // The loads go out first; everything that needs no score is done while they are under way.
  const Deal deal(row.vectors(), kLoadsLog2, team.rank(), team.size_log2(), kSideBySide<S, 0>);
  const CommonSample<D, kCommonSample ? kSampleLoads : 0> sampled(row);
  uint4 loaded[kLoads];
  load_step<D, kLoads, false>(row, deal, deal.step(0), loaded);
  const MappingReader<Params<kMapped>> mapping(params, row_number);
  const auto out =
      make_output<kMapped, true>(params, row_number, row, state.mapping, team.size_log2());
  prepare<kSampleLoads, kGroups, kCommonSample>(params, row, state);
  open_marks(out, team, memory.sort_buffer, state);
  open_pages(params, state);
  team.open();
  ask_for_mapping(params, row_number, memory.pages, state);

  const auto anchors_of = [&](const auto& sample) {
    mark(kPhaseRead);
    return find_anchors<kGroups, kPerVector>(sample, plan_of(state), state.anchors);
  };
  Anchors anchors;
  float x[kElements];
  if constexpr (kCommonSample) {
    float sample[kSampleLoads * kPerVector];
    sampled.widen(row.flip, sample);
    anchors = anchors_of(sample);
    mask_step<D, kLoads>(row, deal, deal.step(0), loaded);
    widen_step<D, kLoads>(loaded, row.flip, x);
  } else {
    mask_step<D, kLoads>(row, deal, deal.step(0), loaded);
    widen_step<D, kLoads>(loaded, row.flip, x);
    anchors = anchors_of(x);
  }
  const BinMap map = map_between(anchors.low, anchors.ceiling, kTableBins);
  mapping.keep(state);
  team.await_open();
  mark(kPhaseFloor);

  if (threadIdx.x == 0) {
    state.own.overflow = 0;
    state.floor = anchors.floor;
  }
  uint32_t bin[kElements];
  uint32_t place[kElements];  // among those of its bin
#pragma unroll
  for (uint32_t i = 0; i < kElements; ++i) bin[i] = ptx::keep(map(mapped(x[i])));
#pragma unroll
  for (uint32_t i = 0; i < kElements; ++i) {
    place[i] = state.own.count(bin[i], x[i] > anchors.floor);
  }
  __syncthreads();
  mark(kPhaseCount);
  team.send_table();
  __syncthreads();
  // Listed in order while the tables are under way.
  const CountTable& table = state.tables[team.rank()];
#pragma unroll
  for (uint32_t i = 0; i < kElements; ++i) place[i] += table.count_above(bin[i]);
#pragma unroll
  for (uint32_t i = 0; i < kElements; ++i) {
    const uint32_t index = row.index(deal.vector(i / kPerVector, 0)) + i % kPerVector;
    put_if(list + place[i], {x[i], index}, x[i] > anchors.floor);
  }
  const OrderedList survivors{list, table.count(0), kElements * kThreads};
  const Progress progress =
      select_ordered(params, row_number, survivors, map, out, team, memory.sort_buffer, state);
  if (ptx::unlikely(progress == Progress::kUnusual)) {
    return finish_otherwise<D, S, kLoadsLog2, kResident, 0, kMapped>(params, row_number, map);
  }
  if (progress == Progress::kSelected) finish_keys(out, team, memory);
  mark(kPhaseSelect);
  record_phases(blockIdx.x);
}

// From a list of survivors to the cut's winners.
template <Dtype D, bool kMapped, Scope S, uint32_t kHeld>
__device__ __forceinline__ Progress select_listed(const Params<kMapped>& params,
                                                  uint32_t row_number, HeldEntries<kHeld>& held,
                                                  const BinMap& map, const Output<D, kMapped>& out,
                                                  const Team<S>& team, void* sort_buffer,
                                                  SharedState& state) {
  held.count(state.own);
  __syncthreads();
  mark(kPhaseCount);
  team.send_table();
  __syncthreads();
  // Put in order while the tables are under way.
  const CountTable& table = state.tables[team.rank()];
  held.sort(table);
  const OrderedList survivors{held.list, table.count(0), kHeld * kThreads};
  return select_ordered(params, row_number, survivors, map, out, team, sort_buffer, state);
}

// A team's row of which each block takes several steps, and a thread has room for kHeld survivors.
template <Dtype D, Scope S, int kLoadsLog2, uint32_t kHeld, int64_t kQueue, bool kMapped>
__device__ __forceinline__ void select_stepwise(const Params<kMapped>& params, uint32_t row_number,
                                                const Row<D>& row, const Team<S>& team,
                                                const SharedMemory& memory) {
  constexpr int kLoads = 1 << kLoadsLog2;
  constexpr uint32_t kPerVector = Row<D>::kPerVector;
  constexpr uint32_t kRoom = kHeld * kThreads;
  constexpr bool kCommonSample = S != Scope::kBlock;
  constexpr uint32_t kSampleLoads = kCommonSample ? sample_loads(kPerVector, kQueue != 0) : kLoads;
  constexpr uint32_t kGroupCount = sample_groups(S, kHeld, kQueue != 0);
  SharedState& state = memory.state;
  Entry* const list = memory.list;

  // The sample goes first: the floor is found while the queue fills.
  const CommonSample<D, kCommonSample ? kSampleLoads : 0> sampled(row);
  const Deal deal(row.vectors(), kLoadsLog2, team.rank(), team.size_log2(), kSideBySide<S, kQueue>);
  StepQueue<D, kLoads, kQueue> queue(row, deal, memory.queue);
  const MappingReader<Params<kMapped>> mapping(params, row_number);
  queue.fill(row, deal);
  const auto out =
      make_output<kMapped, true>(params, row_number, row, state.mapping, team.size_log2());
  prepare<kSampleLoads, kGroupCount, kCommonSample>(params, row, state);
  open_marks(out, team, memory.sort_buffer, state);
  open_pages(params, state);
  team.open();
  ask_for_mapping(params, row_number, memory.pages, state);

  float x[kSampleLoads * kPerVector];
  if constexpr (kCommonSample) {
    sampled.widen(row.flip, x);
  } else {
    queue.peek(row.flip, x);
  }
  mark(kPhaseRead);
  const Anchors anchors = find_anchors<kGroupCount, kPerVector>(x, plan_of(state), state.anchors);
  const BinMap map = map_between(anchors.low, anchors.ceiling, kTableBins);
  mapping.keep(state);
  team.await_open();
  mark(kPhaseFloor);

  if (threadIdx.x == 0) {
    state.own.overflow = 0;
    state.floor = anchors.floor;
  }
  queue.list_all(row, deal, anchors.floor, SharedList{list, kRoom}, &state.survivors);
  __syncthreads();
  mark(kPhaseFilter);
  const bool overflow = state.survivors > kRoom;
  const uint32_t listed = overflow ? 0 : state.survivors;
  if (threadIdx.x == 0) state.own.overflow = overflow;
  HeldEntries<kHeld> held(list, listed, map);
  const Progress progress =
      select_listed(params, row_number, held, map, out, team, memory.sort_buffer, state);
  if (progress == Progress::kUnusual) {
    return finish_otherwise<D, S, kLoadsLog2, kHeld, kQueue, kMapped>(params, row_number, map);
  }
  if (progress == Progress::kSelected) finish_keys(out, team, memory);
  mark(kPhaseSelect);
  record_phases(blockIdx.x);
}

// A row whose shares would stay in registers, though those of the widest go through a queue: as in
// a launch for such rows alone. Its list lies where the queue would.
template <Dtype D, Scope S, bool kMapped>
__device__ __forceinline__ void select_narrow(const Params<kMapped>& params, uint32_t row_number,
                                              const Row<D>& row) {
  constexpr int kLoadsLog2 = kMostResidentLog2<D>;
  const SharedMemory memory = own_memory<kMostResident * kThreads, 0>(params);
  const Team<S> team(memory.state, memory.sort_buffer, params);
  select_resident<D, S, kLoadsLog2, kMapped>(params, row_number, row, team, memory);
}
template <Dtype D, Scope S>
__device__ __forceinline__ bool is_narrow(const Row<D>& row, const Team<S>& team) {
  return row.vectors() <= kThreads << kMostResidentLog2<D> << team.size_log2();
}

// `kRagged`: may the row be shorter than the width?
template <Dtype D, Scope S, int kLoadsLog2, uint32_t kHeld, int64_t kQueue, bool kMapped,
          bool kRagged>
__device__ __forceinline__ void select_row(const Params<kMapped>& params, uint32_t row_number,
                                           Row<D> row, const Team<S>& team,
                                           const SharedMemory& memory) {
  if constexpr (kHeld == kResident) row.fit(kThreads << kLoadsLog2 << team.size_log2());
  if (row.length <= params.k) {
    const RowMapping map = mapping_of(params, row_number);
    const auto out = make_output<kMapped, false>(params, row_number, row, memory.state.mapping);
    select_all(out, map, team, params.largest, memory.sort_buffer, memory.list, memory.state);
  } else if constexpr (kHeld == kResident) {
    if constexpr (kMapped && S == Scope::kBlock) {
      if (counts_whole(params)) {
        return select_short<D, kLoadsLog2, kMapped>(params, row_number, row, memory);
      }
    }
    select_resident<D, S, kLoadsLog2, kMapped>(params, row_number, row, team, memory);
  } else if (kRagged && kQueue != 0 && S == Scope::kCluster && is_narrow(row, team)) {
    select_narrow<D, S, kMapped>(params, row_number, row);
  } else {
    select_stepwise<D, S, kLoadsLog2, kHeld, kQueue, kMapped>(params, row_number, row, team,
                                                              memory);
  }
}

template <Dtype D, Scope S, int kLoadsLog2, uint32_t kHeld, bool kQueued, bool kMapped,
          bool kRagged>
__device__ __forceinline__ void select_rows(const Params<kMapped>& params) {
  if constexpr (S == Scope::kBlock || ptx::kHasClusters) {
    constexpr int64_t kQueue = kQueued ? kDeepQueue : 0;
    constexpr uint32_t kListed = kHeldOf<D, kLoadsLog2, kHeld> * kThreads;
    const SharedMemory memory = own_memory<kListed, kQueue>(params);
    const Team<S> team(memory.state, memory.sort_buffer, params);
    mark(kPhaseStart);
    ptx::wait_for_previous_kernel();
    select_row<D, S, kLoadsLog2, kHeld, kQueue, kMapped, kRagged>(
        params, team.row(), find_row<D>(params, team.row()), team, memory);
  }
}

template <Dtype D, int kLoadsLog2, uint32_t kHeld, bool kQueued, bool kMapped>
__global__ void __launch_bounds__(kThreads, kLoadsLog2 == 2 || kQueued ? 1 : 2)
    block_kernel(const __grid_constant__ Params<kMapped> params) {
  select_rows<D, Scope::kBlock, kLoadsLog2, kHeld, kQueued, kMapped, true>(params);
}
// Of rows that are counted whole, where nothing is mapped: with no code but what they need.
template <Dtype D, int kLoadsLog2>
__global__ void __launch_bounds__(kThreads, 2)
    short_kernel(const __grid_constant__ KernelParams params) {
  const SharedMemory memory = own_memory<kHeldOf<D, kLoadsLog2, kResident> * kThreads, 0>(params);
  mark(kPhaseStart);
  ptx::wait_for_previous_kernel();
  Row<D> row = find_row<D>(params, blockIdx.x);
  row.fit(kThreads << kLoadsLog2);
  if (row.length > params.k) {
    return select_short<D, kLoadsLog2, false>(params, blockIdx.x, row, memory);
  }
  const auto out = make_output<false, false>(params, blockIdx.x, row, memory.state.mapping);
  const Team<Scope::kBlock> team(memory.state, memory.sort_buffer, params);
  select_all(out, RowMapping{}, team, params.largest, memory.sort_buffer, memory.list,
             memory.state);
}
template <Dtype D, int kLoadsLog2, uint32_t kHeld, bool kQueued, bool kMapped, bool kRagged = true>
__global__ void TL_TOPK_IN_CLUSTERS __launch_bounds__(kThreads, 1)
    cluster_kernel(const __grid_constant__ Params<kMapped> params) {
  select_rows<D, Scope::kCluster, kLoadsLog2, kHeld, kQueued, kMapped, kRagged>(params);
}

}  // namespace tl_topk
