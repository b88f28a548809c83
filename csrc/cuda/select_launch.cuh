// Finding the kernel of a configuration for one dtype; each dtype's translation unit instantiates
// this once, so that they compile in parallel.
#pragma once

#include "config.h"
#include "cuda/kernels.h"
#include "cuda/large_k_kernel.cuh"
#include "cuda/select_kernel.cuh"

namespace tl_topk {

static_assert(sizeof(SharedState) <= kFixedSharedBytes, "config.h promises less than is used");

template <auto kKernel>
KernelSymbol symbol_of() {
  return reinterpret_cast<KernelSymbol>(kKernel);
}

template <Dtype D, int kLoadsLog2, int kHeld>
KernelSymbol find_select_kernel(const LaunchConfig& config) {
  return config.scope == Scope::kBlock
             ? symbol_of<select_kernel<D, Scope::kBlock, kLoadsLog2, kHeld>>()
             : symbol_of<select_kernel<D, Scope::kCluster, kLoadsLog2, kHeld>>();
}

// Loads in flight per thread: up to 16 elements' worth, as many as a share of several steps takes.
template <Dtype D>
constexpr int kMostLoadsLog2 = D == Dtype::kFloat32 ? 2 : 1;

template <Dtype D>
KernelSymbol find_kernel(const LaunchConfig& config) {
  if (config.large_k) {
    return config.scope == Scope::kBlock ? symbol_of<large_k_kernel<D, Scope::kBlock>>()
                                         : symbol_of<large_k_kernel<D, Scope::kCluster>>();
  }
  switch (config.entries_per_thread) {
    case kResident:
      if (D == Dtype::kFloat32 && config.vectors_per_thread > 1) {
        return find_select_kernel<D, kMostLoadsLog2<D> - 1, kResident>(config);
      }
      return find_select_kernel<D, 0, kResident>(config);
    case kFewEntries:
      return find_select_kernel<D, kMostLoadsLog2<D>, kFewEntries>(config);
    case kSomeEntries:
      return find_select_kernel<D, kMostLoadsLog2<D>, kSomeEntries>(config);
    default:
      return find_select_kernel<D, kMostLoadsLog2<D>, kManyEntries>(config);
  }
}

}  // namespace tl_topk
