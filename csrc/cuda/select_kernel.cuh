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

#include "cuda/anchors.cuh"
#include "cuda/phase_clock.cuh"
#include "cuda/select.cuh"
#include "cuda/team.cuh"

namespace tl_topk {

// Rows no longer than k: everything is selected, and the team shares the writing.
template <Dtype D, Scope S>
__device__ void select_all(const Output<D>& out, const Team<S>& team, bool largest) {
  const uint32_t n = out.row.length;
  if (out.order == Order::kValue) {
    if (!team.leads()) return;
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) {
      out.put(i, i, rank_key(order_key(__float_as_uint(out.row.oriented(i))), i));
    }
    out.finish(n);
    for (uint32_t i = n + threadIdx.x; i < out.k; i += blockDim.x) out.pad(i, largest);
    return;
  }
  const uint32_t step = team.size() * blockDim.x;
  for (uint32_t i = team.rank() * blockDim.x + threadIdx.x; i < out.k; i += step) {
    if (i < n) {
      out.write(i, i);
    } else {
      out.pad(i, largest);
    }
  }
}

// Narrows the row down to at most `capacity` elements, exactly, and delivers them to the leader.
template <Dtype D, Scope S>
__device__ void deliver_by_radix(const Row<D>& row, uint32_t k, uint32_t capacity, const Deal& deal,
                                 const Team<S>& team, SharedState& state) {
  constexpr uint32_t kPerVector = Row<D>::kPerVector;
  const auto for_each_rank = [&](auto&& f) {
    for (uint32_t step = 0; step < deal.steps; ++step) {
      for (uint32_t u = 0; u < deal.loads; ++u) {
        float x[kPerVector];
        const uint32_t index = row.load(deal.vector(u, step), x);
#pragma unroll
        for (uint32_t j = 0; j < kPerVector; ++j) {
          f(rank_key(order_key(__float_as_uint(x[j])), index + j), index + j < row.length);
        }
      }
    }
  };
  const Threshold t = find_threshold(row.length, k, capacity, state.radix, for_each_rank,
                                     [&](uint32_t* bins) { team.sum(bins); });
  if (threadIdx.x == 0) {
    state.survivors = 0;
    state.winners = 0;
    state.counts[0] = t.passing;
  }
  team.meet();
  for_each_rank([&](uint64_t rank, bool valid) {
    const bool keep = valid && t.passes(rank);
    const uint32_t votes = __ballot_sync(kAllLanes, keep);
    if (votes == 0) return;
    uint32_t base = 0;
    if (threadIdx.x % kWarp == 0) base = team.add_shared(__popc(votes));
    base = __shfl_sync(kAllLanes, base, 0);
    if (keep) {
      const uint32_t index = index_of_rank(rank);
      team.store_survivor(0, base + __popc(votes & ptx::lanes_below()),
                          {row.oriented(index), index});
    }
  });
  team.meet();
}

template <Dtype D, Scope S, int kLoads>
__global__ void __launch_bounds__(1024, 1)
    select_kernel(const __grid_constant__ TopKArgs args, const __grid_constant__ KernelShape shape) {
  constexpr uint32_t kPerVector = Row<D>::kPerVector;
  constexpr uint32_t kElements = kLoads * kPerVector;
  extern __shared__ __align__(16) unsigned char shared_memory[];
  SharedState& state = *reinterpret_cast<SharedState*>(shared_memory);
  Entry* entries = reinterpret_cast<Entry*>(shared_memory + sizeof(SharedState));
  const Team<S> team(state, entries);
  mark(kPhaseStart);
  void* sort_buffer = entries + team.size() * shape.segment_capacity;

  if (threadIdx.x == 0) {
    state.survivors = 0;
    state.winners = 0;
    state.residual_count = 0;
    state.verdict = kUndecided;
    state.radix.crossing.bin = kNoBin;
  }
  for (uint32_t i = threadIdx.x; i < kSelectBins; i += blockDim.x) state.select_bins[i] = 0;
  __syncthreads();
  team.open();
  ptx::wait_for_previous_kernel();

  const int64_t r = blockIdx.x / team.size();
  const Row<D> row = load_row<D>(args, r);
  const Output<D> out = make_output(args, r, row, sort_buffer, shape.sort_entries);
  if (row.length <= out.k) {
    select_all(out, team, args.problem.largest);
    return;
  }

  const Deal deal(row.vectors(), kLoads, team.rank(), team.size());
  float x[kElements];
  uint32_t first[kLoads];
  const auto load_step = [&](uint32_t step) {
#pragma unroll
    for (uint32_t u = 0; u < kLoads; ++u) {
      first[u] = row.load(deal.vector(u, step),
                          *reinterpret_cast<float(*)[kPerVector]>(x + u * kPerVector));
    }
  };
  load_step(0);

  const uint32_t capacity = kElements * blockDim.x * team.size();
  const uint32_t held = deal.steps == 1 ? row.length : capacity;
  const SamplePlan plan =
      plan_sample(row.length, out.k, held, capacity, kElements, blockDim.x / kGroups);
  publish_group_maxima<kElements>(x, plan, state.group_keys);
  mark(kPhaseRead);
  __syncthreads();
  publish_anchors(state.group_keys, plan, &state.anchors);
  __syncthreads();
  const float floor = state.anchors.floor;
  mark(kPhaseFloor);
  team.await_open();

  for (uint32_t step = 0;;) {
    bool keep[kElements];
    bool any = false;
#pragma unroll
    for (uint32_t i = 0; i < kElements; ++i) {
      keep[i] = x[i] > floor;
      any |= keep[i];
    }
    if (__any_sync(kAllLanes, any)) {
      warp_append<kElements>(keep, &state.survivors, [&](uint32_t i, uint32_t at) {
        if (at < shape.segment_capacity) {
          team.store_survivor(team.rank() * shape.segment_capacity, at,
                              {x[i], first[i / kPerVector] + i % kPerVector});
        }
      });
    }
    if (++step == deal.steps) break;
    load_step(step);
  }
  __syncthreads();
  if (threadIdx.x == 0) team.deliver(state.survivors, floor);
  mark(kPhaseFilter);
  team.meet();
  mark(kPhaseDeliver);

  if (team.leads()) {
    // Lanes look at one block each; every warp comes to the same conclusion.
    const uint32_t lane = threadIdx.x % kWarp;
    const bool mine = lane < team.size();
    const bool overflow =
        __any_sync(kAllLanes, mine && state.counts[lane] > shape.segment_capacity);
    const uint32_t highest = __reduce_max_sync(
        kAllLanes, mine ? order_key(__float_as_uint(state.floors[lane])) : 0u);
    const EntryList list{entries, state.counts, team.size(), shape.segment_capacity};
    if (!overflow) {
      const Cut cut =
          find_cut(list, __uint_as_float(bits_of_key(highest)), out.k, state);
      mark(kPhaseCut);
      if (cut.found) {
        team.announce(kSelected);
        team.release();
        select_by_cut(list, cut, out, state);
        out.finish(out.k);
        mark(kPhaseSelect);
        return;
      }
    }
    team.announce(kMisled);
  }
  team.meet();
  if (!team.leads() && state.verdict == kSelected) return;

  deliver_by_radix<D, S>(row, out.k, team.size() * shape.segment_capacity, deal, team, state);
  if (!team.leads()) return;
  select_by_radix(EntryList{entries, state.counts, 1, 0}, __uint_as_float(0x7fffffffu), out, state);
  out.finish(out.k);
}

}  // namespace tl_topk
