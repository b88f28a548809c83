// What the two kernels of a fused indexer pass on, in one piece of global memory that needs no
// initialisation. Every block of the scoring kernel has a *segment* for each row it works on: the
// maxima of its first keys, from which all blocks guess the row's floor, and what passed the floor.
#pragma once

#include <cstdint>

namespace tl_topk::indexer {

// A score and its position in the row.
struct __align__(8) Survivor {
  float score;
  uint32_t position;
};

struct __align__(16) SegmentHead {
  uint32_t survivors;  // more than the capacity: the rest is lost
  float floor;         // all above it are here
  float ceiling;       // a guess: the k-th score is not above it
  uint32_t unused;
};

// The blocks that worked on a row.
struct __align__(8) BlockSpan {
  uint32_t first;
  uint32_t last;
};

struct Exchange {
  unsigned char* memory;
  uint32_t blocks;  // of the scoring kernel
  uint32_t sequences;
  uint32_t queries;   // of a sequence: a row each
  uint32_t capacity;  // of a segment
  uint32_t warps;     // of a block that publish a maximum

  // Blocks and sequences advance together along the tiles, so that this is unique.
  __host__ __device__ uint32_t segment(uint32_t block, uint32_t sequence, uint32_t query) const {
    return (block + sequence) * queries + query;
  }
  __host__ __device__ uint64_t segments() const {
    return static_cast<uint64_t>(blocks + sequences) * queries;
  }
  // A maximum's key below, above it the number of the launch: without it, it is of another launch.
  __host__ __device__ uint64_t* published(uint64_t segment) const {
    return reinterpret_cast<uint64_t*>(memory) + segment * warps;
  }
  __host__ __device__ SegmentHead* head(uint64_t segment) const {
    return reinterpret_cast<SegmentHead*>(published(segments())) + segment;
  }
  __host__ __device__ BlockSpan* span(uint64_t row) const {
    return reinterpret_cast<BlockSpan*>(head(segments())) + row;
  }
  __host__ __device__ Survivor* survivors(uint64_t segment) const {
    const uint64_t rows = static_cast<uint64_t>(sequences) * queries;
    return reinterpret_cast<Survivor*>(span(rows)) + segment * capacity;
  }
  __host__ __device__ uint64_t bytes() const {
    return static_cast<uint64_t>(reinterpret_cast<unsigned char*>(survivors(segments())) - memory);
  }
};

}  // namespace tl_topk::indexer
