// Finding the kernel of a configuration for one dtype. Each dtype has two translation units, for
// launches with and without a mapping, so that they compile in parallel.
#pragma once

#include "config.h"
#include "cuda/grid_kernel.cuh"
#include "cuda/kernels.h"
#include "cuda/large_k_kernel.cuh"
#include "cuda/select_kernel.cuh"

namespace tl_topk {

static_assert(sizeof(SharedState) + kQueueSlack <= kFixedSharedBytes,
              "config.h promises less than is used");

template <auto kKernel>
KernelSymbol symbol_of() {
  return reinterpret_cast<KernelSymbol>(kKernel);
}

template <Dtype D, bool kMapped, int kLoadsLog2, int kHeld>
KernelSymbol find_select_kernel(const LaunchConfig& config) {
  return config.scope == Scope::kBlock
             ? symbol_of<block_kernel<D, kLoadsLog2, kHeld, false, kMapped>>()
             : symbol_of<cluster_kernel<D, kLoadsLog2, kHeld, false, kMapped>>();
}

// Of rows whose shares stay in registers.
template <Dtype D, bool kMapped, int kLoadsLog2>
KernelSymbol find_resident_kernel(const LaunchConfig& config) {
  if constexpr (!kMapped) {
    const bool counted_whole = config.scope == Scope::kBlock && config.sort_entries == 0;
    if (counted_whole) return symbol_of<short_kernel<D, kLoadsLog2>>();
  }
  return find_select_kernel<D, kMapped, kLoadsLog2, kResident>(config);
}

// Loads in flight per thread: up to 16 elements' worth, as many as a share of several steps takes.
template <Dtype D>
constexpr int kMostLoadsLog2 = D == Dtype::kFloat32 ? 2 : 1;

// That of clusters whose shares go through a queue, with what short rows take besides only where
// there may be some: the longer a kernel, the less of it the instruction cache holds. Of mapped
// launches in float32 alone, which indexers score in: more kernels would take long to compile.
template <Dtype D, bool kMapped, int kHeld>
KernelSymbol find_queued_kernel(bool ragged) {
  constexpr int kLoadsLog2 = kMostLoadsLog2<D>;
  if constexpr (!kMapped || D == Dtype::kFloat32) {
    if (!ragged) return symbol_of<cluster_kernel<D, kLoadsLog2, kHeld, true, kMapped, false>>();
  }
  return symbol_of<cluster_kernel<D, kLoadsLog2, kHeld, true, kMapped>>();
}

template <Dtype D, bool kMapped>
KernelSymbol find_either(const LaunchConfig& config, bool ragged) {
  if (config.large_k) {
    return config.scope == Scope::kBlock ? symbol_of<large_k_kernel<D, Scope::kBlock, kMapped>>()
                                         : symbol_of<large_k_kernel<D, Scope::kCluster, kMapped>>();
  }
  if (config.scope == Scope::kGrid) {
    return symbol_of<grid_kernel<D, kMostLoadsLog2<D>, kSomeEntries, kMapped>>();
  }
  switch (config.entries_per_thread) {
    case kResident:
      if (D == Dtype::kFloat32 && config.vectors_per_thread > 1) {
        return find_resident_kernel<D, kMapped, kMostResidentLog2<D>>(config);
      }
      return find_resident_kernel<D, kMapped, 0>(config);
    case kFewEntries:
      if (config.queue_bytes > 0) {
        return config.scope == Scope::kBlock
                   ? symbol_of<block_kernel<D, kMostLoadsLog2<D>, kFewEntries, true, kMapped>>()
                   : find_queued_kernel<D, kMapped, kFewEntries>(ragged);
      }
      return find_select_kernel<D, kMapped, kMostLoadsLog2<D>, kFewEntries>(config);
    case kSomeEntries:
      if (config.queue_bytes > 0) {
        return find_queued_kernel<D, kMapped, kSomeEntries>(ragged);
      }
      return find_select_kernel<D, kMapped, kMostLoadsLog2<D>, kSomeEntries>(config);
    default:
      return find_select_kernel<D, kMapped, kMostLoadsLog2<D>, kManyEntries>(config);
  }
}

template <Dtype D>
KernelSymbol find_kernel(const LaunchConfig& config, bool ragged) {
  return find_either<D, false>(config, ragged);
}

template <Dtype D>
KernelSymbol find_mapped_kernel(const LaunchConfig& config, bool ragged) {
  return find_either<D, true>(config, ragged);
}

}  // namespace tl_topk
