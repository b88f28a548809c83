// A plan that launches a kernel written in TileLang instead of one of csrc/cuda.
#pragma once

#include <tvm/ffi/function.h>

#include "plan.h"

namespace tl_topk {

class TilePlanObj : public TopKPlanObj {
 public:
  // `launch_kernel` takes what tl_topk/tile/pipelined.py lists as ARGUMENTS, then the number of
  // blocks and the stream. `room` is how many entries a row's list in the workspace holds; 0
  // where blocks do not meet there.
  tvm::ffi::Function launch_kernel;
  int64_t blocks_per_row, room;

  TilePlanObj(int64_t rows, int64_t width, int64_t k, tvm::ffi::String dtype,
              tvm::ffi::String order, bool largest, bool values, int64_t device_id,
              tvm::ffi::Function launch_kernel, int64_t blocks_per_row, int64_t room,
              tvm::ffi::String why);

  static void reflect();

  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tl_topk.TilePlan", TilePlanObj, TopKPlanObj);

 protected:
  void launch(const TopKArgs& args, void* workspace) const override;
};

}  // namespace tl_topk
