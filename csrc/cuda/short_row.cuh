// A row that one block holds in registers, selected in no order: counted whole.
//
// What a long row cannot afford: no floor, for every element is counted, and in so many bins that
// few are left in the one that holds the k-th. The least and the largest element of a sample are
// anchors enough. An element's count within its bin and the elements in better bins are its place
// among all: winners are put where they belong in shared memory, and go out side by side.
//
// Where too many crowd into one bin, rows are counted again (short_rounds.cuh).
#pragma once

#include <cstdint>

#include "cuda/phase_clock.cuh"
#include "cuda/row_memory.cuh"
#include "cuda/select.cuh"
#include "cuda/short_rounds.cuh"
#include "cuda/step_queue.cuh"

namespace tl_topk {

// The sample: the elements of two lanes of each warp.
constexpr uint32_t kSampledLanes = kWarp / kWarps;

// Infinite elements would leave no slope, so they are passed over where there are any.
template <uint32_t kElements>
__device__ __forceinline__ void put_extremes(const float (&x)[kElements], ShortScratch& scratch) {
  constexpr uint32_t kStride = kWarp / kSampledLanes;
  if (threadIdx.x % kStride != 0) return;
  float largest = -INFINITY;
  float least = INFINITY;
#pragma unroll
  for (uint32_t i = 0; i < kElements; ++i) {
    largest = fmaxf(largest, x[i]);
    least = fminf(least, x[i]);
  }
  if (ptx::unlikely(!(fmaxf(largest, -least) < INFINITY))) {
    largest = -INFINITY;
    least = INFINITY;
#pragma unroll
    for (uint32_t i = 0; i < kElements; ++i) {
      const float finite = fabsf(x[i]) < INFINITY ? x[i] : NAN;
      largest = fmaxf(largest, finite);
      least = fminf(least, finite);
    }
  }
  scratch.extremes[threadIdx.x / kStride] = {order_key_of_number(__float_as_uint(largest)),
                                             order_key_of_number(__float_as_uint(least))};
}
// Between the extremes of the sample; where none is finite they are NaN, which makes no map. By
// whole warps, once all are there.
__device__ __forceinline__ ShortMap map_between_extremes(const ShortScratch& scratch) {
  const uint2 mine = scratch.extremes[threadIdx.x % kWarp];
  const float top = __uint_as_float(bits_of_key(__reduce_max_sync(kAllLanes, mine.x)));
  const float low = __uint_as_float(bits_of_key(__reduce_min_sync(kAllLanes, mine.y)));
  return {make_bin_map(low, top, 2)};
}

// The elements up to the cut, by place.
struct Winners {
  uint32_t* indices;
  float* scores;  // only those in the cut's bin, unless values are wanted

  __device__ __forceinline__ explicit Winners(Entry* memory, uint32_t room)
      : indices(reinterpret_cast<uint32_t*>(memory)),
        scores(reinterpret_cast<float*>(indices + room)) {}

  __device__ __forceinline__ uint64_t rank(uint32_t place) const {
    return rank_key(order_key(__float_as_uint(scores[place])), indices[place]);
  }
};

// Writes a winner of the cut's bin.
template <typename Writer>
struct ResidualWriter {
  Writer write;
  const float* scores;

