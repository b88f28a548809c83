// Launching select_kernel for one dtype; each dtype's translation unit instantiates this once, so
// that they compile in parallel.
#pragma once

#include <cuda_runtime.h>

#include "config.h"
#include "cuda/large_k_kernel.cuh"
#include "cuda/runtime.h"
#include "cuda/select_kernel.cuh"

namespace tl_topk {

static_assert(sizeof(SharedState) <= kFixedSharedBytes, "config.h promises less than is used");

inline KernelParams make_params(const TopKArgs& args, const LaunchConfig& config) {
  const Problem& p = args.problem;
  uint8_t blocks_log2 = 0;
  while (1 << blocks_log2 < config.blocks_per_row) ++blocks_log2;
  return {args.scores,
          args.scores_stride,
          args.indices,
          args.indices_stride,
          args.values,
          args.values_stride,
          static_cast<uint32_t>(p.width),
          static_cast<uint32_t>(p.k),
          static_cast<uint32_t>(config.segment_capacity),
          static_cast<uint32_t>(config.sort_entries),
          args.lengths,
          args.row_starts,
          config.sample,
          p.order,
          p.largest,
          blocks_log2};
}

template <Dtype D, int kLoadsLog2>
void launch_select_kernel(const TopKArgs& args, const LaunchConfig& config, cudaStream_t stream) {
  const KernelParams params = make_params(args, config);
  const bool one_block = config.scope == Scope::kBlock;
  if (config.entries_per_thread <= kFewEntries) {
    one_block
        ? launch<select_kernel<D, Scope::kBlock, kLoadsLog2, kFewEntries>>(config, stream, params)
        : launch<select_kernel<D, Scope::kCluster, kLoadsLog2, kFewEntries>>(config, stream,
                                                                             params);
  } else {
    one_block
        ? launch<select_kernel<D, Scope::kBlock, kLoadsLog2, kManyEntries>>(config, stream, params)
        : launch<select_kernel<D, Scope::kCluster, kLoadsLog2, kManyEntries>>(config, stream,
                                                                              params);
  }
}

// Loads in flight per thread: up to 16 elements' worth.
template <Dtype D>
void launch_select(const TopKArgs& args, const LaunchConfig& config, cudaStream_t stream) {
  if (config.large_k) {
    const KernelParams params = make_params(args, config);
    config.scope == Scope::kBlock
        ? launch<large_k_kernel<D, Scope::kBlock>>(config, stream, params)
        : launch<large_k_kernel<D, Scope::kCluster>>(config, stream, params);
    return;
  }
  if (config.vectors_per_thread == 1) return launch_select_kernel<D, 0>(args, config, stream);
  if constexpr (D == Dtype::kFloat32) {
    if (config.vectors_per_thread == 4) return launch_select_kernel<D, 2>(args, config, stream);
  }
  launch_select_kernel<D, 1>(args, config, stream);
}

}  // namespace tl_topk
