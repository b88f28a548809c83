// sampling.h: the planned floor keeps what is wanted and little else, for rows in random order.
#include "sampling.h"

#include <algorithm>
#include <functional>
#include <random>
#include <vector>

#include "check.h"

namespace {

using tl_topk::kGroups;
using tl_topk::plan_sample;
using tl_topk::SamplePlan;

constexpr uint32_t kThreads = 512;

void ranks_are_ranks() {
  for (uint32_t length = 2; length < 3000000; length = length * 5 / 3 + 1) {
    for (uint32_t k = 1; k < length; k = k * 3 + 1) {
      for (const uint32_t blocks : {1u, 2u, 16u}) {
        for (const uint32_t per_thread : {4u, 8u, 16u}) {
          const SamplePlan p = plan_sample(length, k, per_thread, kThreads, blocks);
          CHECK(p.per_thread >= 1 && p.per_thread <= per_thread);
          CHECK(p.lanes == 1 || p.lanes == 2 || p.lanes == 4);
          CHECK(p.groups >= 1 && p.groups <= kGroups);
          CHECK(p.low_rank >= 1 && p.low_rank <= p.groups);
          CHECK(p.ceiling_rank >= 1 && p.ceiling_rank <= p.low_rank);
        }
      }
    }
  }
}

// The floor one block finds in random elements, ranks counted exactly.
float floor_of(const std::vector<float>& block, const SamplePlan& plan, uint32_t per_thread) {
  std::vector<float> maxima;
  for (uint32_t group = 0; group < kGroups; ++group) {
    float best = -1;
    for (uint32_t lane = 0; lane < plan.lanes; ++lane) {
      const uint32_t thread = group * (kThreads / kGroups) + lane;
      for (uint32_t i = 0; i < plan.per_thread; ++i) {
        best = std::max(best, block[thread * per_thread + i]);
      }
    }
    maxima.push_back(best);
  }
  std::sort(maxima.begin(), maxima.end(), std::greater<>());
  return plan.has_floor ? maxima[plan.low_rank - 1] : -1;
}

void floor_admits_what_is_wanted(uint32_t blocks, uint32_t per_thread, uint32_t k) {
  const uint32_t share = kThreads * per_thread;
  const uint32_t length = blocks * share;
  const SamplePlan plan = plan_sample(length, k, per_thread, kThreads, blocks);
  CHECK(plan.has_floor);
  std::mt19937 random(blocks + per_thread + k);
  std::uniform_real_distribution<float> uniform(0, 1);
  constexpr int kTrials = 40;
  int misled = 0;
  double admitted = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<std::vector<float>> row(blocks, std::vector<float>(share));
    float highest = -1;
    for (auto& block : row) {
      for (float& x : block) x = uniform(random);
      const float floor = floor_of(block, plan, per_thread);
      highest = std::max(highest, floor);
      admitted += static_cast<double>(
          std::count_if(block.begin(), block.end(), [&](float x) { return x > floor; }));
    }
    int64_t above = 0;
    for (const auto& block : row) {
      above += std::count_if(block.begin(), block.end(), [&](float x) { return x > highest; });
    }
    misled += above < k;
  }
  CHECK(misled <= 1);
  CHECK(admitted / kTrials < 2.5 * k);
}

void nothing_to_select_needs_no_sample() {
  CHECK(!plan_sample(100, 100, 4, kThreads, 1).has_floor);
  CHECK(!plan_sample(0, 5, 4, kThreads, 1).has_floor);
}

}  // namespace

int main() {
  ranks_are_ranks();
  floor_admits_what_is_wanted(1, 16, 1024);
  floor_admits_what_is_wanted(8, 4, 2048);
  floor_admits_what_is_wanted(16, 8, 2048);
  floor_admits_what_is_wanted(16, 16, 2048);
  nothing_to_select_needs_no_sample();
  return check::status();
}
