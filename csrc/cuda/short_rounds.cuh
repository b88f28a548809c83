// What rows that are counted whole share, and how they are selected where too many elements crowd
// into one bin: by rounds, each of which counts the elements in question by keys between their
// least and their largest, so that 10 bits of the key are settled; equal ones by their index.
#pragma once

#include <cstdint>

#include "cuda/output.cuh"
#include "cuda/prefix_sum.cuh"
#include "cuda/row_memory.cuh"
#include "cuda/select.cuh"
#include "cuda/step_queue.cuh"
#include "cuda/words.cuh"

namespace tl_topk {

// No element is counted yet. A barrier must follow.
__device__ __forceinline__ void clear_bins(SharedState& state) {
  reinterpret_cast<uint2*>(state.short_row.bins)[threadIdx.x] = {0, 0};
}

// Replaces the count of each bin by that of all better ones, and finds the cut: the bins hold k.
// Between barriers.
__device__ __forceinline__ void sum_bins(ShortScratch& scratch, uint32_t k, TableCut& cut) {
  constexpr uint32_t kOfThread = 2;
  static_assert(kShortBins == kOfThread * kThreads);
  auto& mine = reinterpret_cast<uint2*>(scratch.bins)[threadIdx.x];
  const uint2 count = mine;
  const uint32_t both = count.x + count.y;
  uint32_t total = 0;
  const uint32_t better = block_exclusive_sum(both, scratch.warp_sums, &total);
  mine = {better, better + count.x};
  if (better >= k || k > better + both) return;
  const bool second = k > better + count.x;
  cut = {kOfThread * threadIdx.x + second, second ? better + count.x : better,
         second ? count.y : count.x, 0};
}

// What is written of a winner.
template <Dtype D>
struct PlainWriter {
  Output<D, false> out;

  __device__ __forceinline__ bool reads_scores() const { return out.has_values(); }
  __device__ __forceinline__ void operator()(uint32_t slot, uint32_t index) const {
    out.write(slot, index);
  }
  __device__ __forceinline__ void operator()(uint32_t slot, uint32_t index,
                                             const float* score) const {
    out.write_scored(slot, index, score);
  }
  // Slots 0 .. n-1, four at a time where they lie so.
  __device__ __forceinline__ void all(const uint32_t* index, const float* score, uint32_t n) const {
    constexpr uint32_t kFour = 4;
    const bool aligned = reinterpret_cast<uintptr_t>(out.indices) % sizeof(uint4) == 0;
    const uint32_t whole = aligned ? n / kFour * kFour : 0;
#pragma unroll 1
    for (uint32_t i = threadIdx.x * kFour; i < whole; i += kThreads * kFour) {
      *reinterpret_cast<uint4*>(out.indices + i) = *reinterpret_cast<const uint4*>(index + i);
    }
#pragma unroll 1
    for (uint32_t i = whole + threadIdx.x; i < n; i += kThreads) {
      out.indices[i] = static_cast<int32_t>(index[i]);
    }
    if (!out.has_values()) return;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < n; i += kThreads) out.write_value(i, index[i], score[i]);
  }
};
struct WordWriter {
  OnlyWords words;

  __device__ __forceinline__ bool reads_scores() const { return false; }
  __device__ __forceinline__ void operator()(uint32_t slot, uint32_t index,
                                             const float* = nullptr) const {
    words.put(slot, index, words.of(0, index, true), true);
  }
  __device__ __forceinline__ void all(const uint32_t* index, const float*, uint32_t n) const {
    for (uint32_t i = threadIdx.x; i < n; i += kThreads) (*this)(i, index[i]);
  }
};
template <Dtype D>
__device__ __forceinline__ PlainWriter<D> make_writer(const KernelParams& params,
                                                      uint32_t row_number, const Row<D>& row,
                                                      const uint32_t*, SharedState& state) {
  return {make_output<false, false>(params, row_number, row, state.mapping)};
}
template <Dtype D>
__device__ __forceinline__ WordWriter make_writer(const MappedParams& params, uint32_t row_number,
                                                  const Row<D>&, const uint32_t* pages,
                                                  SharedState& state) {
  return {{params, row_number, pages, state}};
}

