#include "config.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace tl_topk {
namespace {

constexpr int kEntryBytes = 8;
constexpr int kThreadsPerBlock = 512;
constexpr int64_t kMaxElementsPerThread = 16;  // in registers
// Elements of a row that one block takes alone: where they stay in its registers and are counted
// whole (short_row.cuh; bench/results/regret_ready.json), and where an order is asked for.
constexpr int64_t kMostAlone = int64_t{kThreadsPerBlock} * kMostResident;
constexpr int64_t kMostAloneInOrder = 2048;
// The least elements of a block, in clusters up to 8 and of 16: fewer, and meeting costs more than
// it saves. Measured on an H200 (bench/results/regret_ready.json).
constexpr int kLeastOfBlock = 512;
constexpr int kLeastOfBlockOf16 = 2048;
static_assert(kElementsPerStep == kThreadsPerBlock * kMaxElementsPerThread);

int64_t round_up_to_power_of_two(int64_t x) {
  int64_t p = 1;
  while (p < x) p *= 2;
  return p;
}

int64_t most_alone(const Problem& problem) {
  return problem.order == Order::kAny && problem.k <= kMaxFastK ? kMostAlone : kMostAloneInOrder;
}

int least_of_block(int blocks_per_row) {
  return blocks_per_row > 8 ? kLeastOfBlockOf16 : kLeastOfBlock;
}

// The largest cluster that still gives every row its own one at once, and every block enough to do.
int choose_cluster(const Problem& problem, const DeviceFacts& device) {
  int best = 1;
  if (problem.width <= most_alone(problem)) return best;
  for (size_t i = 0; i < kClusterSizes.size(); ++i) {
    const int size = kClusterSizes[i];
    const bool all_rows_at_once = device.coresident_clusters[i] >= problem.rows;
    if (all_rows_at_once && problem.width >= int64_t{size} * least_of_block(size)) best = size;
  }
  return best;
}

[[noreturn]] void refuse_blocks(int64_t blocks_per_row, const DeviceFacts& device) {
  std::string allowed = "0";
  for (size_t i = 0; i < kClusterSizes.size(); ++i) {
    if (device.coresident_clusters[i] > 0) allowed += ", " + std::to_string(kClusterSizes[i]);
  }
  throw std::invalid_argument("blocks_per_row: expected one of " + allowed +
                              " on this device, or more for few and long rows, got " +
                              std::to_string(blocks_per_row));
}

// A block or a cluster of so many, asked for by the caller, if the device can have it.
int checked_cluster(int64_t blocks_per_row, const DeviceFacts& device) {
  for (size_t i = 0; i < kClusterSizes.size(); ++i) {
    if (device.coresident_clusters[i] > 0 && kClusterSizes[i] == blocks_per_row) {
      return kClusterSizes[i];
    }
  }
  refuse_blocks(blocks_per_row, device);
}

// By a kernel with room for `entries` survivors a thread, whose blocks' shares are `queued` or not.
SamplePlan sample_of(const Problem& problem, const LaunchConfig& c, int entries, bool queued) {
  const auto per_vector = static_cast<uint32_t>(16 / element_size(problem.dtype));
  const auto width = static_cast<uint32_t>(problem.width);
  const auto k = static_cast<uint32_t>(problem.k);
  const auto threads = static_cast<uint32_t>(c.threads);
  SamplePlan plan;
  if (c.scope == Scope::kBlock) {
    const auto loads = static_cast<uint32_t>(c.vectors_per_thread);
    plan = plan_first_step(width, k, per_vector, loads, threads);
  } else {
    const uint32_t loads = sample_loads(per_vector, queued);
    plan =
        plan_sample(width, k, per_vector, loads, threads, sample_groups(c.scope, entries, queued));
  }
  plan.fit(problem.order);
  return plan;
}

// Elements of a block, at the most.
int64_t share_of(const Problem& problem, const LaunchConfig& c) {
  return (problem.width + c.blocks_per_row - 1) / c.blocks_per_row;
}

// Do all clusters of a launch of `all_blocks` fit at once?
bool fit_at_once(int64_t all_blocks, int cluster, const DeviceFacts& device) {
  for (size_t i = 0; i < kClusterSizes.size(); ++i) {
    if (kClusterSizes[i] == cluster) {
      return int64_t{device.coresident_clusters[i]} * cluster >= all_blocks;
    }
  }
  return false;
}

// Steps of the row that one cluster of a grid would rather take alone.
uint32_t steps_alone(const LaunchConfig& grid) {
  return steps_of_cluster(static_cast<uint32_t>(grid.blocks_per_row / grid.cluster_blocks));
}

// Several clusters for each row if they are to be had: as many blocks as asked for, or 0: where one
// cluster would read it in many steps and leaves much of the GPU idle. Of the largest alone: with
// few rows, that is, for smaller ones are slow where the sample misleads.
bool widen_to_grid(LaunchConfig& c, const Problem& problem, const DeviceFacts& device,
                   int64_t asked_for) {
  if (c.large_k || c.cluster_blocks != kClusterSizes.back()) return false;
  LaunchConfig grid = c;
  grid.scope = Scope::kGrid;
  const int64_t most_blocks =
      asked_for > 0 ? std::min<int64_t>(asked_for, kMaxGridBlocks) : kMaxGridBlocks;
  while (2 * grid.blocks_per_row <= most_blocks &&
         fit_at_once(2 * problem.rows * grid.blocks_per_row, c.cluster_blocks, device)) {
    grid.blocks_per_row *= 2;
  }
  if (grid.blocks_per_row == c.blocks_per_row) return false;
  const int64_t alone = c.blocks_per_row * kElementsPerStep * steps_alone(grid);
  if (asked_for == 0 && problem.width <= alone) return false;

  grid.vectors_per_thread =
      static_cast<int>(kMaxElementsPerThread) * element_size(problem.dtype) / 16;
  grid.sample = sample_of(problem, grid, kSomeEntries, true);
  // Every list must hold what the floor admits.
  constexpr double kDeviations = 4.5;
  const double share = static_cast<double>(problem.width) / grid.blocks_per_row;
  const double passing = share * admitted_share(grid.sample, 0);
  const double of_floor = share * admitted_share(grid.sample, 1) - passing;
  const double most = passing + kDeviations * std::sqrt(passing + of_floor * of_floor);
  if (most > grid_room(floor_log2(static_cast<float>(grid.blocks_per_row)))) return false;
  c = grid;
  c.workspace_bytes =
      kCounterBytes + problem.rows * (kMaxGridBlocks * kGridHeadBytes + kGridEntries * kEntryBytes);
  return true;
}

// The most survivors a block is likely to have.
double survivors_per_block(const Problem& problem, const LaunchConfig& c) {
  // Of all blocks of all launches: a list that overflows costs many times what a launch does.
  constexpr double kDeviations = 6;
  const double share = static_cast<double>(problem.width) / c.blocks_per_row;
  const double passing = share * admitted_share(c.sample, kDeviations);
  return std::min(share, passing + kDeviations * std::sqrt(passing));
}

// Room for steps under way, for the survivors of a block's share and for the sort.
void set_staging(LaunchConfig& c, int entries_per_thread, int64_t share,
                 const DeviceFacts& device) {
  c.entries_per_thread = entries_per_thread;
  const int held = entries_per_thread == kResident ? kMostResident : entries_per_thread;
  const int listed = c.large_k ? 0 : c.threads * held;
  const bool few_or_shared = entries_per_thread == kFewEntries ||
                             (entries_per_thread == kSomeEntries && c.scope == Scope::kCluster);
  const bool queued =
      !c.large_k && (c.scope == Scope::kGrid || (share > kElementsPerStep && few_or_shared));
  c.queue_bytes = queued && has_deep_queue(device.compute_capability) ? kQueueBytes : 0;
  c.shared_bytes =
      kFixedSharedBytes + c.queue_bytes +
      static_cast<int64_t>(std::max(listed, c.sort_entries) + c.sort_entries) * kEntryBytes;
  // Blocks of clusters have a multiprocessor each, for their registers; of others two share it.
  const int of_multiprocessor = c.scope == Scope::kBlock && c.queue_bytes == 0 ? 2 : 1;
  const int64_t with_pages = c.shared_bytes + kMostPageWords * int64_t{sizeof(int32_t)};
  constexpr int64_t kReserved = 1024;  // of each block, by the system
  const bool room =
      of_multiprocessor * (with_pages + kReserved) <= device.shared_memory_per_block + kReserved;
  const bool copies = device.compute_capability >= 90;  // in bulk
  const bool kept = room && copies && !c.large_k && c.scope != Scope::kGrid && c.sort_entries == 0;
  c.page_words = kept ? kMostPageWords : 0;
}

}  // namespace

