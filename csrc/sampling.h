// How to guess a floor for a row from a small sample of it, and how sure the guess is.
//
// The sample is cut into groups; only each group's largest member is looked at. A group of g
// elements drawn from a row of which a share p is wanted holds a wanted one with probability
// P = 1 - (1 - p)^g, so the number of such groups among m is binomial. The floor is the group
// maximum whose rank lies some standard deviations beyond the expectation, and what the skew of
// that distribution adds (Cornish and Fisher): almost surely below the k-th element. Of the sizes
// that can be had, the one is taken whose floor admits about the least: g * p a little above a
// half.
//
// A wrong guess costs time, never exactness: the kernel counts what passes the floor.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "host_device.h"
#include "problem.h"

namespace tl_topk {

// Groups that a kernel's sample is cut into: the more, the nearer its floor comes to the k-th
// element, and the longer it takes to find.
constexpr uint32_t kGroups = 64;
constexpr uint32_t kMostGroups = 128;

#if defined(__CUDA_ARCH__) && defined(__CUDACC__)  // not where a CPU plays the GPU
#define TL_TOPK_PTX
#endif

// x^y for x in [0, 1], the square root, and the quotient. On the GPU one thread computes a plan
// while the row is on its way: a few units in the last place do not matter, how many instructions
// it takes does.
TL_TOPK_HD float quick_power(float x, float y) {
#ifdef TL_TOPK_PTX
  float power;
  asm("lg2.approx.ftz.f32 %0, %1;\n\tmul.ftz.f32 %0, %0, %2;\n\tex2.approx.ftz.f32 %0, %0;"
      : "=&f"(power)
      : "f"(x), "f"(y));
  return power;
#else
  return std::exp2(y * std::log2(x));
#endif
}
TL_TOPK_HD float quick_sqrt(float x) {
#ifdef TL_TOPK_PTX
  float root;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(x));
  return root;
#else
  return std::sqrt(x);
#endif
}
TL_TOPK_HD float quick_quotient(float x, float y) {
#ifdef TL_TOPK_PTX
  float quotient;
  asm("div.approx.ftz.f32 %0, %1, %2;" : "=f"(quotient) : "f"(x), "f"(y));
  return quotient;
#else
  return x / y;
#endif
}
#undef TL_TOPK_PTX

// Of a number of at least 1, rounded down.
TL_TOPK_HD uint32_t floor_log2(float x) {
#ifdef __CUDA_ARCH__
  return (__float_as_uint(x) >> 23) - 127;
#else
  return static_cast<uint32_t>(std::ilogb(x));
#endif
}

// A group's members are the lanes of one number in every other warp, and of their loads those that
// `takes` says: few from each warp and far apart, so that the group also represents a row whose
// neighbouring elements are alike, a sorted one above all.
struct alignas(16) SamplePlan {  // read at once
  uint8_t warps;                 // that a group's lanes come from; a power of two
  uint8_t loads;                 // of each lane that may be taken
  uint8_t thin;                  // takes one in so many; a power of two, at most `warps`
  uint8_t per_load;              // elements of each load taken
  uint8_t groups;                // with anything in them
  uint8_t low_rank;              // 1-based rank, among group maxima, of the floor
  uint8_t ceiling_rank;          // of the value that the k-th element almost surely does not exceed
  uint8_t reach_rank;            // at or below the floor's
  uint8_t reach;   // how many times as far beyond the ceiling as from that rank to it bins must go
  bool has_floor;  // false: the sample is too small to reject anything

  TL_TOPK_HD bool takes(uint32_t member, uint32_t load, uint32_t lane) const {
    return load < loads && ((member + load + lane) & (thin - 1u)) == 0;
  }
  // Bins up to the best of the sample, where those of the winners shall be small.
  TL_TOPK_HD void fit(Order order) {
    if (order == Order::kValue) ceiling_rank = 1;
  }
  TL_TOPK_HD uint32_t group_size() const {
    return static_cast<uint32_t>(loads) * per_load * warps / thin;
  }
};