// The row from the beginning, read again: in a function of its own, which takes no register of the
// usual path. A round leaves a range of keys 2^10 times smaller, so there are four of them at the
// most, and one by index, of which a bin has few.
template <Dtype D, int kLoadsLog2, bool kMapped>
__device__ __noinline__ void select_in_rounds(const Params<kMapped>& params, uint32_t row_number) {
  constexpr int kLoads = 1 << kLoadsLog2;
  constexpr uint32_t kPerVector = Row<D>::kPerVector;
  constexpr uint32_t kElements = kLoads * kPerVector;
  constexpr uint32_t kBinBits = 10;
  static_assert(kShortBins == 1u << kBinBits);
  static_assert(kThreads * kElements <= kMaxResidual << kBinBits, "so few have one bin by index");
  const SharedMemory memory = own_memory<kElements * kThreads, 0>(params);
  SharedState& state = memory.state;
  ShortScratch& scratch = state.short_row;
  Row<D> row = find_row<D>(params, row_number);
  row.fit(kThreads << kLoadsLog2);
  const Deal deal = Deal::of_one_step();
  uint4 loaded[kLoads];
  load_step<D, kLoads, true>(row, deal, deal.step(0), loaded);
  float x[kElements];
  widen_step<D, kLoads>(loaded, row.flip, x);
  uint32_t key[kElements];
  uint32_t index[kElements];
  uint32_t bin[kElements];
  uint32_t asked = 0;  // a bit for each element in question
#pragma unroll
  for (uint32_t i = 0; i < kElements; ++i) {
    key[i] = order_key(__float_as_uint(x[i]));
    index[i] = row.index(deal.vector(i / kPerVector, 0)) + i % kPerVector;
    asked |= index[i] < row.length ? 1u << i : 0;
  }
  const auto bits_of = [](uint32_t range) { return 32 - __clz(static_cast<int>(range)); };
  auto* const winners = reinterpret_cast<uint32_t*>(memory.list);
  TableCut cut;
  uint32_t above = 0;  // winners that earlier rounds have found
  while (true) {
    __syncthreads();  // what the last round left has been read
    clear_bins(state);
    if (threadIdx.x < kMaxResidual) state.residual[threadIdx.x] = 0;
    if (threadIdx.x == 0) scratch.range = {~0u, 0};
    __syncthreads();
    uint32_t least = ~0u;
    uint32_t largest = 0;
#pragma unroll
    for (uint32_t i = 0; i < kElements; ++i) {
      least = asked >> i & 1 ? min(least, key[i]) : least;
      largest = asked >> i & 1 ? max(largest, key[i]) : largest;
    }
    least = __reduce_min_sync(kAllLanes, least);
    largest = __reduce_max_sync(kAllLanes, largest);
    if (threadIdx.x % kWarp == 0) {
      atomicMin(&scratch.range.x, least);
      atomicMax(&scratch.range.y, largest);
    }
    __syncthreads();
    least = scratch.range.x;
    largest = scratch.range.y;
    const bool equal = least == largest;
    const int bits = bits_of(equal ? row.length - 1 : largest - least);
    const int shift = max(bits - static_cast<int>(kBinBits), 0);
    uint32_t place[kElements];
#pragma unroll
    for (uint32_t i = 0; i < kElements; ++i) {
      const bool counts = (asked >> i & 1) != 0;
      bin[i] = counts ? (equal ? index[i] : largest - key[i]) >> shift
                      : kShortBins + threadIdx.x % kWarp;
      place[i] = atomicAdd(&scratch.bins[bin[i]], 1u);
    }
    __syncthreads();
    sum_bins(scratch, params.k - above, state.cut);
    __syncthreads();
    cut = state.cut;
    const bool last = cut.inside <= kMaxResidual;
    uint32_t still = 0;
#pragma unroll
    for (uint32_t i = 0; i < kElements; ++i) {
      place[i] += scratch.bins[bin[i]];
      ptx::shared_store_if(winners + above + place[i], index[i], bin[i] < cut.bin);
      if (bin[i] != cut.bin) continue;
      still |= 1u << i;
      if (last) state.residual[place[i] - cut.above] = rank_key(key[i], index[i]);
    }
    asked = still;
    above += cut.above;
    if (last) break;
  }
  cut.above = above;
  __syncthreads();
  const auto write = make_writer(params, row_number, row, memory.pages, state);
  for (uint32_t i = threadIdx.x; i < cut.above; i += kThreads) write(i, winners[i]);
  rank_residual(state.residual, cut, params.k,
                [&](uint32_t slot, uint64_t rank, uint32_t) { write(slot, index_of_rank(rank)); });
}

}  // namespace tl_topk