LaunchConfig choose_launch(const Problem& problem, const DeviceFacts& device,
                           int64_t blocks_per_row) {
  if (device.sms <= 0) throw std::invalid_argument("device: has no multiprocessors to launch on");
  LaunchConfig c;
  c.large_k = problem.k > kMaxFastK;
  c.threads = kThreadsPerBlock;
  const bool grid_is_asked_for = blocks_per_row > kClusterSizes.back();
  c.cluster_blocks = c.blocks_per_row = blocks_per_row == 0 || grid_is_asked_for
                                            ? choose_cluster(problem, device)
                                            : checked_cluster(blocks_per_row, device);
  c.scope = c.blocks_per_row > 1 ? Scope::kCluster : Scope::kBlock;
  c.sort_entries = problem.order == Order::kAny || c.large_k
                       ? 0
                       : static_cast<int>(std::max<int64_t>(kThreadsPerBlock,
                                                            round_up_to_power_of_two(problem.k)));
  const bool may_be_grid = blocks_per_row == 0 || grid_is_asked_for;
  const bool is_grid = may_be_grid && widen_to_grid(c, problem, device, blocks_per_row);
  if (grid_is_asked_for && c.blocks_per_row != blocks_per_row) {
    refuse_blocks(blocks_per_row, device);
  }
  c.grid_blocks = problem.rows * c.blocks_per_row;
  constexpr int64_t kMostBlocks = 0x7fffffff;  // that a launch may have
  if (c.grid_blocks > kMostBlocks) {
    throw std::invalid_argument("rows: expected at most " + std::to_string(kMostBlocks) +
                                " on a GPU, got " + std::to_string(problem.rows));
  }
  if (is_grid) {
    set_staging(c, kSomeEntries, share_of(problem, c), device);
    if (grid_is_asked_for) {
      c.reason = std::to_string(blocks_per_row) + " blocks per row: as asked for";
      return c;
    }
    c.reason = std::to_string(c.blocks_per_row / c.cluster_blocks) + " clusters of " +
               std::to_string(c.cluster_blocks) +
               " blocks per row: one would read it in more than " + std::to_string(steps_alone(c)) +
               " steps, and they are to be had for all rows";
    return c;
  }

  const int64_t share = share_of(problem, c);
  const int64_t per_vector = 16 / element_size(problem.dtype);
  c.vectors_per_thread = 1;
  while (c.vectors_per_thread * per_vector < kMaxElementsPerThread &&
         c.threads * c.vectors_per_thread * per_vector < share) {
    c.vectors_per_thread *= 2;
  }
  const int64_t of_thread = c.vectors_per_thread * per_vector;
  const bool resident = of_thread <= kMostResident && c.threads * of_thread >= share;
  const auto stage = [&](LaunchConfig& staged, int entries) {
    set_staging(staged, entries, share, device);
    staged.sample = sample_of(problem, staged, entries, staged.queue_bytes > 0);
  };
  stage(c, resident ? kResident : kManyEntries);
  if (!resident) {
    for (const int entries : {kSomeEntries, kFewEntries}) {
      LaunchConfig fewer = c;
      stage(fewer, entries);
      if (survivors_per_block(problem, fewer) <= c.threads * entries ||
          c.shared_bytes > device.shared_memory_per_block) {
        c = fewer;
      }
    }
  }

  if (blocks_per_row != 0) {
    c.reason = std::to_string(blocks_per_row) + (blocks_per_row == 1 ? " block" : " blocks") +
               " per row: as asked for";
  } else if (c.scope == Scope::kCluster) {
    c.reason = "one cluster of " + std::to_string(c.blocks_per_row) +
               " blocks per row: the most that all rows can have at once with " +
               std::to_string(least_of_block(c.blocks_per_row)) + " elements or more for each";
  } else if (problem.width <= most_alone(problem)) {
    c.reason = "one block per row: a row is too short to share";
  } else {
    c.reason = "one block per row: clusters for all rows do not fit on the GPU at once";
  }
  return c;
}

const char* scope_name(Scope scope) {
  switch (scope) {
    case Scope::kBlock:
      return "block";
    case Scope::kCluster:
      return "cluster";
    default:
      return "grid";
  }
}

}  // namespace tl_topk
