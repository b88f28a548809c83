// One library a variant of the float32 kernels (variant_kernels.cu), as TVM FFI functions: what
// bench/variants.py loads. The product carries no code for benchmarks.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/optional.h>

#include "config.h"
#include "cuda/launch.h"
#include "variant_kernels.h"

namespace tl_topk_bench {
namespace {

namespace ffi = tvm::ffi;
using tl_topk::LaunchConfig;
using tl_topk::Problem;

Problem make_problem(int64_t rows, int64_t width, int64_t k) {
  Problem problem;
  problem.rows = rows;
  problem.width = width;
  problem.k = k;
  return problem;
}

// What the library chooses where clusters have at most `max_cluster` blocks.
LaunchConfig config_for(const Problem& problem, int64_t max_cluster) {
  tl_topk::DeviceFacts device = tl_topk::query_device(0);
  for (size_t i = 0; i < tl_topk::kClusterSizes.size(); ++i) {
    if (tl_topk::kClusterSizes[i] > max_cluster) device.coresident_clusters[i] = 0;
  }
  return choose_launch(problem, device);
}

// (blocks, bytes of shared memory each, bytes of workspace)
ffi::Array<int64_t> config(int64_t rows, int64_t width, int64_t k, int64_t max_cluster) {
  const LaunchConfig config = config_for(make_problem(rows, width, k), max_cluster);
  return {config.grid_blocks, config.shared_bytes, config.workspace_bytes};
}

// float32 scores (rows, width), int32 indices (rows, k), both contiguous, on device 0; zeroed bytes
// where the launch needs a workspace.
void topk(DLTensor* scores, DLTensor* indices, ffi::Optional<DLTensor*> workspace,
          int64_t max_cluster) {
  tl_topk::TopKArgs args;
  args.problem = make_problem(scores->shape[0], scores->shape[1], indices->shape[1]);
  args.scores = scores->data;
  args.scores_stride = args.problem.width;
  args.indices = static_cast<int32_t*>(indices->data);
  args.indices_stride = args.problem.k;
  // Prepared anew at every call: calls are captured in graphs, where their time does not count.
  topk_cuda(args, *tl_topk::prepare_cuda(args.problem, config_for(args.problem, max_cluster), 0),
            workspace.has_value() ? (*workspace)->data : nullptr,
            TVMFFIEnvGetStream(scores->device.device_type, scores->device.device_id));
}

ffi::String phases() { return phase_names(); }

// `clocks` is an int64 matrix (blocks, phases) on the CPU.
void take_clocks(DLTensor* clocks) {
  take_phase_clocks(static_cast<int64_t*>(clocks->data), clocks->shape[0]);
}

void know_floor(double floor, double ceiling) {
  set_known_floor(static_cast<float>(floor), static_cast<float>(ceiling));
}

double clock_mhz() { return measure_clock_mhz(); }

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(config, config)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(topk, topk)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(phases, phases)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(take_clocks, take_clocks)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(clock_mhz, clock_mhz)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(know_floor, know_floor)

}  // namespace tl_topk_bench
