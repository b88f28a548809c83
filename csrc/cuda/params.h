// What a launch of the selecting kernel is given: one compact struct, for every constant-memory
// line it touches costs a miss at the start of a launch that lasts a few microseconds.
#pragma once

#include <cstdint>
#include <type_traits>

#include "problem.h"
#include "sampling.h"

namespace tl_topk {

struct KernelParams {
  const void* scores;
  int64_t scores_stride;
  int32_t* indices;
  int64_t indices_stride;
  void* values;  // null: not wanted
  int64_t values_stride;
  uint32_t width;
  uint32_t k;
  uint32_t sort_entries;  // 0 when the order of slots is free, else a power of two >= k
  IntVector lengths;
  IntVector row_starts;
  SamplePlan full_plan;  // for rows as long as the width; shorter ones make their own
  Order order;
  bool largest;
  uint8_t blocks_log2;    // blocks of a cluster, or of whatever shares a row without one
  uint8_t clusters_log2;  // clusters that share a row
  void* workspace;        // where clusters meet; null where they do not
};

struct MappedParams : KernelParams {
  Mapping mapping;
};

template <bool kMapped>
using Params = std::conditional_t<kMapped, MappedParams, KernelParams>;

}  // namespace tl_topk
