// Launching select_kernel for one dtype; each dtype's translation unit instantiates this once, so
// that they compile in parallel.
#pragma once

#include <cuda_runtime.h>

#include "config.h"
#include "cuda/runtime.h"
#include "cuda/select_kernel.cuh"

namespace tl_topk {

static_assert(sizeof(SharedState) <= kFixedSharedBytes, "config.h promises less than is used");

template <Dtype D, Scope S, int kLoads>
void launch_select_kernel(const TopKArgs& args, const LaunchConfig& config, cudaStream_t stream) {
  const KernelShape shape{static_cast<uint32_t>(config.segment_capacity),
                          static_cast<uint32_t>(config.sort_entries)};
  launch(select_kernel<D, S, kLoads>, config, stream, args, shape);
}

template <Dtype D>
void launch_select(const TopKArgs& args, const LaunchConfig& config, cudaStream_t stream) {
  const bool one_block = config.scope == Scope::kBlock;
  switch (config.vectors_per_thread) {
    case 1:
      return one_block ? launch_select_kernel<D, Scope::kBlock, 1>(args, config, stream)
                       : launch_select_kernel<D, Scope::kCluster, 1>(args, config, stream);
    case 2:
      return one_block ? launch_select_kernel<D, Scope::kBlock, 2>(args, config, stream)
                       : launch_select_kernel<D, Scope::kCluster, 2>(args, config, stream);
    default:
      return one_block ? launch_select_kernel<D, Scope::kBlock, 4>(args, config, stream)
                       : launch_select_kernel<D, Scope::kCluster, 4>(args, config, stream);
  }
}

}  // namespace tl_topk
