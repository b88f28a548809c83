// A row in global memory, cut into 16-byte vectors and dealt out to the warps that share it.
#pragma once

#include <cstdint>

#include "cuda/element.cuh"
#include "cuda/params.h"
#include "cuda/ptx.cuh"
#include "key.h"
#include "mapping.h"
#include "problem.h"
#include "row_span.h"

namespace tl_topk {

constexpr uint32_t kWarp = 32;
constexpr uint32_t kAllLanes = 0xffffffffu;
// Threads of a block: fixed, so that shares are constants. Half a multiprocessor's registers'
// worth, so that two blocks fit.
constexpr uint32_t kThreads = 512;
constexpr uint32_t kWarps = kThreads / kWarp;
constexpr uint32_t kWarpsLog2 = 4;
static_assert(kWarps == 1u << kWarpsLog2);
constexpr uint32_t kThreadsLog2 = kWarpsLog2 + 5;

template <Dtype D>
struct Row {
  using Raw = typename Element<D>::Raw;
  static constexpr uint32_t kPerVector = Element<D>::kPerVector;

  const Raw* first;     // element 0 of the row's span
  uint32_t misaligned;  // elements between the 16-byte boundary below `first` and `first`
  uint32_t length;
  uint32_t readable;       // elements from there on that are the caller's: at least `length`
  uint32_t flip;           // sign bits to invert so that larger is better: 0 or Element<D>::kSigns
  bool unaligned = false;  // vectors begin at `first` and are loaded element by element

  __device__ uint32_t vectors() const {
    return (length + misaligned + kPerVector - 1) / kPerVector;
  }
  // A row that fills `most` vectors but does not begin at a vector's boundary touches one more: cut
  // it into vectors from its first element instead.
  __device__ __forceinline__ void fit(uint32_t most) {
    if (vectors() <= most) return;
    unaligned = true;
    misaligned = 0;
  }
  __device__ float oriented(uint32_t index) const { return widen(first[index]); }
  __device__ float widen(Raw raw) const { return Element<D>::widen(static_cast<Raw>(raw ^ flip)); }
  // The inverse for a number that `widen_vector` or `oriented` gave: bit for bit as in memory.
  __device__ Raw raw(float oriented) const {
    return static_cast<Raw>(Element<D>::narrow(oriented) ^ flip);
  }

  // The index of vector v's first element, wrapped below zero for the few elements before the row.
  __device__ __forceinline__ uint32_t index(uint32_t v) const {
    return v * kPerVector - misaligned;
  }

  // Vector v as it lies in memory; what is outside the row reads as NaN, which passes no
  // comparison.
  __device__ __forceinline__ uint4 load(uint32_t v) const {
    return is_inside(v) ? load_inside(v) : load_edge(v);
  }
  __device__ __forceinline__ bool is_inside(uint32_t v) const {
    const uint32_t i = index(v);
    return i < length && i + (kPerVector - 1) < length && !unaligned;
  }
  // The same for a vector that lies inside the row.
  __device__ __forceinline__ uint4 load_inside(uint32_t v) const {
    return ptx::load_vector(address(v));
  }
  __device__ __forceinline__ const uint4* address(uint32_t v) const {
    return reinterpret_cast<const uint4*>(first - misaligned) + v;
  }

  // The same for one that does not.
  __device__ __forceinline__ uint4 load_edge(uint32_t v) const {
    const auto i = static_cast<int32_t>(index(v));
    const bool outside = i >= static_cast<int32_t>(length);  // all of it
    return outside ? uint4{~0u, ~0u, ~0u, ~0u} : load_each(static_cast<uint32_t>(i));
  }
  // The same, but the vector in which the row ends may come as it lies in memory: what follows the
  // row can be read, and mask_end() makes NaN of it once it is here. Nobody has to wait before. Of
  // vectors wholly behind the row it makes nothing: they are NaN.
  __device__ __forceinline__ uint4 load_unmasked(uint32_t v) const {
    const uint32_t i = index(v);
    const bool whole = i < length && i + (kPerVector - 1) < readable && !unaligned;
    return whole ? load_inside(v) : load_edge(v);
  }
  __device__ __forceinline__ void mask_end(uint32_t v, uint4& loaded) const {
    const uint32_t i = index(v);  // wrapped below zero before the row
    const uint32_t inside = i < length ? min(length - i, kPerVector) : kPerVector;
    const auto bits = static_cast<int32_t>(inside * 8 * sizeof(Raw));  // of the vector's 128
    uint32_t* const words[] = {&loaded.x, &loaded.y, &loaded.z, &loaded.w};
#pragma unroll
    for (int32_t w = 0; w < 4; ++w) *words[w] |= ptx::ones_above(max(bits - 32 * w, 0));
  }

