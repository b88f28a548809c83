#include "plan_set.h"

#include <tvm/ffi/error.h>
#include <tvm/ffi/reflection/registry.h>

namespace tl_topk {

namespace ffi = tvm::ffi;

PlanSetObj::PlanSetObj(const ffi::Array<TopKPlan>& plans) : plans_(plans.begin(), plans.end()) {
  for (const TopKPlan& plan : plans_) {
    if (plan->workspace_bytes > 0) {
      TVM_FFI_THROW(ValueError) << "plans: expected none with a workspace, got " << plan->explain();
    }
  }
}

bool PlanSetObj::run(DLTensor* scores, DLTensor* indices, OptionalTensor values,
                     OptionalTensor lengths, OptionalTensor row_starts) const {
  return run_given({scores, indices, values.value_or(nullptr), lengths.value_or(nullptr),
                    row_starts.value_or(nullptr), nullptr});
}

bool PlanSetObj::run_given(const CallTensors& given) const {
  const TopKPlanObj* plan = latest_.load(std::memory_order_acquire);
  if (plan == nullptr || !plan->is_for(*given.scores)) plan = find(*given.scores);
  if (plan == nullptr) return false;
  plan->run_stateless(given);
  return true;
}

[[gnu::cold]] const TopKPlanObj* PlanSetObj::find(const DLTensor& scores) const {
  for (const TopKPlan& plan : plans_) {
    if (!plan->is_for(scores)) continue;
    latest_.store(plan.get(), std::memory_order_release);
    return plan.get();
  }
  return nullptr;
}

void PlanSetObj::reflect() {
  namespace refl = ffi::reflection;
  refl::ObjectDef<PlanSetObj>()
      .def(refl::init<ffi::Array<TopKPlan>>())
      .def("run", &PlanSetObj::run);
}

}  // namespace tl_topk
