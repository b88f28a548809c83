// Where the time inside an indexer's launch goes: compiled in only by the benchmark that asks
// (-DTL_TOPK_PHASE_CLOCK), otherwise nothing at all.
#pragma once

#include <cstdint>

namespace tl_topk::indexer {

enum Moment : uint32_t {
  kMomentBegin,     // of the block
  kMomentStart,     // it knows what it works on
  kMomentKeys,      // the first tile of keys is there
  kMomentFirst,     // and scored
  kMomentScored,    // the last tile is: all that there is where the kernel only scores
  kMomentFloor,     // the floor is known, and all that passes it is on its way
  kMomentPassed,    // the heads are written
  kMomentHeads,     // all blocks' are
  kMomentGathered,  // their survivors are listed
  kMomentCut,       // and the threshold's bin known
  kMomentEnd,       // the row is selected
  kMoments
};

#ifdef TL_TOPK_PHASE_CLOCK
constexpr uint32_t kClockBlocks = 256;
__device__ int64_t clocks[kClockBlocks][kMoments];  // of the last launch

__device__ __forceinline__ void mark(Moment moment) {
  if (threadIdx.x == 0 && blockIdx.x < kClockBlocks) clocks[blockIdx.x][moment] = clock64();
}
#else
__device__ __forceinline__ void mark(Moment) {}
#endif

// What TileLang programs call.
template <uint32_t kMoment>
__device__ __forceinline__ void mark_moment() {
  mark(static_cast<Moment>(kMoment));
}

}  // namespace tl_topk::indexer