 private:
  __device__ __noinline__ uint4 load_each(uint32_t i) const {
    constexpr Raw kNaN = static_cast<Raw>(~Raw{0});
    union {
      Raw raw[kPerVector];
      uint4 vector;
    } edge;
#pragma unroll
    for (uint32_t j = 0; j < kPerVector; ++j) edge.raw[j] = i + j < length ? first[i + j] : kNaN;
    return edge.vector;
  }
};

__device__ __forceinline__ RowSpan span_of(const KernelParams& params, uint32_t r) {
  return row_span(params.width, params.lengths, params.row_starts, r);
}
__device__ __forceinline__ RowSpan span_of(const MappedParams& params, uint32_t r) {
  return mapped_row_span(params.width, params.lengths, params.row_starts, params.mapping, r);
}

template <Dtype D, typename Params>
__device__ __forceinline__ Row<D> find_row(const Params& params, uint32_t r) {
  using Raw = typename Element<D>::Raw;
  const Raw* first = static_cast<const Raw*>(params.scores) + r * params.scores_stride;
  uint32_t length = params.width;
  uint32_t readable = params.width;
  if (!params.whole_rows) {
    const RowSpan span = span_of(params, r);
    first += span.begin;
    length = static_cast<uint32_t>(span.length);
    readable -= static_cast<uint32_t>(span.begin);
  }
  const auto below = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(first)) % 16 / sizeof(Raw);
  const uint32_t flip = params.largest ? 0u : Element<D>::kSigns;
  return {first, static_cast<uint32_t>(below), length, readable, flip};
}

// Which vectors a warp reads. The row is cut into chunks of one vector a lane; streams, one per
// (load in flight, warp, block), each walk through `steps` consecutive chunks. So the first step of
// all streams together samples the whole row evenly, and neighbouring chunks go to different
// blocks: a sorted row burdens no block more than another. Nor does a periodic one, for from warp
// to warp the blocks take turns. The first step is the middle one of each stream, no better and no
// worse than the stream where the row is sorted.
//
// Where `side_by_side`, a warp's loads are one stream: fewer instructions, but winners that lie
// together are then the same warp's.
struct Deal {
  uint32_t first;      // this warp's first chunk
  uint32_t from_load;  // chunks from one load of a step to the next
  uint32_t from_step;  // and from one step to the next
  uint32_t steps;

  __device__ __forceinline__ Deal(uint32_t vectors, uint32_t loads_log2, uint32_t block,
                                  uint32_t blocks_log2, bool side_by_side = false) {
    const uint32_t warp = threadIdx.x / kWarp;
    const uint32_t stream = (warp << blocks_log2) + ((block + warp) & ((1u << blocks_log2) - 1));
    const uint32_t step_log2 = loads_log2 + kWarpsLog2 + 5 + blocks_log2;  // vectors a step
    steps = ptx::keep((vectors + (1u << step_log2) - 1) >> step_log2);
    from_step = side_by_side ? 1u << loads_log2 : 1;
    from_load = side_by_side ? 1 : steps * (kWarps << blocks_log2);
    first = stream * steps * from_step;
  }

  // Of a row that one block takes in one step: side by side what is loaded at once.
  static __device__ __forceinline__ Deal of_one_step() { return {}; }

  // The i-th step to be taken, of `steps`.
  __device__ __forceinline__ uint32_t step(uint32_t i) const {
    const uint32_t step = steps / 2 + i;
    return step < steps ? step : step - steps;
  }

  // Its inverse: when a step is taken.
  __device__ __forceinline__ uint32_t order(uint32_t step) const {
    return step < steps / 2 ? step + steps - steps / 2 : step - steps / 2;
  }

  // The vector that this lane reads as load u of a step; past the row's end when there is none.
  __device__ __forceinline__ uint32_t vector(uint32_t u, uint32_t step) const {
    return (first + u * from_load + step * from_step) * kWarp + threadIdx.x % kWarp;
  }

 private:
  __device__ __forceinline__ Deal()
      : first(threadIdx.x / kWarp), from_load(kWarps), from_step(1), steps(1) {}
};

}  // namespace tl_topk
