// Which elements of the matrix belong to a row: the contract's clamping rule.
#pragma once

#include <cstdint>

#include "host_device.h"
#include "problem.h"

namespace tl_topk {

// Elements [begin, begin + length) of row r, counted from the row's first element.
struct RowSpan {
  int64_t begin;
  int64_t length;
};

TL_TOPK_HD int64_t load_int(const IntVector& v, int64_t i) {
  return v.is_int64 ? static_cast<const int64_t*>(v.data)[i]
                    : static_cast<int64_t>(static_cast<const int32_t*>(v.data)[i]);
}

// A negative start counts as 0 with the length unchanged, everything is clamped to the width, and
// no sum is formed that could overflow.
TL_TOPK_HD RowSpan row_span(int64_t width, const IntVector& lengths, const IntVector& row_starts,
                            int64_t row) {
  int64_t begin = row_starts.data != nullptr ? load_int(row_starts, row) : 0;
  if (begin < 0) begin = 0;
  if (begin >= width) return {0, 0};
  int64_t length = lengths.data != nullptr ? load_int(lengths, row) : width;
  if (length <= 0) return {0, 0};
  const int64_t room = width - begin;
  return {begin, length < room ? length : room};
}

}  // namespace tl_topk
