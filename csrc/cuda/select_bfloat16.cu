#include "cuda/select_launch.cuh"

namespace tl_topk {

template void launch_select<Dtype::kBFloat16>(const TopKArgs&, const LaunchConfig&, cudaStream_t);

}  // namespace tl_topk
