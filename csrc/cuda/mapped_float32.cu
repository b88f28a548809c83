#include "cuda/select_launch.cuh"

namespace tl_topk {

template KernelSymbol find_mapped_kernel<Dtype::kFloat32>(const LaunchConfig&, bool);

}  // namespace tl_topk
