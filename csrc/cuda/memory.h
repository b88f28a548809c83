// Device memory and the current device, for the owner of a plan; free of CUDA headers as launch.h.
// memory.cu implements it; memory_stub.cc stands in where there is no CUDA compiler.
#pragma once

#include <cstdint>
#include <memory>

namespace tl_topk {

// Makes a device current while it lives, then restores the one before.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  [[maybe_unused]] int previous_;  // -1 where there is nothing to restore
};

// Returns when all that is queued on a stream of the device is done.
void wait_for_stream(int device, void* stream);

// Zeroed memory of the current device.
struct FreeDeviceMemory {
  void operator()(void* memory) const;
  bool in_stream_order = false;
  void* stream = nullptr;
};
using DeviceMemory = std::unique_ptr<void, FreeDeviceMemory>;

// For many launches: waits until the zeros are there, so any stream may use it. Other streams may
// be capturing a graph meanwhile, the memory is no part of it.
DeviceMemory allocate_zeroed(int64_t bytes);

// For one launch: allocated, zeroed and freed in stream order, so it may be captured in a graph.
DeviceMemory allocate_zeroed_on(void* stream, int64_t bytes);

}  // namespace tl_topk
