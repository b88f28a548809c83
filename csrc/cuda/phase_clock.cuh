// Where the time inside a launch goes: compiled in only by the benchmark that asks
// (-DTL_TOPK_PHASE_CLOCK), otherwise nothing at all.
#pragma once

#include <cstdint>

namespace tl_topk {

enum Phase : uint32_t {
  kPhaseStart,
  kPhaseRead,      // the sample is in registers
  kPhaseFloor,     // the floor is known
  kPhaseFilter,    // survivors are listed (where a share takes several steps)
  kPhaseMeet,      // the row's last ticket is drawn (where several clusters share a row)
  kPhaseGather,    // and all lists are here
  kPhaseCount,     // survivors are counted
  kPhaseExchange,  // all blocks' counts are here
  kPhaseCut,       // the threshold bin is known, and this block's slots
  kPhaseEmit,      // winners above the bin are stored
  kPhaseSelect,    // and those inside it
  kPhases
};

#ifdef TL_TOPK_PHASE_CLOCK
constexpr uint32_t kPhaseBlocks = 1024;
// Sums over all launches: only differences mean anything.
__device__ uint32_t phase_clocks[kPhaseBlocks][kPhases];
__shared__ uint32_t phase_marks[kPhases];

__device__ __forceinline__ void mark(Phase phase) {
  if (threadIdx.x != 0) return;
  const uint32_t now = clock();
  for (uint32_t p = phase; p < kPhases; ++p) phase_marks[p] = now;  // phases left out take no time
}
__device__ __forceinline__ void record_phases(uint32_t block) {
  if (threadIdx.x != 0 || block >= kPhaseBlocks) return;
  for (uint32_t p = 0; p < kPhases; ++p) {
    phase_clocks[block][p] += phase_marks[p] - phase_marks[0];
  }
}
#else
__device__ __forceinline__ void mark(Phase) {}
__device__ __forceinline__ void record_phases(uint32_t) {}
#endif

}  // namespace tl_topk
