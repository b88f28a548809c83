// The kernel for rows that one cluster would read in many steps: several share a row.
//
//   1. Every block lists what lies above the floor, as in select_kernel.cuh, but in global
//      memory.
//   2. The block that comes last gathers all lists. It counts, cuts and writes as a block does with
//      a row of its own.
//   3. Where the sample misled, the last block's cluster finds the threshold by exact digits.
//
// Rows that are short though the widest is long are left to the first cluster.
#pragma once

#include <cstdint>

#include "cuda/grid_meeting.cuh"
#include "cuda/select_kernel.cuh"

namespace tl_topk {

// From the row's lists, of what lies above the floor, into the one of this block, in its shared
// memory. False where a segment overflowed. Ends in a barrier.
__device__ __forceinline__ bool gather_lists(const GridMeeting& meeting, float floor,
                                             const SharedList& list, SharedState& state) {
  constexpr uint32_t kBatch = 16;  // entries a thread reads at once; seldom are there more
  constexpr uint32_t kNaNBits = 0x7fffffffu;
  const uint32_t lanes_log2 = kThreadsLog2 - meeting.blocks_log2();  // that read one segment
  const uint32_t segment = threadIdx.x >> lanes_log2;
  const uint32_t survivors = meeting.count(segment);
  const uint32_t count = min(survivors, meeting.room());
  const uint32_t most = __reduce_max_sync(kAllLanes, count);  // of this warp's segments
  const auto* const from = reinterpret_cast<const uint2*>(meeting.segment(segment));
  const uint32_t lane = threadIdx.x & ((1u << lanes_log2) - 1);

  for (uint32_t first = lane;; first += kBatch << lanes_log2) {
    uint2 entry[kBatch];
#pragma unroll
    for (uint32_t u = 0; u < kBatch; ++u) {
      const uint32_t i = first + (u << lanes_log2);
      entry[u] = i < count ? __ldcg(from + i) : make_uint2(kNaNBits, 0);
    }
    float x[kBatch];
#pragma unroll
    for (uint32_t u = 0; u < kBatch; ++u) x[u] = __uint_as_float(entry[u].x);
    list_above(x, [&](uint32_t u) { return entry[u].y; }, floor, list, &state.survivors);
    if (first - lane + (kBatch << lanes_log2) >= most) break;  // the same for the whole warp
  }
  return !__syncthreads_or(survivors > meeting.room());
}

// The last block's part; false where the sample misled.
template <uint32_t kHeld, Dtype D, bool kMapped>
__device__ __forceinline__ bool finish_row(const Params<kMapped>& params,
                                           const GridMeeting& meeting, const Anchors& anchors,
                                           const Output<D, kMapped>& out,
                                           const Team<Scope::kBlock>& team, Entry* list,
                                           void* sort_buffer, SharedState& state) {
  if (!gather_lists(meeting, anchors.floor, {list, kHeld * kThreads}, state)) return false;
  mark(kPhaseGather);
  const uint32_t listed = state.survivors;
  if (listed > kHeld * kThreads) return false;
  const BinMap map = map_between(anchors.low, anchors.ceiling, kTableBins);
  if (threadIdx.x == 0) state.own.overflow = 0;
  HeldEntries<kHeld> held(list, listed, map);
  if (select_listed(params, meeting.row(), held, map, out, team, sort_buffer, state) ==
      Progress::kUnusual) {
    if (!state.cut.found()) return false;
    keep_mapping(params, meeting.row(), state);
    if (!select_crowded<kHeld>(list, listed, map, out, team, state)) return false;
  }
  if (!out.free_order()) write_ordered(out, out.k, sort_buffer, list, state.order);
  return true;
}

template <Dtype D, int kLoadsLog2, uint32_t kHeld, bool kMapped>
__device__ __forceinline__ void share_row(const Params<kMapped>& params, const Row<D>& row,
                                          const GridMeeting& meeting,
                                          const Team<Scope::kCluster>& team,
                                          const SharedMemory& memory) {
  constexpr int kLoads = 1 << kLoadsLog2;
  constexpr uint32_t kPerVector = Row<D>::kPerVector;
  SharedState& state = memory.state;
  constexpr uint32_t kSampleLoads = sample_loads(Scope::kGrid, kPerVector, true);
  constexpr uint32_t kGroupCount = sample_groups(kHeld, kDeepQueue != 0);
  const CommonSample<D, kSampleLoads> sampled(row);
  const Deal deal(row.vectors(), kLoadsLog2, meeting.block(), meeting.blocks_log2());
  StepQueue<D, kLoads, kDeepQueue> queue(row, deal, memory.queue);
  const MappingReader<Params<kMapped>> mapping(params, meeting.row());
  queue.fill(row, deal);

  const auto out = make_output<kMapped, false>(params, meeting.row(), row, state.mapping);
  prepare<kSampleLoads, kGroupCount, true>(params, row, state);
  meeting.open();
  open_pages(params, state);
  team.open();
  ask_for_mapping(params, meeting.row(), memory.pages, state);

  float x[kSampleLoads * kPerVector];
  sampled.widen(row.flip, x);
  mark(kPhaseRead);
  const Anchors anchors = find_anchors<kGroupCount, kPerVector>(x, plan_of(state), state.anchors);
  mapping.keep(state);
  mark(kPhaseFloor);
  const GlobalList segment{meeting.segment(meeting.block()), meeting.room()};
  queue.list_all(row, deal, anchors.floor, segment, &state.survivors);
  __syncthreads();
  mark(kPhaseFilter);
  const uint32_t survivors = state.survivors;
  team.await_open();
  const bool last = meeting.draw(survivors);
  mark(kPhaseMeet);
  if (last) {
    if (threadIdx.x == 0) state.survivors = 0;
    __syncthreads();
    const Team<Scope::kBlock> alone(state, memory.sort_buffer, params);
    const bool done = finish_row<kHeld>(params, meeting, anchors, out, alone, memory.list,
                                        memory.sort_buffer, state);
    meeting.send_verdict(!done);
  }
  if (meeting.cluster_drew_last() && meeting.await_misled()) {
    keep_mapping(params, meeting.row(), state);
    select_slowly(RowRanks<D>(row, team.rank(), team.size_log2()), anchors.floor, out, team, memory,
                  kHeld * kThreads);
    finish(out, team, memory);
  }
  mark(kPhaseSelect);
  // The last block's instead of the first's.
  if (last) record_phases(meeting.row() << meeting.blocks_log2());
}

template <Dtype D, int kLoadsLog2, uint32_t kHeld, bool kMapped>
__global__ void TL_TOPK_IN_CLUSTERS __launch_bounds__(kThreads, 1)
    grid_kernel(const __grid_constant__ Params<kMapped> params) {
  if constexpr (ptx::kHasClusters) {
    const SharedMemory memory = own_memory<kHeld * kThreads, kDeepQueue>(params);
    const Team<Scope::kCluster> team(memory.state, memory.sort_buffer, params);
    const GridMeeting meeting(params, memory.state.grid);
    mark(kPhaseStart);
    ptx::wait_for_previous_kernel();
    const Row<D> row = find_row<D>(params, meeting.row());
    constexpr uint32_t kOfBlock = kStepsOfCluster * kElementsPerStep;
    if (row.length > kOfBlock << team.size_log2()) {
      share_row<D, kLoadsLog2, kHeld, kMapped>(params, row, meeting, team, memory);
    } else if (meeting.in_first_cluster()) {
      select_row<D, Scope::kCluster, kLoadsLog2, kHeld, kDeepQueue, kMapped, true>(
          params, meeting.row(), row, team, memory);
    }
  }
}

}  // namespace tl_topk
