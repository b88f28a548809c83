// Launching; see launch.h.
#include <cuda_runtime.h>

#include "cuda/driver.h"
#include "cuda/kernels.h"
#include "cuda/launch.h"
#include "cuda/memory.h"
#include "cuda/params.h"
#include "cuda/runtime.h"

namespace tl_topk {
namespace {

// Of rows that may be shorter than the width, and of whole ones.
struct Kernels {
  KernelSymbol ragged;
  KernelSymbol whole;
};

template <Dtype D>
Kernels kernels_of(const LaunchConfig& config, bool mapped) {
  if (mapped) return {find_mapped_kernel<D>(config, true), find_mapped_kernel<D>(config, false)};
  return {find_kernel<D>(config, true), find_kernel<D>(config, false)};
}

Kernels kernels_of(const Problem& problem, const LaunchConfig& config, bool mapped) {
  switch (problem.dtype) {
    case Dtype::kFloat16:
      return kernels_of<Dtype::kFloat16>(config, mapped);
    case Dtype::kBFloat16:
      return kernels_of<Dtype::kBFloat16>(config, mapped);
    default:
      return kernels_of<Dtype::kFloat32>(config, mapped);
  }
}

// What does not depend on where the data lies.
KernelParams fixed_params(const Problem& problem, const LaunchConfig& config) {
  KernelParams params{};
  params.width = static_cast<uint32_t>(problem.width);
  params.k = static_cast<uint32_t>(problem.k);
  params.set_sort_entries(config.sort_entries);
  params.full_plan = config.sample;
  params.order = problem.order;
  params.largest = problem.largest;
  while (1 << params.blocks_log2 < config.cluster_blocks) ++params.blocks_log2;
  while (config.cluster_blocks << params.clusters_log2 < config.blocks_per_row) {
    ++params.clusters_log2;
  }
  return params;
}

}  // namespace

// What every launch reads comes first and lies together: the launch before has filled the caches
// with the driver's data.
class PreparedLaunch {
 public:
  PreparedLaunch(const Problem& problem, const LaunchConfig& config, int device, bool mapped)
      : params_(fixed_params(problem, config)),
        rows_(problem.rows),
        config_(config),
        kernels_(kernels_of(problem, config, mapped)),
        device_(device) {
    const DeviceGuard guard(device);
    allow_large_launches(kernels_.ragged, device);
    allow_large_launches(kernels_.whole, device);
    cudaFunction_t ragged = nullptr;
    cudaFunction_t whole = nullptr;
    check_cuda(cudaGetFuncBySymbol(&ragged, kernels_.ragged), "cudaGetFuncBySymbol");
    check_cuda(cudaGetFuncBySymbol(&whole, kernels_.whole), "cudaGetFuncBySymbol");
    if (driver() == nullptr || driver()->current_context(&context_) != CUDA_SUCCESS) return;
    driver_ = *driver();
    ragged_ = ragged;
    whole_ = whole;
    launch_.gridDimX = static_cast<unsigned>(config.grid_blocks);
    launch_.blockDimX = static_cast<unsigned>(config.threads);
    launch_.gridDimY = launch_.gridDimZ = launch_.blockDimY = launch_.blockDimZ = 1;
    launch_.sharedMemBytes = static_cast<unsigned>(config.shared_bytes);
    launch_.attrs = attributes_;
    if (config.cluster_blocks > 1) {
      CUlaunchAttribute& cluster = attributes_[launch_.numAttrs++];
      cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
      cluster.value.clusterDim.x = static_cast<unsigned>(config.cluster_blocks);
      cluster.value.clusterDim.y = cluster.value.clusterDim.z = 1;
    }
    if (config.overlaps) {  // the kernels wait for the one ahead before they read anything
      CUlaunchAttribute& overlap = attributes_[launch_.numAttrs++];
      overlap.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
      overlap.value.programmaticStreamSerializationAllowed = 1;
    }
  }
  PreparedLaunch(const PreparedLaunch&) = delete;
  PreparedLaunch& operator=(const PreparedLaunch&) = delete;