  __device__ __forceinline__ void operator()(uint32_t slot, uint64_t rank, uint32_t element) const {
    write(slot, index_of_rank(rank), scores + element);
  }
};

// More than a warp has lanes: in a function of its own, which keeps its code out of the usual way.
template <typename Writer>
__device__ __noinline__ void rank_many(const Winners winners, const TableCut cut, uint32_t k,
                                       SharedState& state, const ResidualWriter<Writer> wins) {
  if (threadIdx.x < kMaxResidual) {
    const uint32_t element = threadIdx.x;
    state.residual[element] = element < cut.inside ? winners.rank(cut.above + element) : 0;
  }
  __syncthreads();
  rank_residual(state.residual, cut, k, wins);
}

// Those above the cut as they lie, and the best of its bin.
template <typename Writer>
__device__ __forceinline__ void write_winners(const Winners& winners, const TableCut& cut,
                                              uint32_t k, SharedState& state, const Writer& write) {
  write.all(winners.indices, winners.scores, cut.above);
  const ResidualWriter<Writer> wins{write, winners.scores + cut.above};
  if (ptx::unlikely(cut.inside > kWarp)) return rank_many(winners, cut, k, state, wins);
  if (threadIdx.x / kWarp >= cut.inside) return;
  const uint32_t lane = threadIdx.x % kWarp;
  rank_few(lane < cut.inside ? winners.rank(cut.above + lane) : 0, cut, k, wins);
}

// Of a mapped launch, is one word wanted of each winner, which this block alone can tell?
__device__ __forceinline__ bool counts_whole(const MappedParams& params) {
  return params.only == OnlyOutput::kSlots || params.only == OnlyOutput::kRagged;
}

// Rows that are longer than k.
template <Dtype D, int kLoadsLog2, bool kMapped>
__device__ __forceinline__ void select_short(const Params<kMapped>& params, uint32_t row_number,
                                             const Row<D>& row, const SharedMemory& memory) {
  constexpr int kLoads = 1 << kLoadsLog2;
  constexpr uint32_t kPerVector = Row<D>::kPerVector;
  constexpr uint32_t kElements = kLoads * kPerVector;
  SharedState& state = memory.state;
  ShortScratch& scratch = state.short_row;

  const Deal deal = Deal::of_one_step();
  uint4 loaded[kLoads];
  load_step<D, kLoads, false>(row, deal, deal.step(0), loaded);
  clear_bins(state);
  open_pages(params, state);
  mask_step<D, kLoads>(row, deal, deal.step(0), loaded);
  float x[kElements];
  widen_step<D, kLoads>(loaded, row.flip, x);
  put_extremes(x, scratch);
  __syncthreads();
  mark(kPhaseRead);
  ask_for_mapping(params, row_number, memory.pages, state);
  const ShortMap map = map_between_extremes(scratch);
  mark(kPhaseFloor);

  uint32_t bin[kElements];
  uint32_t place[kElements];  // among those of its bin, then among all
#pragma unroll
  for (uint32_t i = 0; i < kElements; ++i) {
    // What lies beside the row is NaN. A vector of it is counted where nobody looks, each lane's
    // elsewhere, which takes no branch. In a vector of the row it ranks behind all else, for it has
    // no index below the length.
    const auto first = static_cast<int32_t>(row.index(deal.vector(i / kPerVector, 0)));
    const bool in_row = first < static_cast<int32_t>(row.length);
    bin[i] = map(x[i], in_row ? kShortBins - 1 : kShortBins + threadIdx.x % kWarp);
  }
#pragma unroll
  for (uint32_t i = 0; i < kElements; ++i) place[i] = atomicAdd(&scratch.bins[bin[i]], 1u);
  __syncthreads();
  mark(kPhaseCount);
  sum_bins(scratch, params.k, state.cut);
  __syncthreads();
  mark(kPhaseCut);
  const TableCut cut = state.cut;
  const auto write = make_writer(params, row_number, row, memory.pages, state);
  if (ptx::unlikely(cut.inside > kMaxResidual)) {
    return select_in_rounds<D, kLoadsLog2, kMapped>(params, row_number);
  }
  const Winners winners(memory.list, kElements * kThreads);
  const uint32_t first_scored = write.reads_scores() ? 0 : cut.bin;
#pragma unroll
  for (uint32_t i = 0; i < kElements; ++i) {
    place[i] += ptx::shared_load_if(&scratch.bins[bin[i]], bin[i] <= cut.bin, 0);
  }
#pragma unroll
  for (uint32_t i = 0; i < kElements; ++i) {
    const uint32_t index = row.index(deal.vector(i / kPerVector, 0)) + i % kPerVector;
    const bool wins = bin[i] <= cut.bin;
    ptx::shared_store_if(winners.indices + place[i], index, wins);
    ptx::shared_store_if(reinterpret_cast<uint32_t*>(winners.scores) + place[i],
                         __float_as_uint(x[i]), wins && bin[i] >= first_scored);
  }
  __syncthreads();
  mark(kPhaseEmit);
  write_winners(winners, cut, params.k, state, write);
  mark(kPhaseSelect);
  record_phases(blockIdx.x);
}

}  // namespace tl_topk
