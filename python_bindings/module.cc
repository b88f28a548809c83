// Everything that the library exports through TVM FFI: the objects and functions of this directory,
// under global names that start with "tl_topk." and as symbols of the loaded module.
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include "bfloat16.h"
#include "cpu/topk_cpu.h"
#include "cuda/launch.h"
#include "device_info.h"
#include "launch_config.h"
#include "plan.h"
#include "plan_set.h"
#include "shards_object.h"
#include "topk.h"

namespace tl_topk {
namespace {

namespace ffi = tvm::ffi;

ffi::Map<ffi::String, ffi::Any> build_info() {
  return {
      {"version", TL_TOPK_VERSION},       {"cuda", built_with_cuda()},
      {"architectures", architectures()}, {"simd", cpu_simd_name()},
      {"compiler", TL_TOPK_CXX_COMPILER},
  };
}

TopKPlan plan(int64_t rows, int64_t width, int64_t k, ffi::String dtype, ffi::String order,
              bool largest, bool values, ffi::String device_type, int64_t device_id,
              int64_t threads, int64_t blocks_per_row) {
  return TopKPlan(ffi::make_object<TopKPlanObj>(rows, width, k, std::move(dtype), std::move(order),
                                                largest, values, std::move(device_type), device_id,
                                                threads, blocks_per_row));
}

TopKPlan tile_plan(int64_t rows, int64_t width, int64_t k, ffi::String dtype, ffi::String order,
                   bool largest, bool values, int64_t device_id, ffi::Function launch,
                   int64_t blocks_per_row, int64_t room, ffi::String reason) {
  auto plan = ffi::make_object<TopKPlanObj>(rows, width, k, std::move(dtype), std::move(order),
                                            largest, values, "cuda", device_id, /*threads=*/0,
                                            /*blocks_per_row=*/0);
  plan->use({std::move(launch), blocks_per_row, room}, std::move(reason));
  return TopKPlan(std::move(plan));
}

TVM_FFI_STATIC_INIT_BLOCK() {
  DeviceInfoObj::reflect();
  LaunchConfigObj::reflect();
  TopKPlanObj::reflect();
  PlanSetObj::reflect();
  ShardsObj::reflect();
  ffi::reflection::GlobalDef()
      .def("tl_topk.as_bfloat16", as_bfloat16, "The same memory, its uint16 taken for bfloat16.")
      .def("tl_topk.build_info", build_info, "How this library was built.")
      .def("tl_topk.device_count", device_count, "CUDA devices; 0 without a driver.")
      .def("tl_topk.device_info", device_info, "What one CUDA device offers.")
      .def("tl_topk.launch_config", launch_config, "What a device would be asked to do.")
      .def("tl_topk.plan", plan, "A TopKPlan: everything decided once for one problem.")
      .def("tl_topk.tile_plan", tile_plan, "A TopKPlan that launches a TileLang kernel.")
      .def("tl_topk.topk", topk, "Selects, with a plan from a small cache.");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(as_bfloat16, as_bfloat16)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(build_info, build_info)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(device_count, device_count)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(device_info, device_info)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(launch_config, launch_config)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(plan, plan)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(tile_plan, tile_plan)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(topk, topk)

}  // namespace tl_topk
