// The kernel for k up to kMaxFastK: floor, filter, deliver, select.
//
//   1. Every block loads its share of the row and guesses a floor from what it has just loaded.
//   2. It delivers the elements above its floor to the leader: a few per cent of the row.
//   3. The leader finds the k best among them. That is exact if at least k of them lie above the
//      highest floor used; it counts, and says so.
//   4. Where the sample misled (or the survivors overflow their segment) all blocks narrow the row
//      down by exact digits instead, and deliver what passes.
#pragma once

#include <cstdint>

#include "config.h"
#include "cuda/anchors.cuh"
#include "cuda/phase_clock.cuh"
#include "cuda/row_ranks.cuh"
#include "cuda/select.cuh"
#include "cuda/team.cuh"

namespace tl_topk {

// Rows no longer than k: everything is selected, and the team shares the writing.
template <Dtype D, Scope S>
__device__ __noinline__ void select_all(const Output<D> out, const Team<S> team, bool largest,
                                        void* spare, SharedState& state) {
  const uint32_t n = out.row.length;
  if (out.order == Order::kValue) {
    if (!team.leads()) return;
    for (uint32_t i = threadIdx.x; i < n; i += kThreads) {
      out.put(i, {out.row.oriented(i), i});
    }
    write_ordered(out, n, spare, state.order);
    for (uint32_t i = n + threadIdx.x; i < out.k; i += kThreads) out.pad(i, largest);
    return;
  }
  const uint32_t step = kThreads << team.size_log2();
  for (uint32_t i = team.rank() * kThreads + threadIdx.x; i < out.k; i += step) {
    if (i < n) {
      out.write(i, i);
    } else {
      out.pad(i, largest);
    }
  }
}

// What misleads a sample most often is a value that much of the row shares: then the floor is that
// value. If the k-th element is one of those that equal it, only their indices remain to be
// decided.
template <Dtype D, Scope S>
__device__ __forceinline__ Threshold guess_tie(const RowRanks<D>& ranks, float floor, uint32_t k,
                                               const Team<S>& team, SharedState& state) {
  uint32_t above = 0;
  uint32_t equal = 0;
  ranks.for_each_vector([&](const float (&x)[Row<D>::kPerVector], uint32_t) {
#pragma unroll
    for (uint32_t j = 0; j < Row<D>::kPerVector; ++j) {
      above += x[j] > floor;
      equal += x[j] == floor;
    }
  });
  uint32_t* const counters = state.radix.bins;
  if (threadIdx.x < kMaxClusterBlocks) counters[threadIdx.x] = 0;
  __syncthreads();
  above = __reduce_add_sync(kAllLanes, above);
  equal = __reduce_add_sync(kAllLanes, equal);
  if (threadIdx.x % kWarp == 0) {
    atomicAdd(counters, above);
    atomicAdd(counters + 1, equal);
  }
  __syncthreads();
  team.sum(counters, kMaxClusterBlocks);
  above = counters[0];
  equal = counters[1];
  __syncthreads();
  if (above < k && k <= above + equal) {
    return {order_key(__float_as_uint(floor)), 32, k - above, above + equal};
  }
  return {0, 64, k, ranks.row.length};
}

// Narrows the row down to at most `capacity` elements, exactly, and delivers them to the leader.
template <Dtype D, Scope S>
__device__ __noinline__ Threshold deliver_by_radix(const Row<D> row, float floor, uint32_t k,
                                                   uint32_t capacity, const Team<S> team,
                                                   SharedState& state) {
  const RowRanks<D> ranks(row, team.rank(), team.size_log2());
  const Threshold t =
      narrow(guess_tie(ranks, floor, k, team, state), row.length, k, capacity, state.radix, ranks,
             [&](uint32_t* bins, uint32_t n) { team.sum(bins, n); });
  if (threadIdx.x == 0) {
    state.survivors = 0;
    state.deliveries[0].survivors = t.passing;
  }
  team.meet();
  ranks.for_each_vector([&](const float (&x)[Row<D>::kPerVector], uint32_t first) {
    const auto passes = [&](uint32_t j) {
      return first + j < row.length &&
             t.passes(rank_key(order_key(__float_as_uint(x[j])), first + j));
    };
    WarpAppend<Row<D>::kPerVector> append(passes);
    if (append.total == 0) return;
    append.reserve([&](uint32_t n) { return team.add_survivors(n); });
    append.for_each([&](uint32_t j, uint32_t at) {
      if (passes(j)) team.store(at, {x[j], first + j});
    });
  });
  team.meet();
  return t;
}

// This lane's vectors of one step. All but the warps at the row's ends pass one check and load
// without another branch.
template <Dtype D, int kLoads>
__device__ __forceinline__ void load_step(const Row<D>& row, const Deal& deal, uint32_t step,
                                          uint4 (&loaded)[kLoads]) {
  constexpr uint32_t kPerVector = Row<D>::kPerVector;
  const uint32_t first = row.index(deal.vector(0, step));
  const uint32_t last = row.index(deal.vector(kLoads - 1, step)) + (kPerVector - 1);
  if (first < row.length && last < row.length) {
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

constexpr uint32_t kAllSent = 0xffffffffu;
constexpr uint32_t kUnknownCount = 0xffffffffu;  // more than any list holds

template <Dtype D, Scope S, int kLoadsLog2, uint32_t kHeld>
__device__ __forceinline__ void select_row(const KernelParams& params) {
  constexpr int kLoads = 1 << kLoadsLog2;
  constexpr uint32_t kPerVector = Row<D>::kPerVector;
  constexpr uint32_t kElements = kLoads * kPerVector;
  extern __shared__ __align__(16) unsigned char shared_memory[];
  SharedState& state = *reinterpret_cast<SharedState*>(shared_memory);
  Entry* const entries = reinterpret_cast<Entry*>(shared_memory + sizeof(SharedState));
  const Team<S> team(state, entries, params);
  void* const sort_buffer = entries + (params.segment_capacity << team.size_log2());
  mark(kPhaseStart);
  ptx::wait_for_previous_kernel();

  const Row<D> row = find_row<D>(params, team.row());
  const Output<D> out = make_output(params, team.row(), row, sort_buffer);
  if (row.length <= out.k) {
    select_all<D, S>(out, team, params.largest, entries, state);
    return;
  }

  // The loads go out first; everything that needs no score is done while they are under way.
  const Deal deal(row.vectors(), kLoadsLog2, team.rank(), team.size_log2());
  uint4 loaded[kLoads];
  load_step<D, kLoads>(row, deal, 0, loaded);

  const bool full = row.length == params.width;
  state.select_bins[threadIdx.x] = 0;
  if (threadIdx.x < kMaxResidual) state.residual[threadIdx.x] = 0;
  if (threadIdx.x < 2 * kWarp) state.anchors.better[threadIdx.x] = 0;
  if (threadIdx.x == 0) {
    state.survivors = 0;
    state.sent = kAllSent;
    state.winners = 0;
    state.residual_count = 0;
    state.radix.crossing.bin = kNoBin;
  }
  if (!full && threadIdx.x == kThreads - 1) {
    state.plan =
        plan_sample(row.length, out.k, kPerVector, kLoads, kThreads, 1u << team.size_log2());
  }
  team.open();

  float x[kElements];
  widen_step<D, kLoads>(loaded, row.flip, x);
  mark(kPhaseRead);
  const Anchors anchors =
      find_anchors<kElements>(x, full ? params.full_plan : state.plan, state.anchors);
  mark(kPhaseFloor);
  team.await_open();

  const uint32_t segment = team.rank() * params.segment_capacity;
  for (uint32_t step = 0;;) {
    const bool last = step + 1 == deal.steps;
    if (!last) load_step<D, kLoads>(row, deal, step + 1, loaded);
    WarpAppend<kElements> append([&](uint32_t i) { return x[i] > anchors.floor; });
    if (append.total != 0) {
      append.reserve([&](uint32_t n) { return ptx::lane0_add(&state.survivors, n); });
      if (append.base + append.total <= params.segment_capacity) {
        append.for_each([&](uint32_t i, uint32_t at) {
          const uint32_t index = row.index(deal.vector(i / kPerVector, step)) + i % kPerVector;
          team.send(segment + at, {x[i], index}, x[i] > anchors.floor);
        });
      } else if (append.base <= params.segment_capacity) {
        state.sent = append.base;  // the first warp without room; the count tells the leader
      }
    }
    if (last) break;
    widen_step<D, kLoads>(loaded, row.flip, x);
    ++step;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    team.send_delivery({state.survivors, anchors.floor}, min(state.survivors, state.sent));
  }
  mark(kPhaseFilter);

  VerdictMessage verdict;
  if (team.leads()) {
    team.await_deliveries();
    mark(kPhaseDeliver);
    // Lanes look at one block each; every warp comes to the same conclusion.
    const uint32_t lane = threadIdx.x % kWarp;
    const Delivery d = state.deliveries[lane & ((1u << team.size_log2()) - 1)];
    const bool overflow = __any_sync(kAllLanes, d.survivors > params.segment_capacity);
    const float floor = __uint_as_float(
        bits_of_key(__reduce_max_sync(kAllLanes, order_key_of_number(__float_as_uint(d.floor)))));
    if (!overflow) {
      const EntryList list{entries, state.deliveries, team.size_log2(), params.segment_capacity};
      const BinMap map = make_bin_map(fmaxf(anchors.low, floor), anchors.ceiling, kSelectBins);
      const HeldEntries<kHeld> held(list, [&](float score) {
        const auto bin = static_cast<int32_t>(map(score));
        return score > floor ? bin : -1;
      });
      const Crossing cut = find_cut(held, out.k, state);
      mark(kPhaseCut);
      if (cut.bin != kNoBin) {
        team.send_verdict({kSelected, floor});
        if (cut.inside <= kMaxResidual) {
          select_by_cut(held, cut, out, state);
        } else {
          select_by_radix(list, floor, {0, 64, out.k, kUnknownCount}, out, state);
        }
        if (!out.free_order()) write_ordered(out, out.k, entries, state.order);
        mark(kPhaseSelect);
        return;
      }
    }
    verdict = {kMisled, floor};
    team.send_verdict(verdict);
  } else {
    verdict = team.await_verdict();
    if (verdict.verdict == kSelected) return;
  }

  const Threshold t = deliver_by_radix<D, S>(
      row, verdict.floor, out.k, params.segment_capacity << team.size_log2(), team, state);
  if (!team.leads()) return;
  constexpr float kNoFloor = NAN;  // nothing compares less
  select_by_radix(EntryList{entries, state.deliveries, 0, 0}, kNoFloor, t, out, state);
  if (!out.free_order()) write_ordered(out, out.k, entries, state.order);
}

template <Dtype D, Scope S, int kLoadsLog2, uint32_t kHeld>
__global__ void __launch_bounds__(kThreads, kLoadsLog2 == 2 || kHeld > kFewEntries ? 1 : 2)
    select_kernel(const __grid_constant__ KernelParams params) {
  if constexpr (S == Scope::kBlock || ptx::kHasClusters) {
    select_row<D, S, kLoadsLog2, kHeld>(params);
  }
}

}  // namespace tl_topk
