// Stands in for launch.cu in a library built without CUDA.
#include <stdexcept>

#include "cuda/launch.h"

namespace tl_topk {
namespace {

[[noreturn]] void no_cuda() {
  throw std::runtime_error(
      "this tl_topk library was built without CUDA (no nvcc was found, or TL_TOPK_CUDA=OFF); "
      "rebuild it with nvcc on the PATH or use backend=\"cpu\" on CPU tensors");
}

}  // namespace

bool built_with_cuda() { return false; }
const char* built_architectures() { return ""; }
int cuda_device_count() { return 0; }
const DeviceFacts& query_device(int) { no_cuda(); }
std::string device_name(int) { no_cuda(); }
std::shared_ptr<const PreparedLaunch> prepare_cuda(const Problem&, const LaunchConfig&, int, bool) {
  no_cuda();
}
void topk_cuda(const TopKArgs&, const PreparedLaunch&, void*, void*) { no_cuda(); }
void topk_cuda_mapped(const TopKArgs&, const PreparedLaunch&, void*, void*) { no_cuda(); }

}  // namespace tl_topk
