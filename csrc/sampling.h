// How to guess a floor for a row from a small sample of it, and how sure the guess is.
//
// The sample is cut into groups; only each group's largest member is looked at. A group of g
// elements drawn from a row of which a share p is wanted holds a wanted one with probability
// P = 1 - (1 - p)^g, so the number of such groups among m is binomial. The floor is the group
// maximum whose rank lies `kDeviations` standard deviations beyond the expectation: almost surely
// below the k-th element. Group maxima tell most about the threshold when g * p is near 1; of the
// sizes that can be had, the one is taken whose floor admits the least.
//
// A wrong guess costs time, never exactness: the kernel counts what passes the floor.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "host_device.h"

namespace tl_topk {

constexpr uint32_t kGroups = 64;

// x^y for x in (0, 1], and the square root. On the GPU one thread computes a plan while the row is
// on its way: a few units in the last place do not matter, the latency does.
TL_TOPK_HD float quick_power(float x, float y) {
#ifdef __CUDA_ARCH__
  return exp2f(y * __log2f(x));
#else
  return std::exp2(y * std::log2(x));
#endif
}
TL_TOPK_HD float quick_sqrt(float x) {
#ifdef __CUDA_ARCH__
  return __fsqrt_rn(x);
#else
  return std::sqrt(x);
#endif
}

struct SamplePlan {
  uint8_t per_thread;    // elements of each sampled thread that belong to its group
  uint8_t lanes;         // threads in a group
  uint8_t groups;        // with anything in them
  uint8_t low_rank;      // 1-based rank, among group maxima, of the floor
  bool has_floor;        // false: the sample is too small to reject anything
  uint8_t ceiling_rank;  // of the value that the k-th element almost surely does not exceed
};

// The sample is what `blocks` blocks of `threads` threads load first: `loads` vectors of
// `per_vector` elements each. A wrong guess costs time, never exactness: the kernel counts what
// passes the floor.
TL_TOPK_HD SamplePlan plan_sample(uint32_t length, uint32_t k, uint32_t per_vector, uint32_t loads,
                                  uint32_t threads, uint32_t blocks) {
  constexpr float kDeviations = 4.0f;
  constexpr uint32_t kLanesOfWarp = 32;
  if (length <= k) return {1, 1, 1, 1, false, 1};  // no selection, no sample

  // How the row is dealt out (row.cuh) decides which threads hold what: all of them get a first
  // vector before any gets a second, and each step takes an equal part of the row.
  const uint32_t a_load = threads * blocks * per_vector;
  const uint32_t steps = (length - 1) / (a_load * loads) + 1;
  const uint32_t held = length / steps;
  const uint32_t full_loads = held / a_load < loads ? held / a_load : loads;
  const uint32_t per_thread = (full_loads > 0 ? full_loads : 1) * per_vector;
  uint32_t groups = kGroups;
  if (full_loads == 0) {  // only whole warps count, in every block
    const uint32_t warps = held / (kLanesOfWarp * per_vector * blocks);
    groups = warps > 0 ? warps * (kGroups * kLanesOfWarp / threads) : 1;
  }

  const float share = static_cast<float>(k) / static_cast<float>(length);
  const uint32_t lanes_max = threads / kGroups;
  SamplePlan best{1, 1, static_cast<uint8_t>(groups), static_cast<uint8_t>(groups), false, 1};
  float least = 1.0f;
  uint32_t sampled = 1;
  uint32_t lanes = 1;
  while (true) {
    const auto size = static_cast<float>(sampled * lanes);
    const auto m = static_cast<float>(groups);
    const float odds = 1.0f - quick_power(1.0f - share, size);
    const float expected = m * odds;
    const float margin = kDeviations * quick_sqrt(expected * (1.0f - odds)) + 1.0f;
    const float low = ceilf(expected + margin);
    if (low > m) break;  // as for any larger size
    // What lies above that group maximum; the lowest of all stands for half a rank beyond it.
    const float beyond = low < m ? 1.0f - low / m : 0.5f / m;
    const float admitted = 1.0f - quick_power(beyond, 1.0f / size);
    // Past the best size they only get worse; of sizes about as good the larger has the better
    // ceiling.
    constexpr float kAboutAsGood = 1.03f;
    if (admitted > kAboutAsGood * least) break;
    least = admitted < least ? admitted : least;
    const float ceiling = floorf(expected - margin);
    best = {static_cast<uint8_t>(sampled),
            static_cast<uint8_t>(lanes),
            static_cast<uint8_t>(groups),
            static_cast<uint8_t>(low),
            true,
            static_cast<uint8_t>(ceiling >= 1.0f ? ceiling : 1.0f)};
    if (sampled < per_thread) {
      sampled = 2 * sampled < per_thread ? 2 * sampled : per_thread;
    } else if (lanes < lanes_max) {
      lanes *= 2;
    } else {
      break;
    }
  }
  return best;
}

// The share of a row that lies above the floor: what the plan expects, or with a floor that many
// standard deviations lower. The maxima of groups of `size` elements spread like -log(1 - rank) /
// size.
inline double admitted_share(const SamplePlan& plan, double deviations) {
  if (!plan.has_floor) return 1.0;
  const double m = plan.groups;
  const double rank = std::min<double>(plan.low_rank, m - 0.5);  // the lowest: half a rank beyond
  const double depth = -std::log(1.0 - rank / m);
  const double spread = std::sqrt(rank / (m * (m - rank)));
  return 1.0 - std::exp(-(depth + deviations * spread) / (plan.per_thread * plan.lanes));
}

}  // namespace tl_topk
