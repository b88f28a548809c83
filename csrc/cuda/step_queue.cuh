// The steps of a share on their way from memory: several at once, for a multiprocessor receives as
// fast as it has asked, and what lies in memory takes most of a microsecond.
#pragma once

#include <cstdint>

#include "config.h"
#include "cuda/element.cuh"
#include "cuda/ptx.cuh"
#include "cuda/row.cuh"
#include "cuda/survivor_list.cuh"

namespace tl_topk {

// Do all of this lane's vectors of one step lie in the row? But for the warps at its ends they do.
template <Dtype D, int kLoads>
__device__ __forceinline__ bool is_step_inside(const Row<D>& row, const Deal& deal, uint32_t step) {
  const uint32_t first = row.index(deal.vector(0, step));
  const uint32_t last = row.index(deal.vector(kLoads - 1, step)) + (Row<D>::kPerVector - 1);
  return first < row.length && last < row.length;
}

// This lane's vectors of one step. Where one check says that all are inside, no other branch is
// taken. Unless `kMasked`, what lies behind the row is left to mask_step(), and no warp waits here.
template <Dtype D, int kLoads, bool kMasked>
__device__ __forceinline__ void load_step(const Row<D>& row, const Deal& deal, uint32_t step,
                                          uint4 (&loaded)[kLoads]) {
  if (is_step_inside<D, kLoads>(row, deal, step) && !row.unaligned) {
#pragma unroll
    for (uint32_t u = 0; u < kLoads; ++u) loaded[u] = row.load_inside(deal.vector(u, step));
  } else {
#pragma unroll
    for (uint32_t u = 0; u < kLoads; ++u) {
      const uint32_t v = deal.vector(u, step);
      loaded[u] = kMasked ? row.load(v) : row.load_unmasked(v);
    }
  }
}

// Makes NaN of what load_step() brought from behind the row.
template <Dtype D, int kLoads>
__device__ __forceinline__ void mask_step(const Row<D>& row, const Deal& deal, uint32_t step,
                                          uint4 (&loaded)[kLoads]) {
  if (is_step_inside<D, kLoads>(row, deal, step)) return;
#pragma unroll
  for (uint32_t u = 0; u < kLoads; ++u) row.mask_end(deal.vector(u, step), loaded[u]);
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

constexpr uint32_t kQueueSlack = 128;

// Of `kBytes` in shared memory. Threads read back what they asked for themselves, so no barrier is
// needed. Loads into registers would not do: one that is awaited waits for those after it.
template <Dtype D, int kLoads, int64_t kBytes>
class StepQueue {
 public:
  // Steps that are under way at once.
  static constexpr uint32_t kDepth = kBytes / (kLoads * kThreads * sizeof(uint4));
  static_assert((kDepth & (kDepth - 1)) == 0);

  __device__ __forceinline__ StepQueue(const Row<D>& row, const Deal& deal, unsigned char* memory)
      : mine_(slots(row, memory)),
        first_(ptx::keep(row.index(deal.vector(0, 0)))),
        stride_(ptx::keep(row.index(deal.vector(1, 0)) - first_)),
        whole_(0),
        edge_(kNone) {
    const bool before = static_cast<int32_t>(first_) < 0;  // begins before the row
    const uint32_t last = index(deal.steps - 1, 0) + (kPerVector - 1);
#pragma unroll
    for (uint32_t u = 0; u < kLoads; ++u) whole_ += !before && last + u * stride_ < row.length;
    if (whole_ < kLoads) read_edge(row, deal, before);
  }

  // This thread's slots, kThreads apart. They lie as the row does relative to the 128 bytes of a
  // line: out of step with the 32 that memory sends at a time, filling them takes longer. `memory`
  // has kQueueSlack bytes more for that.
  static __device__ __forceinline__ uint4* slots(const Row<D>& row, unsigned char* memory) {
    const auto at = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(row.address(0)));
    return reinterpret_cast<uint4*>(memory + at % kQueueSlack) + threadIdx.x;
  }

  // Asks for the first steps of a share. They are taken in the order of the deal.
  __device__ __forceinline__ void fill(const Row<D>& row, const Deal& deal) const {
#pragma unroll 1
    for (uint32_t i = 0; i < kDepth; ++i) push(i, row, deal);
  }
  // Asks for the i-th step, or for nothing past the end. The step kDepth before it is done with.
  __device__ __forceinline__ void push(uint32_t i, const Row<D>& row, const Deal& deal) const {
    if (i < deal.steps) {
      const uint32_t step = deal.step(i);
      const auto* const from = reinterpret_cast<const uint4*>(row.first + index(step, 0));
      ptx::copy_vectors_async<kLoads, kThreads>(slot(i, 0), from, stride_ / kPerVector, whole_);
      if (whole_ < kLoads) push_edges(i, step, row);
    }
    ptx::commit_copies();
  }
  // The first step, which is not taken by that.
  __device__ __forceinline__ void peek(uint32_t flip,
                                       float (&x)[kLoads * Row<D>::kPerVector]) const {
    pop(0, flip, x);
  }

  // Lists what lies above the floor of all steps; `survivors` counts it, also when there is no more
  // room.
  __device__ __forceinline__ void list_all(const Row<D>& row, const Deal& deal, float floor,
                                           const SharedList& list, uint32_t* survivors) const {
    const float orientation = row.flip == 0 ? 1.0f : -1.0f;
    for (uint32_t i = 0;; i = ptx::keep(i + 1)) {
      float x[kLoads * kPerVector];
      pop(i, 0, x);
      put(i, above_floor(x, orientation, floor), row, deal, list, survivors);
      push(i + kDepth, row, deal);
      if (i + 1 == deal.steps) break;
    }
  }

 private:
  using Raw = typename Row<D>::Raw;
  static constexpr uint32_t kPerVector = Row<D>::kPerVector;
  static constexpr uint32_t kNone = ~0u;

  // Reads the vector of this thread's that lies partly in the row, of which there seldom are two:
  // early, for behind all that is asked for below it would arrive last.
  __device__ __forceinline__ void read_edge(const Row<D>& row, const Deal& deal, bool before) {
    constexpr uint32_t kStride = kWarp * kPerVector;  // from one step to the next
    uint32_t step = 0;
    if (!before) {
      const uint32_t begin = first_ + whole_ * stride_;
      if (static_cast<int32_t>(begin) >= static_cast<int32_t>(row.length)) return;
      const uint32_t rest = row.length - 1 - begin;
      if (rest % kStride >= kPerVector - 1) return;  // the row ends with a vector, or between them
      step = rest / kStride;
    }
    const uint32_t at = index(step, before ? 0 : whole_);
#pragma unroll
    for (uint32_t j = 0; j < kPerVector; ++j) {
      edge_raw_[j] = at + j < row.length ? row.first[at + j] : static_cast<Raw>(~Raw{0});
    }
    edge_ = deal.order(step);
  }
  // What has been read goes where the rest of its step is.
  __device__ __forceinline__ void put_edge(uint32_t i) const {
    if (i != edge_) return;
    const bool before = static_cast<int32_t>(first_) < 0;
    auto* const to = reinterpret_cast<Raw*>(slot(i, before ? 0 : whole_));
#pragma unroll
    for (uint32_t j = 0; j < kPerVector; ++j) to[j] = edge_raw_[j];
  }

  // The loads that do not lie in the row at every step. Those that never do are put there once.
  __device__ __forceinline__ void push_edges(uint32_t i, uint32_t step, const Row<D>& row) const {
#pragma unroll 1
    for (uint32_t u = whole_; u < kLoads; ++u) {
      const bool never =
          static_cast<int32_t>(first_ + u * stride_) >= static_cast<int32_t>(row.length);
      if (never && i >= kDepth) break;
      const uint32_t v = (index(step, u) + row.misaligned) / kPerVector;
      if (row.is_inside(v)) {
        ptx::copy_vector_async(slot(i, u), row.address(v));
      } else if (i != edge_ || u != (static_cast<int32_t>(first_) < 0 ? 0 : whole_)) {
        *slot(i, u) = row.load_edge(v);
      }
    }
  }

  // Waits for the i-th step; kDepth - 1 steps after it have been asked for.
  __device__ __forceinline__ void pop(uint32_t i, uint32_t flip,
                                      float (&x)[kLoads * Row<D>::kPerVector]) const {
    ptx::await_copies<kDepth - 1>();
    put_edge(i);
    uint4 loaded[kLoads];
#pragma unroll
    for (uint32_t u = 0; u < kLoads; ++u) loaded[u] = *slot(i, u);
    widen_step<D, kLoads>(loaded, flip, x);
  }

  // Lists this thread's elements of the i-th step that `mine` has a bit for. Few threads have any,
  // so each takes its places itself.
  __device__ __forceinline__ void put(uint32_t i, uint32_t mine, const Row<D>& row,
                                      const Deal& deal, const SharedList& list,
                                      uint32_t* survivors) const {
    if (mine == 0) return;
    const uint32_t count = __popc(mine);
    const uint32_t place = atomicAdd(survivors, count);
    if (place + count > list.capacity) return;
    auto cursor = list.at(place);
    const uint32_t start = index(deal.step(i), 0);
    for (; mine != 0; mine &= mine - 1) {  // read again: registers have no number to be found by
      const uint32_t e = __ffs(mine) - 1;
      const uint32_t u = e / kPerVector;
      const auto* const raw = reinterpret_cast<const typename Row<D>::Raw*>(slot(i, u));
      cursor.put_if(row.widen(raw[e % kPerVector]), start + u * stride_ + e % kPerVector, true);
    }
  }

  __device__ __forceinline__ uint4* slot(uint32_t i, uint32_t u) const {
    return mine_ + ((i & (kDepth - 1)) * kLoads + u) * kThreads;
  }
  // Of the first element of load u.
  __device__ __forceinline__ uint32_t index(uint32_t step, uint32_t u) const {
    return first_ + step * (kWarp * kPerVector) + u * stride_;
  }

  uint4* mine_;
  uint32_t first_;   // index of this lane's first element
  uint32_t stride_;  // elements from one load to the next
  uint32_t whole_;   // so many of the loads lie in the row at every step
  uint32_t edge_;    // when the vector is taken that lies partly in the row, or kNone
  Raw edge_raw_[kPerVector];
};

// With no shared memory to spare: one step, in registers.
template <Dtype D, int kLoads>
class StepQueue<D, kLoads, 0> {
 public:
  __device__ __forceinline__ StepQueue(const Row<D>&, const Deal&, unsigned char*) {}
  __device__ __forceinline__ void fill(const Row<D>& row, const Deal& deal) {
    load_step<D, kLoads, false>(row, deal, deal.step(0), next_);
    mask_step<D, kLoads>(row, deal, deal.step(0), next_);
  }
  __device__ __forceinline__ void peek(uint32_t flip,
                                       float (&x)[kLoads * Row<D>::kPerVector]) const {
    widen_step<D, kLoads>(next_, flip, x);
  }
  __device__ __forceinline__ void list_all(const Row<D>& row, const Deal& deal, float floor,
                                           const SharedList& list, uint32_t* survivors) {
    float x[kLoads * Row<D>::kPerVector];
    if (deal.steps == 1) {  // apart: nothing that is loaded has to be kept from what follows
      widen_step<D, kLoads>(next_, row.flip, x);
      return list_step<D>(x, row, deal, 0, floor, list, survivors);
    }
    for (uint32_t i = 0;; ++i) {
      widen_step<D, kLoads>(next_, row.flip, x);
      if (i + 1 < deal.steps) load_step<D, kLoads, true>(row, deal, deal.step(i + 1), next_);
      list_step<D>(x, row, deal, deal.step(i), floor, list, survivors);
      if (i + 1 == deal.steps) break;
    }
  }

 private:
  uint4 next_[kLoads];
};

}  // namespace tl_topk
