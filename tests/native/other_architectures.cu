// A kernel of each kind, compiled for architectures that no test runs on. Before clusters came,
// blocks alone select there.
#include "cuda/grid_kernel.cuh"
#include "cuda/large_k_kernel.cuh"
#include "cuda/select_kernel.cuh"

namespace tl_topk {

constexpr Dtype kDtype = Dtype::kBFloat16;

template __global__ void block_kernel<kDtype, 0, kResident, false, false>(
    const __grid_constant__ KernelParams);
template __global__ void short_kernel<kDtype, 0>(const __grid_constant__ KernelParams);
template __global__ void block_kernel<kDtype, 1, kFewEntries, false, false>(
    const __grid_constant__ KernelParams);
template __global__ void block_kernel<kDtype, 0, kResident, false, true>(
    const __grid_constant__ MappedParams);
template __global__ void block_kernel<kDtype, 1, kFewEntries, false, true>(
    const __grid_constant__ MappedParams);
template __global__ void cluster_kernel<kDtype, 1, kFewEntries, false, true>(
    const __grid_constant__ MappedParams);
template __global__ void grid_kernel<kDtype, 1, kSomeEntries, true>(
    const __grid_constant__ MappedParams);
template __global__ void large_k_kernel<kDtype, Scope::kBlock, true>(
    const __grid_constant__ MappedParams);

}  // namespace tl_topk
