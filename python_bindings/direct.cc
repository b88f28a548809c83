// The two calls of the hot path as Python makes them. They do what the typed methods of the same
// objects do, with less on the way: arguments are read in one loop, and trailing Nones may be left
// out, as each costs its caller a conversion.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/accessor.h>

#include <algorithm>

#include "plan.h"
#include "plan_set.h"

namespace tl_topk {
namespace {

namespace ffi = tvm::ffi;

constexpr int32_t kFewest = 3;  // the object, scores, indices
constexpr int32_t kMost = 7;    // and values, lengths, row_starts, workspace

// False where an argument is no tensor and not None where it may be.
bool read_tensors(const TVMFFIAny* args, int32_t num_args, CallTensors* call) {
  const DLTensor** const tensors[] = {&call->scores,  &call->indices,    &call->values,
                                      &call->lengths, &call->row_starts, &call->workspace};
  for (int32_t i = 1; i < num_args; ++i) {
    switch (args[i].type_index) {
      case kTVMFFIDLTensorPtr:
        *tensors[i - 1] = static_cast<const DLTensor*>(args[i].v_ptr);
        break;
      case kTVMFFITensor:
        *tensors[i - 1] = TVMFFITensorGetDLTensorPtr(args[i].v_obj);
        break;
      case kTVMFFINone:
        if (i < kFewest) return false;
        break;
      default:
        return false;
    }
  }
  return true;
}

// The object that the first argument is and the tensors after it, or null where any of them is
// something else.
template <typename Object>
Object* read(const TVMFFIAny* args, int32_t num_args, CallTensors* call) {
  const bool fits = num_args >= kFewest && num_args <= kMost &&
                    args[0].type_index == Object::RuntimeTypeIndex() &&
                    read_tensors(args, num_args, call);
  return fits ? static_cast<Object*>(reinterpret_cast<ffi::Object*>(args[0].v_obj)) : nullptr;
}

// By the typed method, whose words are used where something is wrong with the arguments.
[[gnu::cold]] void call_typed(const char* type_key, int32_t arity, const TVMFFIAny* args,
                              int32_t num_args, TVMFFIAny* result) {
  TVMFFIAny all[kMost] = {};  // Nones
  std::copy(args, args + std::min(num_args, kMost), all);
  ffi::reflection::GetMethod(type_key, "run")
      .CallPacked(reinterpret_cast<const ffi::AnyView*>(num_args > arity ? args : all),
                  std::max(num_args, arity), reinterpret_cast<ffi::Any*>(result));
}

}  // namespace

extern "C" {

[[gnu::hot]] TVM_FFI_DLL_EXPORT int __tvm_ffi_run_plan(void*, const TVMFFIAny* args,
                                                       int32_t num_args, TVMFFIAny* result) {
  TVM_FFI_SAFE_CALL_BEGIN();
  CallTensors call{};
  if (auto* plan = read<TopKPlanObj>(args, num_args, &call)) {
    plan->run_given(call);
  } else {
    call_typed("tl_topk.TopKPlan", kMost, args, num_args, result);
  }
  TVM_FFI_SAFE_CALL_END();
}

[[gnu::hot]] TVM_FFI_DLL_EXPORT int __tvm_ffi_run_plan_set(void*, const TVMFFIAny* args,
                                                           int32_t num_args, TVMFFIAny* result) {
  TVM_FFI_SAFE_CALL_BEGIN();
  CallTensors call{};
  auto* plans = num_args < kMost ? read<PlanSetObj>(args, num_args, &call) : nullptr;
  if (plans != nullptr) {
    if (!plans->run_given(call)) result->type_index = kTVMFFIBool;  // False; None otherwise
  } else {
    call_typed("tl_topk.PlanSet", kMost - 1, args, num_args, result);
    if (result->v_int64 != 0) *result = {};
  }
  TVM_FFI_SAFE_CALL_END();
}

}  // extern "C"

}  // namespace tl_topk
