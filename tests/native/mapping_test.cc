// mapping.h and the lengths of requests in row_span.h, against one plain step after another; and
// which launches have one output.
#include "mapping.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "check.h"
#include "cuda/params.h"

namespace {

using tl_topk::IntVector;
using tl_topk::map_row;
using tl_topk::mapped_row_span;
using tl_topk::MappedParams;
using tl_topk::Mapping;
using tl_topk::OnlyOutput;
using tl_topk::Order;
using tl_topk::pages_to_copy;
using tl_topk::request_of_row;
using tl_topk::RowMapping;

using Wide = __int128;

void lengths_of_requests() {
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  const std::vector<int64_t> tokens = {0, 1, 2, 3, 7, 8, -1, 99, 1L << 33, -9, kMin, kMax};
  for (const int32_t rows : {1, 2, 3, 100}) {
    for (const int32_t ratio : {1, 3, 4, 0x7fffffff}) {
      Mapping m;
      m.length_rows = rows;
      m.compress_ratio = ratio;
      for (int64_t r = 0; r < static_cast<int64_t>(tokens.size()) * rows; ++r) {
        const Wide seen = static_cast<Wide>(tokens[r / rows]) - rows + r % rows + 1;
        const Wide expected = std::min<Wide>(std::max<Wide>(seen, 0) / ratio, 4096);
        const IntVector lengths{tokens.data(), true};
        CHECK(mapped_row_span(4096, lengths, {}, m, r).length == static_cast<int64_t>(expected));
      }
    }
  }
}

void ends_of_rows() {
  const int64_t ends[] = {0, 5, 100, -1, std::numeric_limits<int64_t>::min(), 1L << 40};
  const int64_t starts[] = {-7, 0, 4, 5, 90, 96};
  Mapping m;
  m.lengths_are_ends = true;
  for (const int64_t end : ends) {
    for (const int64_t start : starts) {
      const Wide begin = std::max<int64_t>(start, 0);
      const Wide expected = std::max<Wide>(std::min<Wide>(end, 96) - begin, 0);
      const tl_topk::RowSpan span = mapped_row_span(96, {&end, true}, {&start, true}, m, 0);
      CHECK(span.length == static_cast<int64_t>(expected));
    }
  }
}

void requests_by_their_starts() {
  const std::vector<std::vector<int32_t>> all = {
      {0, 3, 3, 7}, {0, 0, 0}, {2, 4}, {0}, {5, 5, 9, 9}};
  for (const auto& starts : all) {
    Mapping m;
    m.query_starts = {starts.data(), false};
    m.requests = static_cast<int32_t>(starts.size()) - 1;
    for (int64_t r = 0; r < 12; ++r) {
      int64_t expected = -1;
      for (int64_t b = 0; b < m.requests; ++b) {
        if (starts[b] <= r && r < starts[b + 1]) expected = b;
      }
      CHECK(request_of_row(m, r) == expected);
    }
  }
}

// Two requests of five pages of eight.
Mapping paged(const int32_t* table, int32_t* out) {
  Mapping m;
  m.slots = out;
  m.slots_stride = 1;
  m.page_table = table;
  m.page_table_stride = 5;
  m.requests = 2;
  m.pages = 5;
  m.page_log2 = 3;
  return m;
}

void slots_stay_within_the_table() {
  const int32_t table[] = {10, 11, 12, -1, 14, 20, 21, 22, 23, 24};
  int32_t out[2];
  for (const int64_t first : {0L, 3L, -2L, 5L, 1L << 62, -(1L << 62)}) {
    const int64_t starts[] = {first, first};
    Mapping m = paged(table, out);
    m.page_starts = {starts, true};
    for (int64_t r = 0; r < 3; ++r) {
      if (r == 2) m.page_starts = {};  // a row of no request
      const RowMapping row = map_row(m, r);
      for (uint32_t index : {0u, 7u, 8u, 23u, 39u, 40u, 0x7fffffffu}) {
        const Wide page = (r == 2 ? 0 : static_cast<Wide>(first)) + index / 8;
        const bool there = r < 2 && page >= 0 && page < 5;
        const int32_t block = there ? table[r * 5 + static_cast<int64_t>(page)] : -1;
        const int32_t expected = block < 0 ? -1 : block * 8 + static_cast<int32_t>(index % 8);
        CHECK(row.slot(index) == expected);
      }
    }
  }
}

void plain_mappings() {
  const int32_t table[] = {10, 11, 12, -1, 14, 20, 21, 22, 23, 24};
  int32_t out[8];
  for (const int32_t next_n : {1, 2, 3}) {
    Mapping m = paged(table, out);
    m.next_n = next_n;
    Mapping noted = m;
    noted.note_plainness();
    CHECK(!m.plain && noted.plain);
    for (int64_t r = 0; r < 8; ++r) {
      CHECK(map_row(noted, r).slots == map_row(m, r).slots);
      for (uint32_t index : {0u, 8u, 31u, 39u, 40u}) {
        CHECK(map_row(noted, r).slot(index) == map_row(m, r).slot(index));
      }
    }
    const int32_t number = 0;
    for (IntVector Mapping::* const vector :
         {&Mapping::page_starts, &Mapping::row_to_request, &Mapping::query_starts}) {
      Mapping other = m;
      other.*vector = {&number, false};
      other.note_plainness();
      CHECK(!other.plain);
    }
    m.ragged = out;
    m.note_plainness();
    CHECK(!m.plain);
  }
}

void outputs_that_are_not_wanted() {
  const int32_t offset = -5;
  int32_t out = 0;
  Mapping m;
  CHECK(map_row(m, 0).slots == nullptr && map_row(m, 0).ragged == nullptr);
  m.ragged = &out;
  m.offsets = {&offset, false};
  CHECK(map_row(m, 0).slots == nullptr && map_row(m, 0).place(3) == -2);
}

// The one output takes the place of the indices; else nothing is changed.
void launches_with_one_output() {
  alignas(16) const int32_t table[] = {10, 11, 12, -1, 14, 20, 21, 22, 23, 24};
  const int32_t offset = -5;
  int32_t out[3][8];
  for (int bits = 0; bits < 1 << 6; ++bits) {
    const bool slots = bits & 1;
    const bool ragged = bits & 2;
    const bool indices = bits & 4;
    const bool plain = bits & 8;
    const bool in_order = bits & 16;
    const bool room = bits & 32;
    if (!slots && !ragged) continue;  // not a mapped launch
    MappedParams p{};
    p.width = 17;  // three pages, copied as four
    p.order = in_order ? Order::kIndex : Order::kAny;
    p.indices_stride = 3;
    if (indices) p.indices = out[0];
    Mapping& m = p.mapping;
    if (slots) m = paged(table, out[1]);
    m.page_table_stride = 8;
    m.slots_stride = 4;
    m.ragged_stride = 5;
    if (ragged) m.ragged = out[2];
    if (ragged) m.offsets = {&offset, false};
    if (!plain) m.row_to_request = {&offset, false};
    m.note_plainness();
    p.note_only_output(2, room ? 4 : 3);
    const bool one = !in_order && !indices && slots != ragged;
    OnlyOutput only = OnlyOutput::kNone;
    if (one && ragged) only = OnlyOutput::kRagged;
    if (one && slots && plain) only = room ? OnlyOutput::kSlots : OnlyOutput::kFarSlots;
    CHECK(p.only == only);
    CHECK(m.pages == (only == OnlyOutput::kSlots ? 4 : slots ? 5 : 0));
    CHECK(p.indices == (only == OnlyOutput::kNone     ? indices ? out[0] : nullptr
                        : only == OnlyOutput::kRagged ? out[2]
                                                      : out[1]));
    CHECK(p.indices_stride == (only == OnlyOutput::kNone     ? 3
                               : only == OnlyOutput::kRagged ? 5
                                                             : 4));
  }
}

void pages_that_can_be_copied() {
  alignas(16) const int32_t table[32] = {};
  Mapping m;
  m.page_table = table;
  m.page_table_stride = m.pages = 8;
  m.requests = 2;
  m.page_log2 = 3;
  CHECK(pages_to_copy(m, 2, 1) == 4 && pages_to_copy(m, 2, 32) == 4);
  CHECK(pages_to_copy(m, 2, 33) == 8 && pages_to_copy(m, 2, 1000) == 8);
  CHECK(pages_to_copy(m, 2, 0) == 0);
  CHECK(pages_to_copy(m, 3, 32) == 0);  // a row without a request
  m.next_n = 2;
  CHECK(pages_to_copy(m, 4, 32) == 4 && pages_to_copy(m, 5, 32) == 0);
  m.pages = 7;  // but for the last vector, they can be
  CHECK(pages_to_copy(m, 2, 32) == 4 && pages_to_copy(m, 2, 33) == 0);
  m.page_table_stride = 9;
  CHECK(pages_to_copy(m, 2, 32) == 0);
  m.requests = 1;  // no other follows
  CHECK(pages_to_copy(m, 1, 32) == 4);
  m.page_table = table + 1;
  CHECK(pages_to_copy(m, 1, 32) == 0);
}

}  // namespace

int main() {
  lengths_of_requests();
  ends_of_rows();
  requests_by_their_starts();
  slots_stay_within_the_table();
  plain_mappings();
  outputs_that_are_not_wanted();
  launches_with_one_output();
  pages_that_can_be_copied();
  return check::status();
}
