#include "cuda/select_launch.cuh"

namespace tl_topk {

template KernelSymbol find_mapped_kernel<Dtype::kBFloat16>(const LaunchConfig&, bool);

}  // namespace tl_topk
