// What a variant's kernels tell and are told, free of CUDA headers; variant_kernels.cu implements
// it.
#pragma once

#include <cstdint>

namespace tl_topk_bench {

// Names of the phases in order, comma between them; empty unless compiled with
// TL_TOPK_PHASE_CLOCK. Each ends at its mark; the first is where a block begins.
const char* phase_names();

// Cycles from each block's beginning to its marks, summed over all launches since the last call:
// (blocks, phases). Waits for the GPU.
void take_phase_clocks(int64_t* clocks, int64_t blocks);

// Of a variant compiled with TL_TOPK_KNOWN_FLOOR, for the launches that follow: elements at or
// below the floor are rejected, bins saturate at the ceiling.
void set_known_floor(float floor, float ceiling);

// What the clocks count by, now.
double measure_clock_mhz();

}  // namespace tl_topk_bench
