#include "parse.h"

#include <tvm/ffi/dtype.h>
#include <tvm/ffi/error.h>

#include <string>

namespace tl_topk {
namespace {

namespace ffi = tvm::ffi;

// In the order of their enumerations.
constexpr const char* kDtypes[] = {"float32", "float16", "bfloat16"};
constexpr DLDataType kDlDtypes[] = {{kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1}};
constexpr const char* kOrders[] = {"any", "index", "value"};

template <typename Enum, size_t N>
Enum parse_name(const char* argument, const ffi::String& name, const char* const (&names)[N]) {
  for (size_t i = 0; i < N; ++i) {
    if (name == names[i]) return static_cast<Enum>(i);
  }
  std::string allowed;
  for (const char* each : names) {
    allowed += (allowed.empty() ? "\"" : ", \"") + std::string(each) + "\"";
  }
  TVM_FFI_THROW(ValueError) << argument << ": expected one of " << allowed << ", got \"" << name
                            << "\"";
  TVM_FFI_UNREACHABLE();
}

void check_range(const char* argument, int64_t value, int64_t most) {
  if (value < 0 || value > most) {
    TVM_FFI_THROW(ValueError) << argument << ": expected 0 to " << most << ", got " << value;
  }
}

}  // namespace

Order parse_order(const ffi::String& name) { return parse_name<Order>("order", name, kOrders); }

Problem parse_problem(int64_t rows, int64_t width, int64_t k, const ffi::String& dtype,
                      const ffi::String& order, bool largest, bool values) {
  check_range("rows", rows, INT64_MAX);
  check_range("width", width, kMaxWidth);
  check_range("k", k, kMaxWidth);
  Problem problem;
  problem.rows = rows;
  problem.width = width;
  problem.k = k;
  problem.dtype = parse_name<Dtype>("dtype", dtype, kDtypes);
  problem.order = parse_order(order);
  problem.largest = largest;
  problem.values = values;
  return problem;
}

Dtype parse_dtype(DLDataType dtype) {
  for (Dtype each : {Dtype::kFloat32, Dtype::kFloat16, Dtype::kBFloat16}) {
    if (dtype == dl_dtype(each)) return each;
  }
  TVM_FFI_THROW(TypeError) << "scores: expected float32, float16 or bfloat16, got "
                           << ffi::DLDataTypeToString(dtype);
  TVM_FFI_UNREACHABLE();
}

DLDataType dl_dtype(Dtype dtype) { return kDlDtypes[static_cast<int>(dtype)]; }

const char* dtype_name(Dtype dtype) { return kDtypes[static_cast<int>(dtype)]; }
const char* order_name(Order order) { return kOrders[static_cast<int>(order)]; }

}  // namespace tl_topk
