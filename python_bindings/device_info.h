// What a GPU offers, as an object: read from a device, or made by hand to ask "what if".
#pragma once

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/object.h>
#include <tvm/ffi/string.h>

#include "device_facts.h"

namespace tl_topk {

class DeviceInfoObj : public tvm::ffi::Object {
 public:
  int64_t device_id = 0;
  tvm::ffi::String name;
  int64_t compute_capability = 0;
  int64_t sms = 0;
  int64_t shared_memory_per_block = 0;
  int64_t l2_bytes = 0;
  int64_t max_cluster = 0;
  tvm::ffi::Array<int64_t> coresident_clusters;
  tvm::ffi::Array<tvm::ffi::String> built_architectures;

  DeviceFacts facts() const;
  static void reflect();

  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tl_topk.DeviceInfo", DeviceInfoObj, tvm::ffi::Object);
};

class DeviceInfo : public tvm::ffi::ObjectRef {
 public:
  explicit DeviceInfo(tvm::ffi::ObjectPtr<DeviceInfoObj> object)
      : tvm::ffi::ObjectRef(std::move(object)) {}
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(DeviceInfo, tvm::ffi::ObjectRef, DeviceInfoObj);
};

int64_t device_count();

// Both throw RuntimeError where there is no GPU to ask, ValueError for an id beyond the last.
const DeviceFacts& device_facts(int64_t device_id);
DeviceInfo device_info(int64_t device_id);

// Returns when all that is queued on the caller's current stream of the device is done. Throws as
// they do.
void wait_for_device(int64_t device_id);

// The architectures that this library holds kernels for; empty without CUDA.
tvm::ffi::Array<tvm::ffi::String> architectures();

}  // namespace tl_topk