  void operator()(const TopKArgs& args, void* workspace, cudaStream_t stream) const {
    KernelParams params = params_;
    fill(params, args, workspace);
    launch_kernel(&params, 0, stream);
  }
  void mapped(const TopKArgs& args, void* workspace, cudaStream_t stream) const {
    MappedParams params{params_, *args.mapping};
    fill(params, args, workspace);
    params.note_only_output(rows_, static_cast<uint32_t>(config_.page_words));
    // No more than is used: what is left of a multiprocessor's memory caches what is read.
    const bool copies = params.only == OnlyOutput::kSlots;
    const auto pages = static_cast<unsigned>(params.mapping.pages);
    launch_kernel(&params, copies ? pages * static_cast<unsigned>(sizeof(int32_t)) : 0, stream);
  }

 private:
  static void fill(KernelParams& params, const TopKArgs& args, void* workspace) {
    params.scores = args.scores;
    params.scores_stride = args.scores_stride;
    params.indices = args.indices;
    params.indices_stride = args.indices_stride;
    params.values = args.values;
    params.values_stride = args.values_stride;
    params.set_rows(args.lengths, args.row_starts);
    params.workspace = workspace;
  }
  // `page_bytes`: of shared memory besides the configuration's.
  void launch_kernel(KernelParams* params, unsigned page_bytes, cudaStream_t stream) const {
    if (!by_driver(params, page_bytes, stream)) by_runtime(params, page_bytes, stream);
  }
  // False where nothing was launched: another device is current, or there is an error, which the
  // runtime then meets again and names.
  bool by_driver(KernelParams* params, unsigned page_bytes, cudaStream_t stream) const {
    CUcontext current = nullptr;
    if (whole_ == nullptr || driver_.current_context(&current) != CUDA_SUCCESS ||
        current != context_) {
      return false;
    }
    CUlaunchConfig launch = launch_;
    launch.hStream = stream;
    launch.sharedMemBytes += page_bytes;
    void* arguments[] = {params};
    const CUfunction function = params->whole_rows ? whole_ : ragged_;
    return driver_.launch(&launch, function, arguments, nullptr) == CUDA_SUCCESS;
  }

  [[gnu::cold, gnu::noinline]] void by_runtime(KernelParams* params, unsigned page_bytes,
                                               cudaStream_t stream) const {
    const DeviceGuard guard(device_);
    cudaLaunchAttribute cluster{};
    cudaLaunchConfig_t launch = runtime_launch(config_, stream, cluster);
    launch.dynamicSmemBytes += page_bytes;
    void* arguments[] = {params};
    const KernelSymbol kernel = params->whole_rows ? kernels_.whole : kernels_.ragged;
    check_cuda(cudaLaunchKernelExC(&launch, kernel, arguments), "cudaLaunchKernelEx");
  }

  Driver driver_;
  CUfunction whole_ = nullptr;  // as kernels_; null: the runtime launches
  CUfunction ragged_ = nullptr;
  CUcontext context_ = nullptr;  // where they are loaded
  CUlaunchConfig launch_{};
  KernelParams params_;
  CUlaunchAttribute attributes_[2]{};
  int64_t rows_;
  LaunchConfig config_;
  Kernels kernels_;
  int device_;
};

std::shared_ptr<const PreparedLaunch> prepare_cuda(const Problem& problem,
                                                   const LaunchConfig& config, int device,
                                                   bool mapped) {
  return std::make_shared<const PreparedLaunch>(problem, config, device, mapped);
}

[[gnu::hot]] void topk_cuda(const TopKArgs& args, const PreparedLaunch& launch, void* workspace,
                            void* stream) {
  launch(args, workspace, static_cast<cudaStream_t>(stream));
}

void topk_cuda_mapped(const TopKArgs& args, const PreparedLaunch& launch, void* workspace,
                      void* stream) {
  launch.mapped(args, workspace, static_cast<cudaStream_t>(stream));
}

}  // namespace tl_topk
