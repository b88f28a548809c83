// To a row's end off the usual path: where too many crowd into the bin of the k-th element, where
// the sample misled, or where a list overflowed.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/crowded_bins.cuh"
#include "cuda/index_order.cuh"
#include "cuda/phase_clock.cuh"
#include "cuda/row_memory.cuh"
#include "cuda/row_ranks.cuh"
#include "cuda/select.cuh"
#include "cuda/step_queue.cuh"
#include "cuda/ties.cuh"

namespace tl_topk {

// By exact digits of the blocks' whole shares; `floor` is where many are equal, if they are.
// The survivors' list has room for `room` of the winners.
template <Dtype D, bool kMapped, Scope S, typename Ranks>
__device__ __forceinline__ void select_slowly(const Ranks& ranks, float floor,
                                              const Output<D, kMapped>& out, const Team<S>& team,
                                              const SharedMemory& memory, uint32_t room) {
  SharedState& state = memory.state;
  const Threshold guess = guess_tie(ranks, out.row, floor, out.k, team, state);
  constexpr bool kFromRow = std::is_same_v<Ranks, RowRanks<D>>;
  static_assert(sizeof(Entry) == sizeof(uint64_t));
  select_by_radix(ranks, guess, out, team, state, reinterpret_cast<uint64_t*>(memory.list),
                  kFromRow ? room : 0);
}

// The last of a row, where its winners are still to be put in order and the leader has their keys.
template <Dtype D, bool kMapped, Scope S>
__device__ __forceinline__ void finish_keys(const Output<D, kMapped>& out, const Team<S>& team,
                                            const SharedMemory& memory) {
  if (!team.leads()) return;
  if (threadIdx.x == 0) team.expect_keys(out.sorted_bytes());
  team.await_keys();
  write_ordered(out, out.k, memory.sort_buffer, memory.list, memory.state.order);
}
// The same off the usual path, where blocks may have their bits, or they need no order.
template <Dtype D, bool kMapped, Scope S>
__device__ __forceinline__ void finish(const Output<D, kMapped>& out, const Team<S>& team,
                                       const SharedMemory& memory) {
  if (out.marks()) {
    write_marked(out, team, static_cast<const uint32_t*>(memory.sort_buffer), memory.state.order);
  } else if (!out.free_order()) {
    finish_keys(out, team, memory);
  }
}

// Off the usual path, where what a launch with one output knows of a row is not enough.
__device__ __forceinline__ void keep_mapping(const KernelParams&, uint32_t, SharedState&) {}
__device__ __forceinline__ void keep_mapping(const MappedParams& params, uint32_t row_number,
                                             SharedState& state) {
  __syncthreads();
  if (threadIdx.x == 0) state.mapping = map_row(params.mapping, row_number);
  __syncthreads();
}

// All that may follow once the tables are here, off the usual path, to the row's end. Derived anew
// from the launch's parameters, in a function of its own that nothing follows: what is done here
// takes no register of the usual path, and stands in none of its way.
template <Dtype D, Scope S, int kLoadsLog2, uint32_t kHeld, int64_t kQueue, bool kMapped>
__device__ __noinline__ void finish_otherwise(const Params<kMapped>& params, uint32_t row_number,
                                              const BinMap map) {
  constexpr int kLoads = 1 << kLoadsLog2;
  constexpr uint32_t kEntries = kHeldOf<D, kLoadsLog2, kHeld>;
  constexpr uint32_t kRoom = kEntries * kThreads;
  const SharedMemory memory = own_memory<kRoom, kQueue>(params);
  SharedState& state = memory.state;
  const Team<S> team(state, memory.sort_buffer, params);
  Row<D> row = find_row<D>(params, row_number);
  if constexpr (kHeld == kResident) row.fit(kLoads * kThreads << team.size_log2());
  keep_mapping(params, row_number, state);
  const auto out =
      make_output<kMapped, true>(params, row_number, row, state.mapping, team.size_log2());
  const uint32_t listed = state.tables[team.rank()].count(0);  // none where the list overflowed
  if (!state.cut.found() || !select_crowded<kEntries>(memory.list, listed, map, out, team, state)) {
    if constexpr (kHeld == kResident) {
      const Deal deal(row.vectors(), kLoadsLog2, team.rank(), team.size_log2(), kSideBySide<S, 0>);
      uint4 loaded[kLoads];
      load_step<D, kLoads, true>(row, deal, deal.step(0), loaded);
      float x[kLoads * Row<D>::kPerVector];
      widen_step<D, kLoads>(loaded, row.flip, x);
      const ResidentRanks<D, kLoads> ranks(x, row, deal);
      select_slowly(ranks, state.floor, out, team, memory, kRoom);
    } else {
      RowRanks<D> ranks(row, team.rank(), team.size_log2());
      if constexpr (kQueue != 0 && S != Scope::kGrid) {  // whose queues held smaller shares
        static_assert(RowRanks<D>::kLoads == kLoads, "dealt out as the queue is");
        if (ranks.deal.steps <= StepQueue<D, kLoads, kQueue>::kDepth) {
          ranks.held = StepQueue<D, kLoads, kQueue>::slots(row, memory.queue);
        }
      }
      select_slowly(ranks, state.floor, out, team, memory, kRoom);
    }
  }
  finish(out, team, memory);
  mark(kPhaseSelect);
  record_phases(blockIdx.x);
}

}  // namespace tl_topk
