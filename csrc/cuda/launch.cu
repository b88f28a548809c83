// The GPU backend's host interface; see launch.h.
#include "cuda/launch.h"

#include <cuda_runtime.h>

#include <array>
#include <mutex>

#include "cuda/runtime.h"

namespace tl_topk {

template <Dtype D>
void launch_select(const TopKArgs& args, const LaunchConfig& config, cudaStream_t stream);
extern template void launch_select<Dtype::kFloat32>(const TopKArgs&, const LaunchConfig&,
                                                    cudaStream_t);
extern template void launch_select<Dtype::kFloat16>(const TopKArgs&, const LaunchConfig&,
                                                    cudaStream_t);
extern template void launch_select<Dtype::kBFloat16>(const TopKArgs&, const LaunchConfig&,
                                                     cudaStream_t);

bool built_with_cuda() { return true; }

void topk_cuda(const TopKArgs& args, const LaunchConfig& config, void*, void* stream) {
  if (args.problem.rows == 0 || args.problem.k == 0) return;
  const auto s = static_cast<cudaStream_t>(stream);
  switch (args.problem.dtype) {
    case Dtype::kFloat32:
      return launch_select<Dtype::kFloat32>(args, config, s);
    case Dtype::kFloat16:
      return launch_select<Dtype::kFloat16>(args, config, s);
    case Dtype::kBFloat16:
      return launch_select<Dtype::kBFloat16>(args, config, s);
  }
}

}  // namespace tl_topk
