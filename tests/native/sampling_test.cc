// sampling.h: the planned floor keeps what is wanted and little else, for rows in random order.
#include "sampling.h"

#include <algorithm>
#include <functional>
#include <random>
#include <vector>

#include "check.h"
#include "config.h"

namespace {

using tl_topk::choose_launch;
using tl_topk::DeviceFacts;
using tl_topk::Dtype;
using tl_topk::kGroups;
using tl_topk::kMostGroups;
using tl_topk::LaunchConfig;
using tl_topk::plan_first_step;
using tl_topk::plan_sample;
using tl_topk::Problem;
using tl_topk::SamplePlan;
using tl_topk::Scope;

constexpr uint32_t kThreads = 512;
constexpr uint32_t kWarp = 32;
const DeviceFacts kH200{90, 132, 232448, int64_t{60} << 20, {132, 66, 32, 15, 8}};

void ranks_are_ranks() {
  for (uint32_t length = 2; length < 3000000; length = length * 5 / 3 + 1) {
    for (uint32_t k = 1; k < length; k = k * 3 + 1) {
      for (const uint32_t per_vector : {4u, 8u}) {
        for (const uint32_t loads : {1u, 2u, 4u}) {
          for (const auto& [p, groups] :
               {std::pair(plan_sample(length, k, per_vector, loads, kThreads), kGroups),
                std::pair(plan_sample(length, k, per_vector, loads, kThreads, kMostGroups),
                          kMostGroups),
                std::pair(plan_first_step(length, k, per_vector, loads, kThreads), kGroups)}) {
            CHECK(p.loads >= 1 && p.loads <= loads);
            CHECK(p.per_load >= 1 && p.per_load <= per_vector);
            CHECK(p.warps >= 1 && p.warps * groups <= kThreads);
            CHECK(p.thin >= 1 && p.warps % p.thin == 0);
            CHECK(p.groups >= 1 && p.groups <= groups);
            CHECK(p.low_rank >= 1 && p.low_rank <= p.groups);
            CHECK(p.ceiling_rank >= 1 && p.ceiling_rank <= p.low_rank);
            CHECK(p.reach == 0 || (p.reach_rank >= p.low_rank && p.reach_rank <= p.groups));
          }
        }
      }
    }
  }
}

// The sample of a row: what all of its blocks take alike, by CommonSample in anchors.cuh, or what a
// block alone loads first, by Deal in row.cuh.
class Sample {
 public:
  Sample(uint32_t length, uint32_t per_vector, uint32_t loads, uint32_t groups, bool alone)
      : vectors_((length + per_vector - 1) / per_vector),
        per_vector_(per_vector),
        loads_(loads),
        groups_(groups),
        alone_(alone) {}

  uint32_t loads() const { return loads_; }
  // Where a thread's vector lies; past the row's end where there is none.
  uint64_t position(uint32_t thread, uint32_t load) const {
    const uint32_t number = load * kThreads + thread;
    const uint32_t all = loads_ * kThreads;
    if (alone_) {  // the middle step of each stream
      const uint32_t steps = (vectors_ + all - 1) / all;
      const uint64_t chunk = uint64_t{number / kWarp} * steps + steps / 2;
      return (chunk * kWarp + number % kWarp) * per_vector_;
    }
    constexpr uint32_t kLine = 8;          // vectors
    const uint32_t sampled = all / kLine;  // lines
    const uint32_t lines = std::max(vectors_ / kLine, sampled);
    const uint32_t line = number / kLine;
    const uint64_t begin = uint64_t{line} * lines / sampled;
    const uint64_t place = uint64_t{line * 0x9e3779b9u} * (lines / sampled) >> 32;
    return ((begin + place) * kLine + number % kLine) * per_vector_;
  }
  // The ranks of group maxima are counted exactly here.
  float floor_of(const std::vector<float>& row, const SamplePlan& plan) const {
    std::vector<float> maxima;
    for (uint32_t group = 0; group < groups_; ++group) {
      float best = -1;
      for (uint32_t member = 0; member < plan.warps; ++member) {
        const uint32_t thread = member * groups_ + group;
        for (uint32_t load = 0; load < loads_; ++load) {
          if (!plan.takes(member, load, group % kWarp)) continue;
          for (uint32_t i = 0; i < plan.per_load; ++i) {
            const uint64_t at = position(thread, load) + i;
            if (at < row.size()) best = std::max(best, row[at]);
          }
        }
      }
      maxima.push_back(best);
    }
    std::sort(maxima.begin(), maxima.end(), std::greater<>());
    return plan.has_floor ? maxima[plan.low_rank - 1] : -1;
  }

