// What a launch of the selecting kernel is given: one compact struct, for every constant-memory
// line it touches costs a miss at the start of a launch that lasts a few microseconds.
//
// The first line, of which 48 bytes are left to the kernel, has all that is needed before the first
// loads go out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "host_device.h"
#include "mapping.h"
#include "problem.h"
#include "sampling.h"

namespace tl_topk {

// What a mapped launch of free order writes, where that is one output alone, of which the kernel's
// parameters tell all but a row's offset and pages.
enum class OnlyOutput : uint8_t {
  kNone,      // more, or in an order
  kSlots,     // of a plain mapping; each block has room for all pages of a row, and can copy them
  kFarSlots,  // of a plain mapping otherwise
  kRagged
};

struct KernelParams {
  const void* scores;
  int64_t scores_stride;
  uint32_t width;
  uint32_t k;
  Order order;
  bool largest;
  bool whole_rows;        // neither lengths nor row_starts
  uint8_t blocks_log2;    // blocks of a cluster, or of whatever shares a row without one
  uint8_t clusters_log2;  // clusters that share a row
  uint8_t sort_log2;      // see sort_entries()
  OnlyOutput only;        // of a mapped launch
  void* values;           // null: not wanted
  int32_t* indices;

  int64_t indices_stride;
  int64_t values_stride;
  SamplePlan full_plan;  // for rows as long as the width; shorter ones make their own
  IntVector lengths;
  IntVector row_starts;
  void* workspace;  // where clusters meet; null where they do not

  // Room to sort: 0 when the order of slots is free, else a power of two >= k.
  TL_TOPK_HD uint32_t sort_entries() const { return sort_log2 == 0 ? 0 : 1u << sort_log2; }
  void set_sort_entries(int64_t entries) {
    while (int64_t{1} << sort_log2 < entries) ++sort_log2;
  }
  void set_rows(const IntVector& lengths_, const IntVector& row_starts_) {
    lengths = lengths_;
    row_starts = row_starts_;
    whole_rows = lengths.data == nullptr && row_starts.data == nullptr;
  }
};
static_assert(offsetof(KernelParams, indices_stride) == 48);

struct MappedParams : KernelParams {
  Mapping mapping;

  // Its output then takes the place of the indices. Of `rows` rows; blocks have room for
  // `page_words` pages of one each.
  void note_only_output(int64_t rows, uint32_t page_words) {
    only = OnlyOutput::kNone;
    if (order != Order::kAny || indices != nullptr) return;
    if (mapping.plain) {
      only = OnlyOutput::kFarSlots;
      indices = mapping.slots;
      indices_stride = mapping.slots_stride;
      const uint32_t wanted = pages_to_copy(mapping, rows, width);
      if (wanted == 0 || wanted > page_words) return;
      only = OnlyOutput::kSlots;
      mapping.pages = static_cast<int32_t>(wanted);
    } else if (mapping.slots == nullptr) {
      only = OnlyOutput::kRagged;
      indices = mapping.ragged;
      indices_stride = mapping.ragged_stride;
    }
  }
};

template <bool kMapped>
using Params = std::conditional_t<kMapped, MappedParams, KernelParams>;

}  // namespace tl_topk
