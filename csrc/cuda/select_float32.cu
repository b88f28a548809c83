#include "cuda/select_launch.cuh"

namespace tl_topk {

template void launch_select<Dtype::kFloat32>(const TopKArgs&, const LaunchConfig&, cudaStream_t);

// How many clusters of this launch fit on the GPU at once; 0 where it refuses the size.
int coresident_clusters(const LaunchConfig& config) {
  constexpr auto kKernel = select_kernel<Dtype::kFloat32, Scope::kCluster, 2, kFewEntries>;
  cudaLaunchAttribute attributes[1];
  const cudaLaunchConfig_t launch = make_launch<kKernel>(config, nullptr, attributes);
  int clusters = 0;
  if (cudaOccupancyMaxActiveClusters(&clusters, kKernel, &launch) == cudaSuccess) return clusters;
  (void)cudaGetLastError();
  return 0;
}

}  // namespace tl_topk
