// Checks on tensor arguments that read as a declaration:
//
//   const TensorArg scores("scores", x, {device, 2, kFloat32, rows, width});
//
// Failing throws a ValueError (TypeError for a dtype) that names the argument, what is allowed and
// what it got; the words are put together out of line. Passing costs a few compares, in one
// function for all tensors: before most calls a launch has emptied the instruction cache, and what
// counts is how much code comes back.
#pragma once

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/dtype.h>

#include <cstdint>

namespace tl_topk {

constexpr DLDataType kInt32{kDLInt, 32, 1};
constexpr DLDataType kInt64{kDLInt, 64, 1};
constexpr DLDataType kUInt8{kDLUInt, 8, 1};

// What a tensor must be: `ndim` 1: (columns,), or 2: (rows, columns).
struct Form {
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t rows;
  int64_t columns;
};

// A matrix of rows with unit stride, or a vector, which is a matrix of one row; with memory behind
// it unless it is empty.
class TensorArg {
 public:
  [[gnu::hot]] TensorArg(const char* name, const DLTensor* tensor, const Form& form);

  // int32 or int64 (size,).
  static TensorArg integers(const char* name, const DLTensor* tensor, DLDevice device,
                            int64_t size) {
    const bool wide = tensor->dtype == kInt64;
    if (!wide && tensor->dtype != kInt32) refuse_dtype(name, *tensor, kInt32, kInt64);
    return TensorArg(name, tensor, {device, 1, wide ? kInt64 : kInt32, 1, size});
  }

  // uint8 (n,), n at least `size`, aligned to `alignment` bytes.
  static TensorArg bytes(const char* name, const DLTensor* tensor, DLDevice device, int64_t size,
                         int64_t alignment);

  // For outputs: no two rows share an element.
  const TensorArg& rows_apart() const {
    if (rows() > 1 && (row_stride_ < 0 ? -row_stride_ : row_stride_) < columns()) {
      refuse_shared_rows();
    }
    return *this;
  }

  // For outputs: shares no byte with `other`, which may lie in the gaps between its rows.
  const TensorArg& apart_from(const TensorArg& other) const {
    if (begin_ < other.end_ && other.begin_ < end_) refuse_overlap_unless_interleaved(other);
    return *this;
  }

  void* data() const { return data_of(tensor_); }
  bool is_int64() const { return tensor_.dtype.bits == 64; }
  int64_t rows() const { return tensor_.ndim == 1 ? 1 : tensor_.shape[0]; }
  int64_t columns() const { return tensor_.shape[tensor_.ndim - 1]; }
  int64_t row_stride() const { return row_stride_; }

 private:
  static void* data_of(const DLTensor& tensor) {
    return static_cast<char*>(tensor.data) + tensor.byte_offset;
  }

  [[noreturn, gnu::cold]] static void refuse_dtype(const char* name, const DLTensor& tensor,
                                                   DLDataType allowed, DLDataType also_allowed);
  [[noreturn, gnu::cold]] void refuse(const Form& form) const;  // the first of these that holds
  [[noreturn, gnu::cold]] void refuse_shared_rows() const;
  [[gnu::cold]] void refuse_overlap_unless_interleaved(const TensorArg& other) const;

  const char* name_;
  const DLTensor& tensor_;
  int64_t row_stride_ = 0;  // in elements
  uintptr_t begin_ = 0;     // the bytes that it uses, and those between its rows
  uintptr_t end_ = 0;
};

}  // namespace tl_topk
