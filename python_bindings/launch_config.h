// The launch decision as an object: see csrc/config.h, which makes it.
#pragma once

#include <tvm/ffi/object.h>
#include <tvm/ffi/string.h>

#include "config.h"
#include "device_info.h"

namespace tl_topk {

class LaunchConfigObj : public tvm::ffi::Object {
 public:
  tvm::ffi::String scope;
  bool large_k = false;
  int64_t blocks_per_row = 0;
  int64_t cluster_blocks = 0;
  int64_t threads = 0;
  int64_t vectors_per_thread = 0;
  int64_t grid_blocks = 0;
  int64_t shared_bytes = 0;
  int64_t page_words = 0;
  int64_t workspace_bytes = 0;
  tvm::ffi::String reason;

  static void reflect();

  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tl_topk.LaunchConfig", LaunchConfigObj, tvm::ffi::Object);
};

class LaunchConfigRef : public tvm::ffi::ObjectRef {
 public:
  explicit LaunchConfigRef(const LaunchConfig& config);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(LaunchConfigRef, tvm::ffi::ObjectRef,
                                                LaunchConfigObj);
};

// Pure: what a GPU like `device` would be asked to do, with so many blocks a row or, for 0, as many
// as are best. Needs no GPU.
LaunchConfigRef launch_config(int64_t rows, int64_t width, int64_t k, const tvm::ffi::String& dtype,
                              const tvm::ffi::String& order, bool largest, bool values,
                              const DeviceInfo& device, int64_t blocks_per_row);

}  // namespace tl_topk
