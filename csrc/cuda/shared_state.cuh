// What a block keeps in shared memory.
#pragma once

#include <cstdint>

#include "bin_map.h"
#include "cuda/anchors.cuh"
#include "cuda/block_order.cuh"
#include "cuda/count_table.cuh"
#include "cuda/radix.cuh"
#include "mapping.h"

namespace tl_topk {

constexpr uint32_t kMaxResidual = 256;  // ranked by one comparison a pair; more go to the radix

// See grid_meeting.cuh.
struct GridState {
  uint64_t all_drew;  // barrier: every block of the cluster has said what it drew
  uint32_t drawn[kMaxClusterBlocks];
};

// See index_order.cuh.
struct MarkState {
  uint64_t here;                        // barrier: all bits of this block's part are
  uint32_t in_part[kMaxClusterBlocks];  // this block's winners above the cut, by part
  uint32_t before;                      // all blocks' winners in the parts before this block's
};

// Of a row that is counted whole: see short_row.cuh and short_rounds.cuh.
constexpr uint32_t kShortBins = 1024;

// A linear map to 0 .. 1, in bins from the best down. Saturating is free, and makes 0 of NaN, which
// goes to `worst`. No conversion: the last place of a sum is a unit, and rounding to the nearest is
// monotone as well.
struct ShortMap {
  BinMap linear;

  __device__ __forceinline__ uint32_t operator()(float x, uint32_t worst = kShortBins - 1) const {
    constexpr float kUnits = 8388608.0f;  // 2^23
    const float end = __uint_as_float(__float_as_uint(kUnits) + worst);
    const float part = __saturatef(fmaf(x, linear.scale, linear.shift));
    return __float_as_uint(fmaf(part, -static_cast<float>(kShortBins - 1), end)) -
           __float_as_uint(kUnits);
  }
};

struct ShortScratch {
  __align__(16) uint32_t bins[kShortBins + kWarp];  // the last ones for what does not count
  uint2 extremes[kWarp];  // keys of the largest and the least that some threads have
  uint2 range;            // of the keys of a round: the least and the largest
  uint32_t warp_sums[kWarps];
};

// The fixed part. What follows it, the queue of steps first, begins at a multiple of 128 bytes.
struct alignas(128) SharedState {
  union {                                  // used one after the other
    CountTable tables[kMaxClusterBlocks];  // every block's, by rank
    RadixScratch radix;
    OrderScratch order;
    ShortScratch short_row;
  };
  AnchorScratch anchors;
  BinCounts own;
  TableCut cut;
  float floor;
  __align__(16) uint64_t residual[kMaxResidual];  // ranks, read two at a time
  uint32_t residual_words[kMaxResidual];  // what a mapped launch of free order writes of them
  uint64_t tallied;                       // barrier: all tables are here
  uint64_t settled;                       // barrier: the residual is here
  uint64_t sorted;                        // barrier: all keys to sort are here
  uint64_t paged;                         // barrier: the pages that were copied whole are here
  GridState grid;
  MarkState marks;
  SamplePlan plan;
  RowMapping mapping;                  // of a mapped launch
  uint32_t before[kMaxClusterBlocks];  // what earlier blocks pass
  uint32_t reach_begin;                // slots of the bins that reach into this block's part
  uint32_t reach_end;
  uint32_t survivors;
  uint32_t winners;
};

}  // namespace tl_topk
