#include "bare_launch.h"

#include <cuda.h>
#include <cuda_runtime.h>

#include <chrono>
#include <memory>

#include "config.h"
#include "cuda/launch.h"
#include "cuda/runtime.h"

namespace tl_topk_bench {
namespace {

using tl_topk::check_cuda;
using tl_topk::LaunchConfig;
using tl_topk::TopKArgs;

int current_device() {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

LaunchConfig config_for(const TopKArgs& args) {
  return choose_launch(args.problem, tl_topk::query_device(current_device()));
}

using Prepared = std::shared_ptr<const tl_topk::PreparedLaunch>;

Prepared prepare(const TopKArgs& args) {
  return tl_topk::prepare_cuda(args.problem, config_for(args), current_device());
}

// A stream of our own to capture on: the default one cannot be.
class Stream {
 public:
  Stream() {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  }
  ~Stream() { (void)cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// A kernel launch as the runtime takes it. Its parameters live in the graph it was read from.
class CapturedLaunch {
 public:
  CapturedLaunch(const TopKArgs& args, cudaStream_t stream) {
    const LaunchConfig config = config_for(args);
    const Stream side;
    check_cuda(cudaStreamBeginCapture(side, cudaStreamCaptureModeThreadLocal), "begin capture");
    topk_cuda(args, *tl_topk::prepare_cuda(args.problem, config, current_device()), nullptr, side);
    check_cuda(cudaStreamEndCapture(side, &graph_), "end capture");
    size_t nodes = 1;
    cudaGraphNode_t node{};
    check_cuda(cudaGraphGetNodes(graph_, &node, &nodes), "cudaGraphGetNodes");
    check_cuda(cudaGraphKernelNodeGetParams(node, &params_), "cudaGraphKernelNodeGetParams");
    launch_.gridDim = params_.gridDim;
    launch_.blockDim = params_.blockDim;
    launch_.dynamicSmemBytes = params_.sharedMemBytes;
    launch_.stream = stream;
    launch_.attrs = &cluster_;
    if (config.blocks_per_row > 1) {
      cluster_.id = cudaLaunchAttributeClusterDimension;
      check_cuda(cudaGraphKernelNodeGetAttribute(node, cluster_.id, &cluster_.val),
                 "cudaGraphKernelNodeGetAttribute");
      launch_.numAttrs = 1;
    }
  }
  ~CapturedLaunch() { (void)cudaGraphDestroy(graph_); }
  CapturedLaunch(const CapturedLaunch&) = delete;
  CapturedLaunch& operator=(const CapturedLaunch&) = delete;

  cudaError_t operator()() const {
    return cudaLaunchKernelExC(&launch_, params_.func, params_.kernelParams);
  }

  const cudaLaunchConfig_t& config() const { return launch_; }
  const cudaKernelNodeParams& params() const { return params_; }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaKernelNodeParams params_{};
  cudaLaunchAttribute cluster_{};
  cudaLaunchConfig_t launch_{};
};

// The same as the driver takes it.
class DriverLaunch {
 public:
  explicit DriverLaunch(const CapturedLaunch& captured) : captured_(captured) {
    cudaDriverEntryPointQueryResult found{};
    check_cuda(cudaGetDriverEntryPointByVersion("cuLaunchKernelEx",
                                                reinterpret_cast<void**>(&launch_kernel_), 12000,
                                                cudaEnableDefault, &found),
               "cudaGetDriverEntryPointByVersion");
    cudaFunction_t function{};
    check_cuda(cudaGetFuncBySymbol(&function, captured.params().func), "cudaGetFuncBySymbol");
    function_ = function;
    const cudaLaunchConfig_t& config = captured.config();
    config_.gridDimX = config.gridDim.x;
    config_.blockDimX = config.blockDim.x;
    config_.gridDimY = config_.gridDimZ = config_.blockDimY = config_.blockDimZ = 1;
    config_.sharedMemBytes = static_cast<unsigned>(config.dynamicSmemBytes);
    config_.hStream = config.stream;
    cluster_.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    cluster_.value.clusterDim.x = config.numAttrs > 0 ? config.attrs[0].val.clusterDim.x : 1;
    cluster_.value.clusterDim.y = cluster_.value.clusterDim.z = 1;
    config_.attrs = &cluster_;
    config_.numAttrs = config.numAttrs;
  }
  DriverLaunch(const DriverLaunch&) = delete;
  DriverLaunch& operator=(const DriverLaunch&) = delete;

  CUresult operator()() const {
    return launch_kernel_(&config_, function_, captured_.params().kernelParams, nullptr);
  }

 private:
  const CapturedLaunch& captured_;
  CUresult (*launch_kernel_)(const CUlaunchConfig*, CUfunction, void**, void**) = nullptr;
  CUfunction function_ = nullptr;
  CUlaunchAttribute cluster_{};
  CUlaunchConfig config_{};
};

std::unique_ptr<const CapturedLaunch> captured_launch;
std::unique_ptr<const DriverLaunch> driver_launch;  // of the same

template <typename Call>
void time_calls(const Call& call, int64_t* times_ns, int64_t calls) {
  using Clock = std::chrono::steady_clock;
  for (int64_t i = 0; i < calls; ++i) {
    const Clock::time_point begin = Clock::now();
    call();
    const Clock::time_point end = Clock::now();
    times_ns[i] = std::chrono::duration_cast<std::chrono::nanoseconds>(end - begin).count();
  }
}

}  // namespace

void time_bare_launch(const TopKArgs& args, void* stream, int64_t* times_ns, int64_t calls) {
  const CapturedLaunch bare(args, static_cast<cudaStream_t>(stream));
  check_cuda(bare(), "cudaLaunchKernelEx");  // the first one may load the kernel
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  time_calls([&] { (void)bare(); }, times_ns, calls);
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

void time_driver_launch(const TopKArgs& args, void* stream, int64_t* times_ns, int64_t calls) {
  const CapturedLaunch captured(args, static_cast<cudaStream_t>(stream));
  const DriverLaunch bare(captured);
  if (bare() != CUDA_SUCCESS) throw std::runtime_error("cuLaunchKernelEx failed");
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  time_calls([&] { (void)bare(); }, times_ns, calls);
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

void prepare_bare_launch(const TopKArgs& args, void* stream) {
  captured_launch = std::make_unique<const CapturedLaunch>(args, static_cast<cudaStream_t>(stream));
  driver_launch = std::make_unique<const DriverLaunch>(*captured_launch);
}

void bare_launch() { check_cuda((*captured_launch)(), "cudaLaunchKernelEx"); }

void bare_driver_launch() {
  if ((*driver_launch)() != CUDA_SUCCESS) throw std::runtime_error("cuLaunchKernelEx failed");
}

void time_library_launch(const TopKArgs& args, void* stream, int64_t* times_ns, int64_t calls) {
  const Prepared launch = prepare(args);
  topk_cuda(args, *launch, nullptr, stream);
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  time_calls([&] { topk_cuda(args, *launch, nullptr, stream); }, times_ns, calls);
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

void time_nothing(int64_t* times_ns, int64_t calls) {
  time_calls([] {}, times_ns, calls);
}

void launch(const TopKArgs& args, void* stream) {
  thread_local const Prepared prepared = prepare(args);  // one problem per process
  topk_cuda(args, *prepared, nullptr, stream);
}

}  // namespace tl_topk_bench
