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
          static_cast<uint32_t>(config.sort_entries),
          args.lengths,
          args.row_starts,
          config.sample,
          p.order,
          p.largest,
          blocks_log2};
}

template <Dtype D, int kLoadsLog2, int kHeld>
void launch_select_kernel(const TopKArgs& args, const LaunchConfig& config, cudaStream_t stream) {
  const KernelParams params = make_params(args, config);
  config.scope == Scope::kBlock
      ? launch<select_kernel<D, Scope::kBlock, kLoadsLog2, kHeld>>(config, stream, params)
      : launch<select_kernel<D, Scope::kCluster, kLoadsLog2, kHeld>>(config, stream, params);
}

// Loads in flight per thread: up to 16 elements' worth, as many as a share of several steps takes.
template <Dtype D>
constexpr int kMostLoadsLog2 = D == Dtype::kFloat32 ? 2 : 1;

template <Dtype D>
void launch_select(const TopKArgs& args, const LaunchConfig& config, cudaStream_t stream) {
  if (config.large_k) {
    const KernelParams params = make_params(args, config);
    config.scope == Scope::kBlock
        ? launch<large_k_kernel<D, Scope::kBlock>>(config, stream, params)
        : launch<large_k_kernel<D, Scope::kCluster>>(config, stream, params);
    return;
  }
  switch (config.entries_per_thread) {
    case kResident:
      if (D == Dtype::kFloat32 && config.vectors_per_thread > 1) {
        return launch_select_kernel<D, kMostLoadsLog2<D> - 1, kResident>(args, config, stream);
      }
      return launch_select_kernel<D, 0, kResident>(args, config, stream);
    case kFewEntries:
      return launch_select_kernel<D, kMostLoadsLog2<D>, kFewEntries>(args, config, stream);
    case kSomeEntries:
      return launch_select_kernel<D, kMostLoadsLog2<D>, kSomeEntries>(args, config, stream);
    default:
      return launch_select_kernel<D, kMostLoadsLog2<D>, kManyEntries>(args, config, stream);
  }
}

}  // namespace tl_topk
