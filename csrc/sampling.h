// How to guess a floor for a row from a small sample of it, and how sure the guess is.
//
// The sample is cut into groups; only each group's largest member is looked at. A group of g
// elements drawn from a row of which a share p is wanted holds a wanted one with probability
// P = 1 - (1 - p)^g, so the number of such groups among m is binomial. The floor is the group
// maximum whose rank lies `kDeviations` standard deviations beyond the expectation: almost surely
// below the k-th element, and as near to it as m groups can tell. Group maxima tell most about the
// threshold when g * p is near 1.4, which decides the group size.
//
// A wrong guess costs time, never exactness: the kernel counts what passes the floor.
#pragma once

#include <cmath>
#include <cstdint>

#include "host_device.h"

namespace tl_topk {

constexpr uint32_t kGroups = 128;

struct SamplePlan {
  uint32_t per_thread;    // elements of each sampled thread that belong to its group
  uint32_t lanes;         // threads in a group
  bool has_floor;         // false: the sample is too small to reject anything
  uint32_t low_rank;      // 1-based rank, among group maxima, of the floor (or of the lowest one)
  uint32_t ceiling_rank;  // of the value that the k-th element almost surely does not exceed
};

// `held`: elements of the row that all sampled threads together hold; `capacity`: the most they
// could; `per_thread_max` of them in one thread; `lanes_max`: threads a group can have.
TL_TOPK_HD SamplePlan plan_sample(uint32_t length, uint32_t k, uint32_t held, uint32_t capacity,
                                  uint32_t per_thread_max, uint32_t lanes_max) {
  constexpr float kBestOdds = 1.4f;
  constexpr float kDeviations = 4.5f;
  const float share = static_cast<float>(k) / static_cast<float>(length);
  const float best_size = kBestOdds / share;

  SamplePlan plan{per_thread_max, 1, false, 1, 1};
  if (best_size < static_cast<float>(per_thread_max)) {
    plan.per_thread = best_size < 2.0f ? 1 : static_cast<uint32_t>(best_size);
  } else {
    while (plan.lanes < lanes_max &&
           static_cast<float>(2 * plan.lanes * per_thread_max) <= best_size) {
      plan.lanes *= 2;
    }
  }
  // A row shorter than the blocks can hold leaves the last groups empty.
  const float groups = held < capacity ? static_cast<float>(kGroups) * static_cast<float>(held) /
                                             static_cast<float>(capacity)
                                       : static_cast<float>(kGroups);
  const float size = static_cast<float>(plan.lanes * plan.per_thread);
  const float odds = 1.0f - expf(size * log1pf(-share));
  const float expected = groups * odds;
  const float margin = kDeviations * sqrtf(expected * (1.0f - odds)) + 1.0f;
  const float floor_rank = ceilf(expected + margin);
  const float ceiling_rank = floorf(expected - margin);
  plan.has_floor = floor_rank <= groups;
  plan.low_rank = static_cast<uint32_t>(plan.has_floor ? floor_rank : fmaxf(groups, 1.0f));
  plan.ceiling_rank = ceiling_rank >= 1.0f ? static_cast<uint32_t>(ceiling_rank) : 1;
  return plan;
}

}  // namespace tl_topk
