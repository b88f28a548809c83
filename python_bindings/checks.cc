#include "checks.h"

#include <tvm/ffi/error.h>

#include <string>

namespace tl_topk {
namespace {

namespace ffi = tvm::ffi;

std::string describe(DLDataType dtype) { return std::string(ffi::DLDataTypeToString(dtype)); }

std::string describe(DLDevice device) {
  switch (device.device_type) {
    case kDLCPU:
      return "the CPU";
    case kDLCUDA:
      return "cuda:" + std::to_string(device.device_id);
    default:
      return "a device of DLPack type " + std::to_string(device.device_type);
  }
}

std::string tuple(const int64_t* numbers, int count) {
  std::string text = "(";
  for (int i = 0; i < count; ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(numbers[i]);
  }
  return text + (count == 1 ? ",)" : ")");
}

// Does b, or each of its rows, lie in a gap between the rows of a?
bool interleaved(uintptr_t a, int64_t a_pitch, int64_t a_bytes, uintptr_t b, int64_t b_bytes) {
  if (a_pitch == 0) return false;
  const int64_t distance = static_cast<int64_t>(b - a);
  const int64_t offset = ((distance % a_pitch) + a_pitch) % a_pitch;
  return offset >= a_bytes && offset + b_bytes <= a_pitch;
}

}  // namespace

void TensorArg::refuse_device(DLDevice allowed) const {
  TVM_FFI_THROW(ValueError) << name_ << ": expected on " << describe(allowed) << ", got on "
                            << describe(tensor_.device);
}

void TensorArg::refuse_dtype(DLDataType allowed) const {
  TVM_FFI_THROW(TypeError) << name_ << ": expected " << describe(allowed) << ", got "
                           << describe(tensor_.dtype);
}

void TensorArg::refuse_dtype(DLDataType allowed, DLDataType also_allowed) const {
  TVM_FFI_THROW(TypeError) << name_ << ": expected " << describe(allowed) << " or "
                           << describe(also_allowed) << ", got " << describe(tensor_.dtype);
}

void TensorArg::refuse_shape(int ndim, int64_t rows, int64_t columns) const {
  const int64_t allowed[] = {rows, columns};
  TVM_FFI_THROW(ValueError) << name_ << ": expected shape " << tuple(allowed + 2 - ndim, ndim)
                            << ", got " << tuple(tensor_.shape, tensor_.ndim);
}

void TensorArg::refuse_stride() const {
  TVM_FFI_THROW(ValueError) << name_ << ": expected unit stride in the last dimension, got strides "
                            << tuple(tensor_.strides, tensor_.ndim);
}

void TensorArg::refuse_storage() const {
  TVM_FFI_THROW(ValueError) << name_ << ": expected memory for shape "
                            << tuple(tensor_.shape, tensor_.ndim)
                            << ", got none (was its storage freed or resized?)";
}

void TensorArg::refuse_shared_rows() const {
  TVM_FFI_THROW(ValueError) << name_ << ": expected rows that share no memory, got strides "
                            << tuple(tensor_.strides, tensor_.ndim) << " for shape "
                            << tuple(tensor_.shape, tensor_.ndim);
}

void TensorArg::refuse_size(int64_t bytes, int64_t alignment) const {
  TVM_FFI_THROW(ValueError) << name_ << ": expected shape (n,) with n at least " << bytes
                            << " and memory aligned to " << alignment << " bytes, got shape "
                            << tuple(tensor_.shape, tensor_.ndim) << " at " << data();
}

void TensorArg::refuse_overlap_unless_interleaved(const TensorArg& other) const {
  const auto bytes = [](const TensorArg& t) { return t.columns() * t.tensor_.dtype.bits / 8; };
  const auto pitch = [](const TensorArg& t) {
    const int64_t stride = t.row_stride() * t.tensor_.dtype.bits / 8;
    return stride < 0 ? -stride : stride;
  };
  const bool swap = rows() == 1;
  const TensorArg& a = swap ? other : *this;  // the one with gaps, if any has
  const TensorArg& b = swap ? *this : other;
  if (a.rows() > 1 && (b.rows() == 1 || pitch(a) == pitch(b)) &&
      interleaved(a.span().begin, pitch(a), bytes(a), b.span().begin, bytes(b))) {
    return;
  }
  TVM_FFI_THROW(ValueError) << name_ << ": expected memory of its own, got memory that "
                            << other.name_ << " uses too";
}

}  // namespace tl_topk