// The sample is `held` elements, up to `loads` vectors of `per_vector` of each of `threads`
// threads: all of them have a first vector before any has a second. Its kernel cuts it into
// `most_groups`. `deviations`: how far out a row must lie to be misled.
TL_TOPK_HD SamplePlan plan_sample_of(uint32_t held, uint32_t length, uint32_t k,
                                     uint32_t per_vector, uint32_t loads, uint32_t threads,
                                     uint32_t most_groups, float deviations) {
  constexpr uint32_t kLanesOfWarp = 32;
  const uint32_t of_warps = most_groups / kLanesOfWarp;  // warps that fill all groups once
  constexpr SamplePlan kNone{1, 1, 1, 1, 1, 1, 1, 1, 0, false};
  if (length <= k || k == 0) return kNone;  // no selection, no sample

  const uint32_t a_load = threads * per_vector;
  const uint32_t full_loads = held / a_load < loads ? held / a_load : loads;
  const uint32_t loads_max = full_loads > 0 ? full_loads : 1;
  uint32_t filled = threads / kLanesOfWarp;  // warps with a first vector in every lane, everywhere
  if (full_loads == 0) filled = held / (kLanesOfWarp * per_vector);
  const auto whole = static_cast<float>(filled / of_warps);  // times that they are filled
  const uint32_t warps_log2 = whole < 1.0f ? 0 : floor_log2(whole);
  const uint32_t groups = filled >= of_warps ? most_groups : filled > 0 ? kLanesOfWarp : 1;

  // About half a group's elements are wanted, for sizes double. What grows first are the loads,
  // then the share of them that is taken, then that of each.
  constexpr float kMostWanted = 0.71f;
  const float share = quick_quotient(static_cast<float>(k), static_cast<float>(length));
  const float most_size = quick_quotient(kMostWanted, share);
  const auto all_loads = static_cast<float>(loads_max);
  uint32_t taken = loads_max;
  uint32_t thin_log2 = warps_log2;
  uint32_t per_load = 1;
  auto size = all_loads;  // of a group
  if (most_size < all_loads) {
    taken = most_size < 2.0f ? 1 : 1u << floor_log2(most_size);
    size = static_cast<float>(taken);
  } else {
    const uint32_t doublings = floor_log2(quick_quotient(most_size, all_loads));
    const uint32_t thinned = doublings < warps_log2 ? doublings : warps_log2;
    thin_log2 -= thinned;
    per_load = 1u << (doublings - thinned);
    if (per_load > per_vector) per_load = per_vector;
    size *= static_cast<float>(per_load << thinned);
  }
  SamplePlan plan = kNone;
  plan.warps = static_cast<uint8_t>(1u << warps_log2);
  plan.loads = static_cast<uint8_t>(taken);
  plan.thin = static_cast<uint8_t>(1u << thin_log2);
  plan.per_load = static_cast<uint8_t>(per_load);
  plan.groups = plan.low_rank = static_cast<uint8_t>(groups);

  const auto m = static_cast<float>(groups);
  const float odds = 1.0f - quick_power(1.0f - share, size);
  const float expected = m * odds;
  const float margin = deviations * quick_sqrt(expected * (1.0f - odds)) + 1.0f;
  const float skew = (deviations * deviations - 1.0f) / 6.0f * (1.0f - 2.0f * odds);
  const float low = ceilf(expected + margin + skew);
  const float ceiling = floorf(expected - margin);
  plan.has_floor = low <= m;
  if (plan.has_floor) plan.low_rank = static_cast<uint8_t>(low);
  if (plan.has_floor && ceiling > 1.0f) plan.ceiling_rank = static_cast<uint8_t>(ceiling);
  // Where few of the sample are wanted, perhaps none of it is: the k-th element may lie beyond, and
  // so may other blocks' floors. As far as leaves few in one bin.
  constexpr float kSurelySome = 6.0f;  // wanted groups: one launch in 400 sees none of them
  constexpr uint32_t kMostReach = 4;
  constexpr uint32_t kReachTimesK = 1024;
  if (plan.has_floor && expected < kSurelySome) {
    const uint32_t reach = k < kReachTimesK ? kReachTimesK / k : 1;
    plan.reach = static_cast<uint8_t>(reach < kMostReach ? reach : kMostReach);
    // Two of the best may be arbitrarily close to one another, those far down are not.
    constexpr float kTimesAsFarDown = 4.0f;
    const float far = kTimesAsFarDown * low;
    plan.reach_rank = static_cast<uint8_t>(far < m ? far : m);
  }
  return plan;
}

// The sample is as large as that, or the whole row. Rows whose lengths only the GPU knows wait for
// this: all but one division are by constants there.
TL_TOPK_HD SamplePlan plan_sample(uint32_t length, uint32_t k, uint32_t per_vector, uint32_t loads,
                                  uint32_t threads, uint32_t groups = kGroups) {
  const uint32_t most = threads * per_vector * loads;
  const uint32_t held = length < most ? length : most;
  constexpr float kDeviations = 4.0f;  // for clusters there are few rows
  return plan_sample_of(held, length, k, per_vector, loads, threads, groups, kDeviations);
}

// The sample is the first of the steps in which a block alone reads the row (row.cuh), all of them
// equally large.
TL_TOPK_HD SamplePlan plan_first_step(uint32_t length, uint32_t k, uint32_t per_vector,
                                      uint32_t loads, uint32_t threads) {
  const uint32_t steps = length > 0 ? (length - 1) / (threads * per_vector * loads) + 1 : 1;
  constexpr float kDeviations = 4.5f;  // rows may be thousands, of which none shall keep the others
  return plan_sample_of(length / steps, length, k, per_vector, loads, threads, kGroups,
                        kDeviations);
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
  return 1.0 - std::exp(-(depth + deviations * spread) / plan.group_size());
}

}  // namespace tl_topk
