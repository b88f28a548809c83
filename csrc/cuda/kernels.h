// Kernels by their symbols, for host code.
#pragma once

#include "config.h"
#include "problem.h"

namespace tl_topk {

// A kernel's address on the host, by which the runtime knows it.
using KernelSymbol = const void*;

// The kernel of a configuration, where rows may be `ragged`, shorter than the width, or not; and
// that of launches with a mapping. One translation unit a dtype for each (select_*.cu,
// mapped_*.cu), so that they compile in parallel.
template <Dtype D>
KernelSymbol find_kernel(const LaunchConfig& config, bool ragged);

template <Dtype D>
KernelSymbol find_mapped_kernel(const LaunchConfig& config, bool ragged);
extern template KernelSymbol find_mapped_kernel<Dtype::kFloat32>(const LaunchConfig&, bool);
extern template KernelSymbol find_mapped_kernel<Dtype::kFloat16>(const LaunchConfig&, bool);
extern template KernelSymbol find_mapped_kernel<Dtype::kBFloat16>(const LaunchConfig&, bool);

}  // namespace tl_topk
