// Checks on tensor arguments that read as a declaration:
//
//   const TensorArg scores = TensorArg("scores", x).on(device).of(kFloat32).shaped(2, rows, width);
//
// Passing costs a few compares. Failing throws a ValueError (TypeError for a dtype) that names the
// argument, what is allowed and what it got; the words are put together out of line.
#pragma once

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/dtype.h>

#include <cstdint>

namespace tl_topk {

constexpr DLDataType kInt32{kDLInt, 32, 1};
constexpr DLDataType kInt64{kDLInt, 64, 1};
constexpr DLDataType kUInt8{kDLUInt, 8, 1};

// A matrix of rows with unit stride, or a vector, which is a matrix of one row.
class TensorArg {
 public:
  TensorArg(const char* name, const DLTensor* tensor) : name_(name), tensor_(*tensor) {}

  const TensorArg& on(DLDevice device) const {
    if (tensor_.device.device_type != device.device_type ||
        tensor_.device.device_id != device.device_id) {
      refuse_device(device);
    }
    return *this;
  }

  const TensorArg& of(DLDataType dtype) const {
    if (tensor_.dtype != dtype) refuse_dtype(dtype);
    return *this;
  }

  const TensorArg& of_int32_or_int64() const {
    if (tensor_.dtype != kInt32 && tensor_.dtype != kInt64) refuse_dtype(kInt32, kInt64);
    return *this;
  }

  // `ndim` 1: (columns,), or 2: (rows, columns); with unit stride in the last dimension and memory
  // behind it unless it is empty.
  const TensorArg& shaped(int ndim, int64_t rows, int64_t columns) const {
    if (tensor_.ndim != ndim || tensor_.shape[ndim - 1] != columns ||
        (ndim == 2 && tensor_.shape[0] != rows)) {
      refuse_shape(ndim, rows, columns);
    }
    if (rows == 0 || columns == 0) return *this;
    if (columns > 1 && tensor_.strides != nullptr && tensor_.strides[ndim - 1] != 1) {
      refuse_stride();
    }
    if (tensor_.data == nullptr) refuse_storage();
    return *this;
  }

  // For outputs: no two rows share an element.
  const TensorArg& rows_apart() const {
    const int64_t stride = row_stride();
    if (rows() > 1 && (stride < 0 ? -stride : stride) < columns()) refuse_shared_rows();
    return *this;
  }

  const TensorArg& at_least(int64_t bytes, int64_t alignment) const {
    if (tensor_.ndim != 1 || tensor_.shape[0] < bytes ||
        reinterpret_cast<uintptr_t>(data()) % static_cast<uintptr_t>(alignment) != 0) {
      refuse_size(bytes, alignment);
    }
    return shaped(1, 1, tensor_.shape[0]);
  }

  // For outputs: shares no byte with `other`, which may lie in the gaps between its rows.
  const TensorArg& apart_from(const TensorArg& other) const {
    const Span a = span(), b = other.span();
    if (a.begin < b.end && b.begin < a.end) refuse_overlap_unless_interleaved(other);
    return *this;
  }

  void* data() const { return static_cast<char*>(tensor_.data) + tensor_.byte_offset; }
  bool is_int64() const { return tensor_.dtype.bits == 64; }
  int64_t rows() const { return tensor_.ndim == 1 ? 1 : tensor_.shape[0]; }
  int64_t columns() const { return tensor_.shape[tensor_.ndim - 1]; }
  int64_t row_stride() const {
    return tensor_.ndim == 1 || tensor_.strides == nullptr ? columns() : tensor_.strides[0];
  }

 private:
  struct Span {
    uintptr_t begin;
    uintptr_t end;
  };
  Span span() const;

  [[noreturn, gnu::cold]] void refuse_device(DLDevice allowed) const;
  [[noreturn, gnu::cold]] void refuse_dtype(DLDataType allowed) const;
  [[noreturn, gnu::cold]] void refuse_dtype(DLDataType allowed, DLDataType also_allowed) const;
  [[noreturn, gnu::cold]] void refuse_shape(int ndim, int64_t rows, int64_t columns) const;
  [[noreturn, gnu::cold]] void refuse_stride() const;
  [[noreturn, gnu::cold]] void refuse_storage() const;
  [[noreturn, gnu::cold]] void refuse_shared_rows() const;
  [[noreturn, gnu::cold]] void refuse_size(int64_t bytes, int64_t alignment) const;
  [[gnu::cold]] void refuse_overlap_unless_interleaved(const TensorArg& other) const;

  const char* name_;
  const DLTensor& tensor_;
};

inline TensorArg::Span TensorArg::span() const {
  const int64_t r = rows(), c = columns();
  const auto begin = reinterpret_cast<uintptr_t>(data());
  if (r == 0 || c == 0) return {begin, begin};
  const int64_t element = tensor_.dtype.bits / 8;
  const int64_t to_last_row = (r - 1) * row_stride() * element;
  const auto last = begin + static_cast<uintptr_t>(to_last_row);
  const auto row_bytes = static_cast<uintptr_t>(c * element);
  return to_last_row >= 0 ? Span{begin, last + row_bytes} : Span{last, begin + row_bytes};
}

}  // namespace tl_topk
