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

// One call. Strides count elements; every pointer lives on the backend's device.
struct TopKArgs {
  Problem problem;
  const void* scores = nullptr;  // (rows, width), unit stride in the last dimension
  int64_t scores_stride = 0;
  IntVector lengths;
  IntVector row_starts;
  int32_t* indices = nullptr;  // (rows, k)
  int64_t indices_stride = 0;
  void* values = nullptr;  // (rows, k) in the scores' dtype, or null
  int64_t values_stride = 0;
};

inline int element_size(Dtype dtype) { return dtype == Dtype::kFloat32 ? 4 : 2; }

}  // namespace tl_topk
