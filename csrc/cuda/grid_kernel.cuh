// The kernel for rows that one cluster would read in many steps: several share a row.
//
//   1. Every block lists what lies above the floor, as in select_kernel.cuh, counts it, and leaves
//      list and counts in global memory.
//   2. The cluster that comes last takes over all lists, an equal part for each of its blocks, and
//      with the sums of their counts goes on as a cluster does that has listed all itself.
//
// Rows that are short though the widest is long are left to the first cluster.
#pragma once

#include <cstdint>

#include "cuda/grid_lists.cuh"
#include "cuda/grid_meeting.cuh"
#include "cuda/select_kernel.cuh"

namespace tl_topk {

// Survivors of a block's list that a thread holds.
constexpr uint32_t kHeldOfSegment = 2;
static_assert(kHeldOfSegment * kThreads == grid_room(0));

// Puts a block's survivors and their counts where the last cluster looks for them.
__device__ __forceinline__ void publish(const GridMeeting& meeting, Entry* list, uint32_t listed,
                                        const BinMap& map, SharedState& state) {
  HeldEntries<kHeldOfSegment> held(list, listed, map);
  held.count(state.own);
  __syncthreads();
  if (threadIdx.x < kWarp) {
    const uint2 sums = sum_from_top(state.own);
    __stcg(meeting.table(meeting.block()) + threadIdx.x, sums);
    keep_table(state.own, sums, meeting.blocks_log2(), state.tables[0]);
  }
  __syncthreads();
  held.sort(state.tables[0], meeting.segment(meeting.block()));
}

template <Dtype D, int kLoadsLog2, uint32_t kHeld, bool kMapped>
__device__ __forceinline__ void share_row(const Params<kMapped>& params, const Row<D>& row,
                                          const GridMeeting& meeting,
                                          const Team<Scope::kGrid>& team,
                                          const SharedMemory& memory) {
  constexpr int kLoads = 1 << kLoadsLog2;
  constexpr uint32_t kPerVector = Row<D>::kPerVector;
  constexpr uint32_t kSampleLoads = sample_loads(kPerVector, true);
  constexpr uint32_t kGroupCount = sample_groups(Scope::kGrid, kHeld, kDeepQueue != 0);
  SharedState& state = memory.state;
  Entry* const list = memory.list;

  const CommonSample<D, kSampleLoads> sampled(row);
  const Deal deal(row.vectors(), kLoadsLog2, meeting.block(), meeting.blocks_log2());
  StepQueue<D, kLoads, kDeepQueue> queue(row, deal, memory.queue);
  const MappingReader<Params<kMapped>> mapping(params, meeting.row());
  queue.fill(row, deal);

  const auto out =
      make_output<kMapped, true>(params, meeting.row(), row, state.mapping, team.size_log2());
  prepare<kSampleLoads, kGroupCount, true>(params, row, state);
  meeting.open();
  open_marks(out, team, memory.sort_buffer, state);
  open_pages(params, state);
  team.open();
  meeting.expect();
  ask_for_mapping(params, meeting.row(), memory.pages, state);

  float x[kSampleLoads * kPerVector];
  sampled.widen(row.flip, x);
  mark(kPhaseRead);
  const Anchors anchors = find_anchors<kGroupCount, kPerVector>(x, plan_of(state), state.anchors);
  const BinMap map = map_between(anchors.low, anchors.ceiling, kTableBins);
  mapping.keep(state);
  mark(kPhaseFloor);
  if (threadIdx.x == 0) {
    state.own.overflow = 0;
    state.floor = anchors.floor;
  }
  const uint32_t room = meeting.room();
  queue.list_all(row, deal, anchors.floor, SharedList{list, room}, &state.survivors);
  __syncthreads();
  mark(kPhaseFilter);
  const bool overflow = state.survivors > room;
  publish(meeting, list, overflow ? 0 : state.survivors, map, state);
  team.await_open();
  const GridDraw drawn = meeting.draw(overflow);
  mark(kPhaseMeet);
  if (!drawn.finishes) return;

  const TakenLists lists(meeting, team.rank());
  auto* const before = reinterpret_cast<CountTable*>(list + TakenLists::kMostEntries);
  lists.add_tables(meeting, team.rank(), drawn.overflow, state.tables, before);
  __syncthreads();
  mark(kPhaseGather);
  const CountTable& own = state.tables[team.rank()];
  lists.join(before, own, map, list);
  const OrderedList survivors{list, own.count(0), TakenLists::kMostEntries};
  const Progress progress =
      select_ordered(params, meeting.row(), survivors, map, out, team, memory.sort_buffer, state);
  if (progress == Progress::kUnusual) {
    return finish_otherwise<D, Scope::kGrid, kLoadsLog2, kHeld, kDeepQueue, kMapped>(
        params, meeting.row(), map);
  }
  if (progress == Progress::kSelected) finish_keys(out, team, memory);
  mark(kPhaseSelect);
  // The last cluster's instead of the first's.
  record_phases((meeting.row() << meeting.blocks_log2()) + team.rank());
}

// The longest row that is left to one cluster. Where the widest is none that would be shared but
// for the caller's asking, half of that.
__device__ __forceinline__ uint32_t longest_alone(const KernelParams& params,
                                                  const GridMeeting& meeting) {
  const uint32_t steps = steps_of_cluster(1u << meeting.clusters_log2());
  constexpr auto kStep = static_cast<uint32_t>(kElementsPerStep);
  const uint32_t longest = steps * kStep << params.blocks_log2;
  return params.width > longest ? longest : params.width / 2;
}

// As the cluster of a launch for such rows alone.
template <Dtype D, int kLoadsLog2, bool kMapped>
__device__ __forceinline__ void take_alone(const Params<kMapped>& params, uint32_t row_number,
                                           const Row<D>& row) {
  const SharedMemory memory = own_memory<kFewEntries * kThreads, kDeepQueue>(params);
  const Team<Scope::kCluster> team(memory.state, memory.sort_buffer, params);
  select_row<D, Scope::kCluster, kLoadsLog2, kFewEntries, kDeepQueue, kMapped, true>(
      params, row_number, row, team, memory);
}

template <Dtype D, int kLoadsLog2, uint32_t kHeld, bool kMapped>
__global__ void TL_TOPK_IN_CLUSTERS __launch_bounds__(kThreads, 1)
    grid_kernel(const __grid_constant__ Params<kMapped> params) {
  if constexpr (ptx::kHasClusters) {
    static_assert((kMostGridClusters + 1) * sizeof(CountTable) <=
                  (kHeld * kThreads - TakenLists::kMostEntries) * sizeof(Entry));
    const SharedMemory memory = own_memory<kHeld * kThreads, kDeepQueue>(params);
    const Team<Scope::kGrid> team(memory.state, memory.sort_buffer, params);
    const GridMeeting meeting(params, memory.state.grid);
    mark(kPhaseStart);
    ptx::wait_for_previous_kernel();
    const Row<D> row = find_row<D>(params, meeting.row());
    if (row.length > max(longest_alone(params, meeting), params.k)) {
      share_row<D, kLoadsLog2, kHeld, kMapped>(params, row, meeting, team, memory);
    } else if (meeting.in_first_cluster()) {
      take_alone<D, kLoadsLog2, kMapped>(params, meeting.row(), row);
    }
  }
}

}  // namespace tl_topk
