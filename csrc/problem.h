// The vocabulary every layer shares: what is asked (Problem), where the data lies (TopKArgs).
// Plain C++: no FFI, no CUDA.
#pragma once

#include <cstdint>

namespace tl_topk {

enum class Dtype : uint8_t { kFloat32 = 0, kFloat16 = 1, kBFloat16 = 2 };

// The order of the result's slots; see the contract in README.md.
enum class Order : uint8_t { kAny = 0, kIndex = 1, kValue = 2 };

// Rows are indexed by int32 in the result, so a row may not be longer than this.
constexpr int64_t kMaxWidth = 0x7fffffff;

// What is asked, without any pointer: enough to choose a launch configuration.
struct Problem {
  int64_t rows = 0;
  int64_t width = 0;  // elements a row can hold; its real length may be shorter
  int64_t k = 0;
  Dtype dtype = Dtype::kFloat32;
  Order order = Order::kAny;
  bool largest = true;
  bool values = false;  // are values asked for as well as indices?
};

// An optional vector of `rows` integers, int32 or int64 (lengths, row starts).
struct IntVector {
  const void* data = nullptr;  // null: not given
  bool is_int64 = false;
};

// What else is written of each index, or instead of it. Row r belongs to request r / next_n, or to
// the one that `row_to_request` or `query_starts` names. Every output is (rows, k); see mapping.h.
struct Mapping {
  // What most calls need comes first: every line of a kernel's parameters that is touched costs.
  int32_t* slots = nullptr;  // in a paged cache, or null
  int64_t slots_stride = 0;
  const int32_t* page_table = nullptr;  // (requests, pages)
  int64_t page_table_stride = 0;
  int32_t requests = 0;
  int32_t pages = 0;                // columns of the table; positions beyond have no slot
  uint32_t cache_pages = 1u << 31;  // a number from here on in the table is no page
  int32_t next_n = 1;
  uint8_t page_log2 = 0;  // elements of a page
  // There is nothing but slots, and a row's number alone tells its request and where its pages
  // begin: what follows the lengths need not be looked at. See note_plainness().
  bool plain = false;
  // How the call's lengths become those of rows. They are of requests with `length_rows` rows each,
  // the last of which sees all tokens and every other one token less than the next; an element of
  // the scores stands for `compress_ratio` tokens.
  bool lengths_are_ends = false;  // instead: where rows end, counted as row starts are
  int32_t length_rows = 1;
  int32_t compress_ratio = 1;
  int32_t* ragged = nullptr;  // index + the row's offset, or null
  int64_t ragged_stride = 0;
  IntVector page_starts;     // (rows,): the column that a row's first page stands in
  IntVector row_to_request;  // (rows,)
  IntVector query_starts;    // (requests + 1,), ascending: the first row of each request
  IntVector offsets;         // (rows,)

  void note_plainness() {
    plain = slots != nullptr && ragged == nullptr && page_starts.data == nullptr &&
            row_to_request.data == nullptr && query_starts.data == nullptr;
  }
};

// One call. Strides count elements; every pointer lives on the backend's device.
struct TopKArgs {
  Problem problem;
  const void* scores = nullptr;  // (rows, width), unit stride in the last dimension
  int64_t scores_stride = 0;
  IntVector lengths;
  IntVector row_starts;
  int32_t* indices = nullptr;  // (rows, k); null where only mapped ones are wanted
  int64_t indices_stride = 0;
  void* values = nullptr;  // (rows, k) in the scores' dtype, or null
  int64_t values_stride = 0;
  const Mapping* mapping = nullptr;  // null: nothing is mapped
};

inline int element_size(Dtype dtype) { return dtype == Dtype::kFloat32 ? 4 : 2; }

}  // namespace tl_topk
