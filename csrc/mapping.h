// From an index to what an engine reads by: a slot of a paged cache, or a place in ragged keys.
#pragma once

#include <algorithm>
#include <cstdint>

#include "host_device.h"
#include "problem.h"
#include "row_span.h"

namespace tl_topk {

// The request that row r belongs to; -1 where there is none.
TL_TOPK_HD int64_t request_of_row(const Mapping& m, int64_t r) {
  int64_t request = r;
  if (m.row_to_request.data != nullptr) {
    request = load_int(m.row_to_request, r);
  } else if (m.query_starts.data != nullptr) {
    int64_t above = m.requests + 1;  // the first start beyond r, by bisection
    for (int64_t upto = 0; upto < above;) {
      const int64_t middle = (upto + above) / 2;
      if (load_int(m.query_starts, middle) > r) {
        above = middle;
      } else {
        upto = middle + 1;
      }
    }
    request = above - 1;
  } else if (m.next_n != 1) {
    request = static_cast<uint32_t>(r) / static_cast<uint32_t>(m.next_n);
  }
  return request >= 0 && request < m.requests ? request : -1;
}

// The slot of an index in a page of the cache; none where there is no such page.
TL_TOPK_HD int32_t slot_in_page(int32_t page, uint32_t index, int32_t page_log2,
                                uint32_t cache_pages) {
  const uint32_t within = index & ((uint32_t{1} << page_log2) - 1);
  const uint32_t slot = (static_cast<uint32_t>(page) << page_log2) + within;
  return static_cast<uint32_t>(page) < cache_pages ? static_cast<int32_t>(slot) : -1;
}

// The mapping of one row: its outputs, and how an index becomes what they hold.
struct RowMapping {
  int32_t* slots;
  int32_t* ragged;
  const int32_t* table;  // the request's pages
  uint32_t pages;
  uint32_t cache_pages;
  uint32_t first_page;  // of the row, wrapped where it lies before the table
  int32_t page_log2;
  uint32_t offset;

  // Of the table, for the index's page: it has one below `pages` only.
  TL_TOPK_HD uint32_t column(uint32_t index) const { return first_page + (index >> page_log2); }
  // The page of the cache that holds the index's page; out of range where the table has none. Apart
  // from slot(), and neither branches on what was read: so many reads can be under way at once.
  TL_TOPK_HD int32_t page_of(uint32_t index) const {
    const uint32_t at = column(index);
    return at < pages ? table[at] : -1;
  }
  TL_TOPK_HD int32_t slot(int32_t page, uint32_t index) const {
    return slot_in_page(page, index, page_log2, cache_pages);
  }
  TL_TOPK_HD int32_t slot(uint32_t index) const { return slot(page_of(index), index); }
  TL_TOPK_HD int32_t place(uint32_t index) const { return static_cast<int32_t>(index + offset); }
};

// row_span() with lengths as engines keep them.
TL_TOPK_HD RowSpan mapped_row_span(int64_t width, const IntVector& lengths,
                                   const IntVector& row_starts, const Mapping& m, int64_t r) {
  RowSpan span = row_span(width, {}, row_starts, r);  // to the width
  if (lengths.data == nullptr) return span;
  const auto rows = static_cast<uint32_t>(m.length_rows);
  const auto row = static_cast<uint32_t>(r);
  int64_t length = load_int(lengths, row / rows);
  if (m.lengths_are_ends) {
    length = length > span.begin ? length - span.begin : 0;
  } else if (length > 0) {
    length -= rows - 1 - row % rows;
    if (length > 0 && m.compress_ratio != 1) {
      const auto ratio = static_cast<uint32_t>(m.compress_ratio);
      // GPUs divide 32 bits fast.
      length = length <= 0xffffffff ? static_cast<uint32_t>(length) / ratio : length / ratio;
    }
  }
  if (length < span.length) span.length = length > 0 ? length : 0;
  return span;
}

// The pages of a request, as its row of the table has them.
struct RequestPages {
  const int32_t* table;
  uint32_t columns;  // 0: there is no such request
};

// How many pages of every request to copy in vectors of 16 bytes, so that no other page is asked
// for by `rows` rows of up to `width` elements of a plain mapping; 0 where they cannot be.
inline uint32_t pages_to_copy(const Mapping& m, int64_t rows, uint32_t width) {
  constexpr uint32_t kPerVector = 16 / sizeof(int32_t);
  const bool aligned = reinterpret_cast<uintptr_t>(m.page_table) % 16 == 0 &&
                       (m.page_table_stride % kPerVector == 0 || m.requests == 1);
  if (!aligned || width == 0 || rows > m.requests * int64_t{m.next_n}) return 0;
  const uint32_t touched = ((width - 1) >> m.page_log2) + 1;
  const uint32_t vectors = (touched + kPerVector - 1) / kPerVector;
  const uint32_t wanted = std::min(static_cast<uint32_t>(m.pages), vectors * kPerVector);
  return wanted % kPerVector == 0 ? wanted : 0;
}

// Of a plain mapping.
TL_TOPK_HD RequestPages pages_of_plain_row(const Mapping& m, uint32_t r) {
  const uint32_t request = m.next_n == 1 ? r : r / static_cast<uint32_t>(m.next_n);
  if (request >= static_cast<uint32_t>(m.requests)) return {nullptr, 0};
  return {m.page_table + request * m.page_table_stride, static_cast<uint32_t>(m.pages)};
}
TL_TOPK_HD RowMapping map_plain_row(const Mapping& m, uint32_t r) {
  RowMapping row{};
  row.slots = m.slots + r * m.slots_stride;
  row.page_log2 = m.page_log2;
  row.cache_pages = m.cache_pages;
  const RequestPages pages = pages_of_plain_row(m, r);
  row.table = pages.table;
  row.pages = pages.columns;
  return row;
}

TL_TOPK_HD RowMapping map_row(const Mapping& m, int64_t r) {
  if (m.plain) return map_plain_row(m, static_cast<uint32_t>(r));
  RowMapping row{};
  if (m.slots != nullptr) {
    row.slots = m.slots + r * m.slots_stride;
    row.page_log2 = m.page_log2;
    row.cache_pages = m.cache_pages;
    const int64_t request = request_of_row(m, r);
    if (request >= 0) {
      row.table = m.page_table + request * m.page_table_stride;
      row.pages = static_cast<uint32_t>(m.pages);
    }
    if (m.page_starts.data != nullptr) {
      const int64_t first = load_int(m.page_starts, r);
      const bool near = first >= -kMaxWidth && first <= m.pages;  // then no sum comes round again
      row.first_page = static_cast<uint32_t>(near ? first : m.pages);
    }
  }
  if (m.ragged != nullptr) {
    row.ragged = m.ragged + r * m.ragged_stride;
    row.offset = static_cast<uint32_t>(load_int(m.offsets, r));
  }
  return row;
}

}  // namespace tl_topk
