// Where the time inside a launch goes: compiled in only by the benchmark that asks
// (-DTL_TOPK_PHASE_CLOCK), otherwise nothing at all.
#pragma once

#include <cstdint>

namespace tl_topk {

enum Phase : uint32_t {
  kPhaseStart,
  kPhaseRead,     // the first step of the row is in registers
  kPhaseFloor,    // the floor is known
  kPhaseFilter,   // survivors are stored
  kPhaseDeliver,  // the leader may read them
  kPhaseCut,      // the threshold bin is known
  kPhaseSelect,   // winners are stored
  kPhases
};

#ifdef TL_TOPK_PHASE_CLOCK
constexpr uint32_t kPhaseBlocks = 1024;
__device__ long long phase_clocks[kPhaseBlocks][kPhases];

__device__ __forceinline__ void mark(Phase phase) {
  if (threadIdx.x == 0 && blockIdx.x < kPhaseBlocks) phase_clocks[blockIdx.x][phase] = clock64();
}
#else
__device__ __forceinline__ void mark(Phase) {}
#endif

}  // namespace tl_topk
