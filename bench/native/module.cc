// What bench/host_overhead.py and bench/floors.py measure with, as TVM FFI functions in a library
// of their own: the product carries no code for benchmarks.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/optional.h>

#include <optional>

#include "bare_launch.h"
#include "floors.h"

namespace tl_topk_bench {
namespace {

namespace ffi = tvm::ffi;
using OptionalTensor = ffi::Optional<DLTensor*>;

// The arguments of plan.run, looked at by nobody.
void noop(DLTensor*, DLTensor*, OptionalTensor, OptionalTensor) {}

// One row of float32 scores (width,), int32 indices and perhaps values (k,), on the current device.
tl_topk::TopKArgs make_args(const void* scores, int64_t width, void* indices, int64_t k,
                            void* values) {
  tl_topk::TopKArgs args;
  args.problem.rows = 1;
  args.problem.width = width;
  args.problem.k = k;
  args.problem.values = values != nullptr;
  args.scores = scores;
  args.scores_stride = width;
  args.indices = static_cast<int32_t*>(indices);
  args.indices_stride = k;
  args.values = values;
  args.values_stride = k;
  return args;
}

tl_topk::TopKArgs make_args(const DLTensor& scores, const DLTensor& indices,
                            const OptionalTensor& values) {
  return make_args(scores.data, scores.shape[scores.ndim - 1], indices.data,
                   indices.shape[indices.ndim - 1], values.has_value() ? (*values)->data : nullptr);
}

void* current_stream(const DLTensor& tensor) {
  return TVMFFIEnvGetStream(tensor.device.device_type, tensor.device.device_id);
}

void prepare(DLTensor* scores, DLTensor* indices) {
  prepare_bare_launch(make_args(*scores, *indices, std::nullopt), current_stream(*scores));
}

// What was prepared, launched; the tensors, those of plan.run, only travel.
void launch_prepared(DLTensor*, DLTensor*, OptionalTensor, OptionalTensor) { bare_launch(); }
void launch_prepared_by_driver(DLTensor*, DLTensor*, OptionalTensor, OptionalTensor) {
  bare_driver_launch();
}

// `times` is an int64 vector on the CPU, filled with nanoseconds.
void time_bare(DLTensor* scores, DLTensor* indices, OptionalTensor values, DLTensor* times) {
  time_bare_launch(make_args(*scores, *indices, values), current_stream(*scores),
                   static_cast<int64_t*>(times->data), times->shape[0]);
}

void time_driver(DLTensor* scores, DLTensor* indices, OptionalTensor values, DLTensor* times) {
  time_driver_launch(make_args(*scores, *indices, values), current_stream(*scores),
                     static_cast<int64_t*>(times->data), times->shape[0]);
}

void time_library(DLTensor* scores, DLTensor* indices, OptionalTensor values, DLTensor* times) {
  time_library_launch(make_args(*scores, *indices, values), current_stream(*scores),
                      static_cast<int64_t*>(times->data), times->shape[0]);
}

void nothing(DLTensor* times) { time_nothing(static_cast<int64_t*>(times->data), times->shape[0]); }

// `floor` counts as Floor does.
void launch_floor_of(int64_t floor, DLTensor* scores, DLTensor* indices) {
  launch_floor(static_cast<Floor>(floor), make_args(*scores, *indices, std::nullopt),
               current_stream(*scores));
}

// For pybind_call.cc, which knows nothing of this library but an address.
void launch_pointers(const void* scores, int64_t width, int32_t* indices, int64_t k, void* values,
                     void* stream) {
  launch(make_args(scores, width, indices, k, values), stream);
}

int64_t launch_address() { return reinterpret_cast<int64_t>(&launch_pointers); }

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(noop, noop)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(prepare, prepare)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(launch_prepared, launch_prepared)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(launch_prepared_by_driver, launch_prepared_by_driver)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(time_bare, time_bare)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(time_driver, time_driver)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(time_library, time_library)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(nothing, nothing)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(launch_address, launch_address)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(launch_floor, launch_floor_of)

}  // namespace tl_topk_bench
