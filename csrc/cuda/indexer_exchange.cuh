// What the blocks of a fused indexer pass on to one another, in one piece of global memory that
// needs no initialisation. A block has a *segment* for each row it works on: the maxima of its first
// keys, from which all blocks guess the row's floor, then what passed the floor, then a head that
// says it is all there.
//
// Heads and maxima carry the launch's number, and whoever has used them takes it away again, so that
// a replay of the same launch in a CUDA graph does not find those of the time before.
#pragma once

#include <cstdint>

namespace tl_topk::indexer {

// A score and its position in the row.
struct __align__(8) Survivor {
  float score;
  uint32_t position;
};

// Written and read at once, as 16 bytes.
struct __align__(16) SegmentHead {
  uint64_t tag;        // the launch's: all that follows, and all survivors, are there
  uint32_t survivors;  // more than the capacity: the rest is lost
  uint32_t floor_key;  // all above it are here
};

struct Exchange {
  unsigned char* memory;
  uint32_t blocks;
  uint32_t sequences;
  uint32_t queries;   // of a sequence: a row each
  uint32_t capacity;  // of a segment
  uint32_t warps;     // of a block that publish a maximum, a multiple of 4

  // Blocks and sequences advance together along the tiles, so that this is unique.
  __host__ __device__ uint32_t segment(uint32_t block, uint32_t sequence, uint32_t query) const {
    return (block + sequence) * queries + query;
  }
  __host__ __device__ uint64_t segments() const {
    return static_cast<uint64_t>(blocks + sequences) * queries;
  }
  // The top bits of a maximum's key, and below them the low bits of the launch's number.
  __host__ __device__ uint32_t* published(uint64_t segment) const {
    return reinterpret_cast<uint32_t*>(memory) + segment * warps;
  }
  __host__ __device__ SegmentHead* head(uint64_t segment) const {
    return reinterpret_cast<SegmentHead*>(published(segments())) + segment;
  }
  __host__ __device__ Survivor* survivors(uint64_t segment) const {
    return reinterpret_cast<Survivor*>(head(segments())) + segment * capacity;
  }
};

// Tells a launch's heads from whatever else may lie in memory.
__device__ __forceinline__ uint64_t tag_of(uint32_t nonce) {
  return (static_cast<uint64_t>(nonce) << 32 | nonce) * 0x9e3779b97f4a7c15u;
}

constexpr uint32_t kMarkBits = 8;
constexpr uint32_t kMarkMask = (1u << kMarkBits) - 1;

// What a maximum is published as. Another launch's may pass for one of this one's now and then:
// that costs a floor its precision, nothing more.
__device__ __forceinline__ uint32_t marked(uint32_t key, uint32_t nonce) {
  return (key & ~kMarkMask) | (nonce & kMarkMask);
}

// Tiles before `block`: all blocks have an equal share, the first few one more.
__device__ __forceinline__ uint32_t tiles_before(uint32_t block, uint32_t total, uint32_t blocks) {
  const uint32_t share = total / blocks;
  return block * share + min(block, total % blocks);
}

__device__ __forceinline__ uint32_t block_of_tile(uint32_t tile, uint32_t total, uint32_t blocks) {
  const uint32_t share = total / blocks;
  const uint32_t longer = total % blocks;  // blocks with one tile more
  if (tile < longer * (share + 1)) return tile / (share + 1);
  return longer + (tile - longer * (share + 1)) / share;
}

}  // namespace tl_topk::indexer
