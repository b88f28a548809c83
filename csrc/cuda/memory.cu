#include "cuda/memory.h"

#include <cuda_runtime.h>

#include "cuda/runtime.h"

namespace tl_topk {

DeviceGuard::DeviceGuard(int device) {
  check_cuda(cudaGetDevice(&previous_), "cudaGetDevice");
  if (previous_ == device) {
    previous_ = -1;
  } else {
    check_cuda(cudaSetDevice(device), "cudaSetDevice");
  }
}

DeviceGuard::~DeviceGuard() {
  if (previous_ >= 0) (void)cudaSetDevice(previous_);
}

void wait_for_stream(int device, void* stream) {
  const DeviceGuard guard(device);
  check_cuda(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)), "cudaStreamSynchronize");
}

namespace {

// While a stream of the process captures a graph, CUDA refuses calls that could disturb it. None of
// those below does, and this says so.
class RelaxedCapture {
 public:
  RelaxedCapture() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

void zero_now(void* memory, size_t bytes) {
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  cudaError_t status = cudaMemsetAsync(memory, 0, bytes, stream);
  if (status == cudaSuccess) status = cudaStreamSynchronize(stream);
  (void)cudaStreamDestroy(stream);
  check_cuda(status, "cudaMemsetAsync");
}

}  // namespace

// Errors are dropped: at the end of a process the driver may be gone before the last plan.
void FreeDeviceMemory::operator()(void* memory) const {
  const RelaxedCapture relaxed;
  (void)(in_stream_order ? cudaFreeAsync(memory, static_cast<cudaStream_t>(stream))
                         : cudaFree(memory));
}

DeviceMemory allocate_zeroed(int64_t bytes) {
  const RelaxedCapture relaxed;
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, static_cast<size_t>(bytes)), "cudaMalloc");
  DeviceMemory owned(memory);
  zero_now(memory, static_cast<size_t>(bytes));
  return owned;
}

DeviceMemory allocate_zeroed_on(void* stream, int64_t bytes) {
  const auto s = static_cast<cudaStream_t>(stream);
  void* memory = nullptr;
  check_cuda(cudaMallocAsync(&memory, static_cast<size_t>(bytes), s), "cudaMallocAsync");
  DeviceMemory owned(memory, FreeDeviceMemory{true, stream});
  check_cuda(cudaMemsetAsync(memory, 0, static_cast<size_t>(bytes), s), "cudaMemsetAsync");
  return owned;
}

}  // namespace tl_topk
