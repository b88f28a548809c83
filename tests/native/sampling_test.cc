// sampling.h: the planned floor keeps what is wanted and little else, for rows in random order.
#include "sampling.h"

#include <algorithm>
#include <functional>
#include <random>
#include <vector>

#include "check.h"
#include "config.h"

namespace {

using tl_topk::kGroups;
using tl_topk::plan_sample;
using tl_topk::SamplePlan;

constexpr uint32_t kThreads = 512;
constexpr uint32_t kWarp = 32;
constexpr uint32_t kPerVector = 4;

uint32_t log2_of(uint32_t power_of_two) {
  uint32_t log2 = 0;
  while (1u << log2 < power_of_two) ++log2;
  return log2;
}

void ranks_are_ranks() {
  for (uint32_t length = 2; length < 3000000; length = length * 5 / 3 + 1) {
    for (uint32_t k = 1; k < length; k = k * 3 + 1) {
      for (const uint32_t blocks : {1u, 2u, 16u}) {
        for (const uint32_t loads : {1u, 2u, 4u}) {
          const SamplePlan p = plan_sample(length, k, kPerVector, loads, kThreads, log2_of(blocks));
          CHECK(p.loads >= 1 && p.loads <= loads);
          CHECK(p.per_load >= 1 && p.per_load <= kPerVector);
          CHECK(p.warps >= 1 && p.warps * kGroups <= kThreads);
          CHECK(p.thin >= 1 && p.warps % p.thin == 0);
          CHECK(p.groups >= 1 && p.groups <= kGroups);
          CHECK(p.low_rank >= 1 && p.low_rank <= p.groups);
          CHECK(p.ceiling_rank >= 1 && p.ceiling_rank <= p.low_rank);
          CHECK(p.reach == 0 || (p.reach_rank >= p.low_rank && p.reach_rank <= p.groups));
        }
      }
    }
  }
}

// What the kernel does, element by element: the row dealt out as Deal in row.cuh does it, and each
// block's floor from what its threads load first, ranks counted exactly.
class Kernel {
 public:
  Kernel(uint32_t blocks, uint32_t loads) : blocks_(blocks), loads_(loads) {}

  float floor_of(const std::vector<float>& row, const SamplePlan& plan, uint32_t block) const {
    std::vector<float> maxima;
    for (uint32_t group = 0; group < kGroups; ++group) {
      float best = -1;
      for (uint32_t member = 0; member < plan.warps; ++member) {
        const uint32_t thread = member * kGroups + group;
        for (uint32_t load = 0; load < loads_; ++load) {
          if (!plan.takes(member, load, group % kWarp)) continue;
          for (uint32_t i = 0; i < plan.per_load; ++i) {
            const uint64_t at = position(row, block, thread, load) + i;
            if (at < row.size()) best = std::max(best, row[at]);
          }
        }
      }
      maxima.push_back(best);
    }
    std::sort(maxima.begin(), maxima.end(), std::greater<>());
    return plan.has_floor ? maxima[plan.low_rank - 1] : -1;
  }

  // Where thread `thread` of a block finds vector `load` of the first step.
  uint64_t position(const std::vector<float>& row, uint32_t block, uint32_t thread,
                    uint32_t load) const {
    const uint64_t stride = uint64_t{kThreads} / kWarp * blocks_;
    const uint64_t a_step = stride * loads_ * kWarp * kPerVector;
    const uint64_t steps = (row.size() + a_step - 1) / a_step;
    const uint64_t stream = uint64_t{thread} / kWarp * blocks_ + block;
    return (((load * stride + stream) * steps + steps / 2) * kWarp + thread % kWarp) * kPerVector;
  }

 private:
  uint32_t blocks_;
  uint32_t loads_;
};

// Floors of all blocks over random rows: k elements must lie above the highest, and not many more
// than that above the lot.
void floor_admits_what_is_wanted(uint32_t blocks, uint32_t loads, uint32_t length, uint32_t k) {
  const SamplePlan plan = plan_sample(length, k, kPerVector, loads, kThreads, log2_of(blocks));
  const Kernel kernel(blocks, loads);
  std::mt19937 random(blocks + loads + length + k);
  std::uniform_real_distribution<float> uniform(0, 1);
  constexpr int kTrials = 30;
  int misled = 0;
  double admitted = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<float> row(length);
    for (float& x : row) x = uniform(random);
    float highest = -1;
    for (uint32_t block = 0; block < blocks; ++block) {
      const float floor = kernel.floor_of(row, plan, block);
      highest = std::max(highest, floor);
      admitted += static_cast<double>(
          std::count_if(row.begin(), row.end(), [&](float x) { return x > floor; }));
    }
    const auto above = std::count_if(row.begin(), row.end(), [&](float x) { return x > highest; });
    misled += above < k;
  }
  CHECK(misled <= 1);
  admitted /= kTrials * blocks;
  // Little more than what is wanted, or else so few that all blocks together hold them. Without a
  // floor every element is.
  const double held = 0.9 * kThreads * tl_topk::kSomeEntries * blocks;
  CHECK((plan.has_floor ? admitted : length) < std::max(2.5 * k, held));
  // And as many as the configuration makes room for.
  if (plan.has_floor) {
    const double expected = length * tl_topk::admitted_share(plan, 0);
    CHECK(0.7 * expected < admitted && admitted < 1.1 * expected);
  }
}

void nothing_to_select_needs_no_sample() {
  CHECK(!plan_sample(100, 100, kPerVector, 1, kThreads, 0).has_floor);
  CHECK(!plan_sample(0, 5, kPerVector, 1, kThreads, 0).has_floor);
  CHECK(plan_sample(100000, 0, kPerVector, 2, kThreads, 3).reach <= 16);  // nothing wanted
}

}  // namespace

int main() {
  ranks_are_ranks();
  // Rows that fill the blocks, rows of odd lengths in between, and short rows in wide launches.
  floor_admits_what_is_wanted(1, 4, 8192, 1024);
  floor_admits_what_is_wanted(8, 1, 16384, 2048);
  floor_admits_what_is_wanted(16, 2, 65536, 2048);
  floor_admits_what_is_wanted(16, 4, 131072, 2048);
  for (const uint32_t length :
       {5000u, 6145u, 8192u, 12288u, 16384u, 40000u, 65536u, 70001u, 98304u, 120000u, 140000u}) {
    floor_admits_what_is_wanted(16, 4, length, 2048);
    floor_admits_what_is_wanted(16, 4, length, 512);
    floor_admits_what_is_wanted(2, 4, length, 2048);
  }
  nothing_to_select_needs_no_sample();
  return check::status();
}
