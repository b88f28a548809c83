// A few plans that differ in the shape, dtype or device of their scores.
#pragma once

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/object.h>

#include <atomic>
#include <vector>

#include "plan.h"

namespace tl_topk {

// Picks by looking at the scores itself: in Python, reading and hashing a tensor's shape, dtype and
// device costs more than all the rest of a call. Its plans never change, so any number of threads
// may use it.
class PlanSetObj : public tvm::ffi::Object {
 public:
  // Throws ValueError for a plan with a workspace: whose it is cannot be decided here.
  explicit PlanSetObj(const tvm::ffi::Array<TopKPlan>& plans);

  // Runs the first plan made for scores like these. False, and nothing done, where there is none.
  bool run(DLTensor* scores, DLTensor* indices, OptionalTensor values, OptionalTensor lengths,
           OptionalTensor row_starts) const;
  [[gnu::hot, gnu::flatten]] bool run_given(const CallTensors& given) const;

  static void reflect();

  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tl_topk.PlanSet", PlanSetObj, tvm::ffi::Object);

 private:
  const TopKPlanObj* find(const DLTensor& scores) const;

  mutable std::atomic<const TopKPlanObj*> latest_{nullptr};  // the one that ran last: at hand
  std::vector<TopKPlan> plans_;
};

}  // namespace tl_topk
