// A row in global memory, cut into 16-byte vectors and dealt out to the warps that share it.
#pragma once

#include <cstdint>

#include "cuda/element.cuh"
#include "cuda/ptx.cuh"
#include "key.h"
#include "problem.h"
#include "row_span.h"

namespace tl_topk {

constexpr uint32_t kWarp = 32;

template <Dtype D>
struct Row {
  using Raw = typename Element<D>::Raw;
  static constexpr uint32_t kPerVector = Element<D>::kPerVector;

  const Raw* first;     // element 0 of the row's span
  uint32_t misaligned;  // elements between the 16-byte boundary below `first` and `first`
  uint32_t length;
  uint32_t flip;  // sign bits to invert so that larger is better: 0 or Element<D>::kSigns

  __device__ uint32_t vectors() const {
    return (length + misaligned + kPerVector - 1) / kPerVector;
  }
  __device__ float oriented(uint32_t index) const {
    return Element<D>::widen(static_cast<Raw>(first[index] ^ flip));
  }

  // Vector v's elements as floats; what lies outside the row reads as NaN, which passes no
  // comparison. Returns the index of the vector's first element, wrapped below zero for the few
  // elements before the row.
  __device__ __forceinline__ uint32_t load(uint32_t v, float (&x)[kPerVector]) const {
    const uint32_t index = v * kPerVector - misaligned;
    if (index < length && index + (kPerVector - 1) < length) {
      const auto* base = reinterpret_cast<const uint4*>(first - misaligned);
      widen_vector<D>(ptx::load_vector(base + v), flip, x);
    } else {
#pragma unroll
      for (uint32_t j = 0; j < kPerVector; ++j) {
        x[j] = index + j < length ? oriented(index + j) : __uint_as_float(0x7fffffffu);
      }
    }
    return index;
  }
};

template <Dtype D>
__device__ __forceinline__ Row<D> load_row(const TopKArgs& args, int64_t r) {
  using Raw = typename Element<D>::Raw;
  const RowSpan span = row_span(args.problem.width, args.lengths, args.row_starts, r);
  const Raw* first = static_cast<const Raw*>(args.scores) + r * args.scores_stride + span.begin;
  const auto below = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(first) % 16 / sizeof(Raw));
  return {first, below, static_cast<uint32_t>(span.length),
          args.problem.largest ? 0u : Element<D>::kSigns};
}

// Which vectors a warp reads. The row is cut into chunks of one vector a lane; `slots` streams, one
// per (load in flight, warp, block), each walk through `steps` consecutive chunks. So the first
// step of all streams together samples the whole row evenly, and neighbouring chunks go to
// different blocks: a sorted row burdens no block more than another.
struct Deal {
  uint32_t loads;   // in flight per thread
  uint32_t warps;   // of one block
  uint32_t blocks;  // that share the row
  uint32_t stream;  // this warp's first stream: warp * blocks + block
  uint32_t chunks;
  uint32_t steps;

  __device__ Deal(uint32_t vectors, uint32_t loads_, uint32_t block, uint32_t blocks_)
      : loads(loads_), warps(blockDim.x / kWarp), blocks(blocks_) {
    const uint32_t slots = loads * warps * blocks;
    stream = threadIdx.x / kWarp * blocks + block;
    chunks = (vectors + kWarp - 1) / kWarp;
    steps = (chunks + slots - 1) / slots;
  }
  // The vector that this lane reads as load u of a step; past the row's end when there is none.
  __device__ __forceinline__ uint32_t vector(uint32_t u, uint32_t step) const {
    return ((u * warps * blocks + stream) * steps + step) * kWarp + threadIdx.x % kWarp;
  }
};

}  // namespace tl_topk
