#include "cuda/memory.h"

#include <cuda_runtime.h>

#include "cuda/runtime.h"

namespace tl_topk {

DeviceGuard::DeviceGuard(int device) {
  check_cuda(cudaGetDevice(&previous_), "cudaGetDevice");
  if (previous_ == device) {
    previous_ = -1;  // nothing to restore
  } else {
    check_cuda(cudaSetDevice(device), "cudaSetDevice");
  }
}

DeviceGuard::~DeviceGuard() {
  if (previous_ >= 0) (void)cudaSetDevice(previous_);
}

// Errors are dropped: at the end of a process the driver may be gone before the last plan.
void FreeDeviceMemory::operator()(void* memory) const {
  (void)(in_stream_order ? cudaFreeAsync(memory, static_cast<cudaStream_t>(stream))
                         : cudaFree(memory));
}

DeviceMemory allocate_zeroed(int64_t bytes) {
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, static_cast<size_t>(bytes)), "cudaMalloc");
  DeviceMemory owned(memory);
  check_cuda(cudaMemset(memory, 0, static_cast<size_t>(bytes)), "cudaMemset");
  check_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
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