 private:
  uint32_t vectors_;
  uint32_t per_vector_;
  uint32_t loads_;
  uint32_t groups_;
  bool alone_;
};

// Whole lines, each once, spread over the row: none further from the next, or the last from the
// row's end, than two strides.
void lines_are_spread(const Sample& sample, uint32_t length, uint32_t per_vector) {
  std::vector<uint64_t> begins;
  for (uint32_t load = 0; load < sample.loads(); ++load) {
    for (uint32_t thread = 0; thread < kThreads; ++thread) {
      begins.push_back(sample.position(thread, load));
    }
  }
  CHECK(begins.front() < length);
  CHECK(std::adjacent_find(begins.begin(), begins.end(), std::greater_equal<>()) == begins.end());
  const bool is_whole = uint64_t{length} >= begins.size() * per_vector;
  const double a_line = 8.0 * length / static_cast<double>(begins.size());
  if (is_whole) {
    CHECK(begins.back() < length);
    CHECK(static_cast<double>(length - begins.back()) < 2 * a_line);
  }
  for (size_t i = 8; i < begins.size(); ++i) {
    CHECK(begins[i] % (8 * per_vector) == i % 8 * per_vector);
    CHECK(static_cast<double>(begins[i] - begins[i - 8]) < 2 * std::max(a_line, 8.0 * per_vector));
  }
}

struct Launch {
  LaunchConfig config;
  uint32_t k;
  uint32_t per_vector;
  uint32_t loads;   // vectors a thread of the sample that its kernel takes
  uint32_t groups;  // that it cuts that into
};

Launch launch_of(int64_t rows, uint32_t width, uint32_t k, Dtype dtype) {
  Problem problem;
  problem.rows = rows;
  problem.width = width;
  problem.k = k;
  problem.dtype = dtype;
  const LaunchConfig c = choose_launch(problem, kH200);
  const auto per_vector = static_cast<uint32_t>(16 / tl_topk::element_size(dtype));
  const uint32_t loads = c.scope == Scope::kBlock
                             ? static_cast<uint32_t>(c.vectors_per_thread)
                             : tl_topk::sample_loads(per_vector, c.queue_bytes > 0);
  return {c, k, per_vector, loads,
          tl_topk::sample_groups(c.scope, c.entries_per_thread, c.queue_bytes > 0)};
}

// Elements that a block has room for.
double room_of(const Launch& launch) {
  const LaunchConfig& c = launch.config;
  if (c.scope == Scope::kGrid) {
    return std::min(1024.0, 1.0 * tl_topk::kGridEntries / c.blocks_per_row);
  }
  const bool resident = c.entries_per_thread == tl_topk::kResident;
  const auto of_step = static_cast<double>(c.vectors_per_thread) * launch.per_vector;
  return c.threads * (resident ? of_step : c.entries_per_thread);
}

// The floor over random rows of a length: k elements must lie above it, and not many more.
void floor_admits_what_is_wanted(const Launch& launch, uint32_t length, const SamplePlan& plan) {
  const bool alone = launch.config.scope == Scope::kBlock;
  const Sample sample(length, launch.per_vector, launch.loads, launch.groups, alone);
  if (!alone) lines_are_spread(sample, length, launch.per_vector);
  const int blocks = launch.config.blocks_per_row;
  std::mt19937 random(blocks + launch.loads + length + launch.k);
  std::uniform_real_distribution<float> uniform(0, 1);
  const int trials = 30;  // of which the mean varies by a twentieth
  double admitted = 0;
  double most = 0;
  std::vector<float> row(length);
  for (int trial = 0; trial < trials; ++trial) {
    for (float& x : row) x = uniform(random);
    const float floor = sample.floor_of(row, plan);
    const auto above = static_cast<double>(
        std::count_if(row.begin(), row.end(), [&](float x) { return x > floor; }));
    CHECK(above >= launch.k);  // 4 standard deviations and more
    admitted += above / trials;
    most = std::max(most, above);
  }
  // As many as the configuration makes room for. Without a floor every element is.
  CHECK(most <= room_of(launch) * blocks);
  if (!plan.has_floor) return;
  const double expected = length * tl_topk::admitted_share(plan, 0);
  CHECK(0.8 * expected < admitted && admitted < 1.1 * expected);
  // Little more than what is wanted, or else so few that all blocks together hold them.
  CHECK(admitted < std::max(2.5 * launch.k, 0.9 * room_of(launch) * blocks));
}

// Nor may it lie too high where a row gets worse from its beginning to its end, if the sample that
// all blocks take spans it: not where so much is wanted that its first loads do, and the row is no
// shorter.
void floor_admits_of_sorted_rows(const Launch& launch, uint32_t length, const SamplePlan& plan) {
  const uint32_t sampled = launch.loads * kThreads * launch.per_vector;
  if (launch.config.scope == Scope::kBlock || plan.loads < launch.loads || length < sampled) return;
  std::vector<float> row(length);
  for (uint32_t i = 0; i < length; ++i) row[i] = 1 - static_cast<float>(i) / length;
  const float floor =
      Sample(length, launch.per_vector, launch.loads, launch.groups, false).floor_of(row, plan);
  CHECK(std::count_if(row.begin(), row.end(), [&](float x) { return x > floor; }) >= launch.k);
}

// Rows as long as the width, by the plan that the launch brings along, and shorter ones.
void floors_of_launches(int64_t rows, uint32_t width, uint32_t k, Dtype dtype) {
  const Launch launch = launch_of(rows, width, k, dtype);
  floor_admits_what_is_wanted(launch, width, launch.config.sample);
  floor_admits_of_sorted_rows(launch, width, launch.config.sample);
  for (const uint32_t length : {5000u, 40000u, width / 2 + 77, width - 1}) {
    if (length >= width || length <= k) continue;
    const auto plan =
        launch.config.scope == Scope::kBlock
            ? plan_first_step(length, k, launch.per_vector, launch.loads, kThreads)
            : plan_sample(length, k, launch.per_vector, launch.loads, kThreads, launch.groups);
    floor_admits_what_is_wanted(launch, length, plan);
  }
}

void nothing_to_select_needs_no_sample() {
  CHECK(!plan_sample(100, 100, 4, 1, kThreads).has_floor);
  CHECK(!plan_sample(0, 5, 4, 1, kThreads).has_floor);
  CHECK(plan_sample(100000, 0, 4, 2, kThreads).reach <= 4);  // nothing wanted
}

}  // namespace

int main() {
  ranks_are_ranks();
  // Rows of one block, of clusters and of several of them; in one step and in more; and lengths
  // that fill neither steps nor the sample.
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBFloat16}) {
    for (const int64_t rows : {1, 60, 140}) {
      for (const uint32_t width :
           {2000u, 4096u, 6145u, 8188u, 12288u, 16384u, 65536u, 70001u, 98304u, 131072u, 140000u}) {
        for (const uint32_t k : {512u, 1024u, 2048u}) {
          if (k < width) floors_of_launches(rows, width, k, dtype);
        }
      }
    }
    floors_of_launches(1, 200000, 4096, dtype);
    floors_of_launches(1, 1100000, 2048, dtype);
    floors_of_launches(2, 1200000, 512, dtype);
  }
  nothing_to_select_needs_no_sample();
  return check::status();
}
