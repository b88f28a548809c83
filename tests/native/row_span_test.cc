// row_span.h against the contract's sentence, summed in 128 bits.
#include "row_span.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "check.h"

namespace {

using tl_topk::IntVector;
using tl_topk::row_span;
using tl_topk::RowSpan;

using Wide = __int128;

RowSpan expected(int64_t width, const int64_t* length, const int64_t* start) {
  const Wide begin = start == nullptr ? 0 : std::max<Wide>(*start, 0);
  const Wide end = length == nullptr ? width : std::min<Wide>(begin + *length, width);
  if (end <= begin) return {0, 0};
  return {static_cast<int64_t>(begin), static_cast<int64_t>(end - begin)};
}

bool operator==(const RowSpan& a, const RowSpan& b) {
  return a.length == b.length && (a.length == 0 || a.begin == b.begin);
}

template <class Int>
void spans_agree() {
  std::vector<Int> values = {0, 1, 2, 3, 4095, 4096, 4097, -1, -2, -4096};
  for (const Int extreme : {std::numeric_limits<Int>::min(), std::numeric_limits<Int>::max()}) {
    values.push_back(extreme);
    values.push_back(static_cast<Int>(extreme / 2));
    values.push_back(static_cast<Int>(extreme - (extreme > 0 ? 1 : -1)));
  }
  constexpr bool kIs64 = sizeof(Int) == 8;
  for (const int64_t width : {int64_t{0}, int64_t{1}, int64_t{4096}, tl_topk::kMaxWidth}) {
    CHECK(row_span(width, {}, {}, 5) == expected(width, nullptr, nullptr));
    for (size_t i = 0; i < values.size(); ++i) {
      // Row i of one vector and a single entry of the other: the row number is used, not ignored.
      const auto row = static_cast<int64_t>(i);
      const int64_t a = values[i];
      const IntVector all = {values.data(), kIs64};
      CHECK(row_span(width, all, {}, row) == expected(width, &a, nullptr));
      CHECK(row_span(width, {}, all, row) == expected(width, nullptr, &a));
      for (const Int other : values) {
        const int64_t b = other;
        const std::vector<Int> filled(values.size(), other);
        CHECK(row_span(width, all, {filled.data(), kIs64}, row) == expected(width, &a, &b));
      }
    }
  }
}

void kinds_may_differ() {
  const int32_t length = 10;
  const int64_t start = 90;
  CHECK(row_span(96, {&length, false}, {&start, true}, 0) == RowSpan{90, 6});
}

}  // namespace

int main() {
  spans_agree<int32_t>();
  spans_agree<int64_t>();
  kinds_may_differ();
  return check::status();
}
