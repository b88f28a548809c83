// csrc/cuda/anchors.cuh for emulated kernels: the same, but a launch may be watched and end there.
#pragma once

#define find_anchors find_anchors_unwatched
#include_next "cuda/anchors.cuh"
#undef find_anchors

namespace tl_topk {

// What the blocks that find anchors say; null: nobody asks, and launches go on.
struct Watch {
  static constexpr uint32_t kMostElements = 16;  // of a thread

  float (*sample)[kThreads][kMostElements];  // of each block and thread; as they were: none
  float (*maxima)[kMostGroups];              // of each block
  Anchors* anchors;                          // of each block
  SamplePlan* plan;                          // of the last one
};
inline Watch* watch = nullptr;

template <uint32_t kGroupCount, uint32_t kPerVector, uint32_t kElements>
Anchors find_anchors(const float (&x)[kElements], const SamplePlan& plan, AnchorScratch& scratch) {
  static_assert(kElements <= Watch::kMostElements);
  const Anchors anchors = find_anchors_unwatched<kGroupCount, kPerVector>(x, plan, scratch);
  if (watch != nullptr) {
    std::copy(x, x + kElements, watch->sample[blockIdx.x][threadIdx.x]);
    if (threadIdx.x < kGroupCount) {
      watch->maxima[blockIdx.x][threadIdx.x] = anchor_of_key(scratch.group_keys[threadIdx.x]);
    }
    watch->anchors[blockIdx.x] = anchors;
    *watch->plan = plan;
    emulated::leave();
  }
  return anchors;
}

}  // namespace tl_topk
