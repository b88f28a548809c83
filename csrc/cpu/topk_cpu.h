// The CPU backend's entry point.
#pragma once

#include "problem.h"

namespace tl_topk {

// Selects on the calling thread and helpers of a process-wide pool, at most `threads` in all
// (0: as many as the machine has cores). Serves the whole contract; args must already be checked.
// Scratch memory is kept by the calling thread for its next call. Throws std::bad_alloc, before
// anything is written, when it cannot be had.
void topk_cpu(const TopKArgs& args, int threads);

// The vector width chosen at run time: "avx512", "avx2", "neon" or "scalar".
const char* cpu_simd_name();

}  // namespace tl_topk
