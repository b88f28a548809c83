// Kernels by their symbols, for host code.
#pragma once

#include "config.h"
#include "problem.h"

namespace tl_topk {

// A kernel's address on the host, by which the runtime knows it.
using KernelSymbol = const void*;

// The kernel of a configuration. One translation unit a dtype (select_*.cu), so that they compile
// in parallel.
template <Dtype D>
KernelSymbol find_kernel(const LaunchConfig& config);

}  // namespace tl_topk
