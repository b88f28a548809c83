#include "checks.h"

#include <tvm/ffi/error.h>

#include <cstddef>
#include <cstring>
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

bool has_shape(const DLTensor& tensor, const Form& form) {
  return tensor.ndim == form.ndim && tensor.shape[form.ndim - 1] == form.columns &&
         (form.ndim == 1 || tensor.shape[0] == form.rows);
}

bool has_unit_stride(const DLTensor& tensor) {
  return tensor.strides == nullptr || tensor.strides[tensor.ndim - 1] == 1;
}

}  // namespace

// Device, dimensions and dtype are compared as the 16 bytes that they are in both.
static_assert(offsetof(DLTensor, dtype) - offsetof(DLTensor, device) == offsetof(Form, dtype) &&
              offsetof(DLTensor, ndim) - offsetof(DLTensor, device) == offsetof(Form, ndim) &&
              offsetof(Form, rows) == 16);

TensorArg::TensorArg(const char* name, const DLTensor* tensor, const Form& form)
    : name_(name), tensor_(*tensor) {
  if (std::memcmp(&tensor_.device, &form, 16) != 0 || !has_shape(tensor_, form)) refuse(form);
  row_stride_ = form.ndim == 1 || tensor_.strides == nullptr ? form.columns : tensor_.strides[0];
  begin_ = end_ = reinterpret_cast<uintptr_t>(data());
  if (form.rows == 0 || form.columns == 0) return;
  if ((form.columns > 1 && !has_unit_stride(tensor_)) || tensor_.data == nullptr) refuse(form);
  const int64_t element = form.dtype.bits / 8;
  const int64_t to_last_row = (form.rows - 1) * row_stride_ * element;
  (to_last_row < 0 ? begin_ : end_) += static_cast<uintptr_t>(to_last_row);
  end_ += static_cast<uintptr_t>(form.columns * element);
}

TensorArg TensorArg::bytes(const char* name, const DLTensor* tensor, DLDevice device, int64_t size,
                           int64_t alignment) {
  const auto address = reinterpret_cast<uintptr_t>(data_of(*tensor));
  if (tensor->ndim != 1 || tensor->shape[0] < size ||
      address % static_cast<uintptr_t>(alignment) != 0) {
    TVM_FFI_THROW(ValueError) << name << ": expected shape (n,) with n at least " << size
                              << " and memory aligned to " << alignment << " bytes, got shape "
                              << tuple(tensor->shape, tensor->ndim) << " at " << data_of(*tensor);
  }
  return TensorArg(name, tensor, {device, 1, kUInt8, 1, tensor->shape[0]});
}

void TensorArg::refuse_dtype(const char* name, const DLTensor& tensor, DLDataType allowed,
                             DLDataType also_allowed) {
  TVM_FFI_THROW(TypeError) << name << ": expected " << describe(allowed) << " or "
                           << describe(also_allowed) << ", got " << describe(tensor.dtype);
  TVM_FFI_UNREACHABLE();
}

void TensorArg::refuse(const Form& form) const {
  const DLDevice on = tensor_.device;
  if (on.device_type != form.device.device_type || on.device_id != form.device.device_id) {
    TVM_FFI_THROW(ValueError) << name_ << ": expected on " << describe(form.device) << ", got on "
                              << describe(on);
  }
  if (tensor_.dtype != form.dtype) {
    TVM_FFI_THROW(TypeError) << name_ << ": expected " << describe(form.dtype) << ", got "
                             << describe(tensor_.dtype);
  }
  if (!has_shape(tensor_, form)) {
    const int64_t allowed[] = {form.rows, form.columns};
    TVM_FFI_THROW(ValueError) << name_ << ": expected shape "
                              << tuple(allowed + 2 - form.ndim, form.ndim) << ", got "
                              << tuple(tensor_.shape, tensor_.ndim);
  }
  if (form.columns > 1 && !has_unit_stride(tensor_)) {
    TVM_FFI_THROW(ValueError) << name_
                              << ": expected unit stride in the last dimension, got strides "
                              << tuple(tensor_.strides, tensor_.ndim);
  }
  TVM_FFI_THROW(ValueError) << name_ << ": expected memory for shape "
                            << tuple(tensor_.shape, tensor_.ndim)
                            << ", got none (was its storage freed or resized?)";
  TVM_FFI_UNREACHABLE();
}

void TensorArg::refuse_shared_rows() const {
  TVM_FFI_THROW(ValueError) << name_ << ": expected rows that share no memory, got strides "
                            << tuple(tensor_.strides, tensor_.ndim) << " for shape "
                            << tuple(tensor_.shape, tensor_.ndim);
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
      interleaved(a.begin_, pitch(a), bytes(a), b.begin_, bytes(b))) {
    return;
  }
  TVM_FFI_THROW(ValueError) << name_ << ": expected memory of its own, got memory that "
                            << other.name_ << " uses too";
}

}  // namespace tl_topk
