#include "config.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace tl_topk {
namespace {

constexpr int kEntryBytes = 8;
constexpr int kThreadsPerBlock = 512;
constexpr int64_t kMaxElementsPerThread = 16;  // in registers
constexpr int kMostResident = 8;               // elements a thread; more are better listed
constexpr int kMinElementsPerBlock = 2048;     // fewer, and meeting costs more than it saves

int64_t round_up_to_power_of_two(int64_t x) {
  int64_t p = 1;
  while (p < x) p *= 2;
  return p;
}

// The largest cluster that still gives every row its own one at once, and every block enough to do.
int choose_cluster(const Problem& problem, const DeviceFacts& device) {
  int best = 1;
  for (size_t i = 0; i < kClusterSizes.size(); ++i) {
    const int size = kClusterSizes[i];
    const bool all_rows_at_once = device.coresident_clusters[i] >= problem.rows;
    if (all_rows_at_once && problem.width >= static_cast<int64_t>(size) * kMinElementsPerBlock) {
      best = size;
    }
  }
  return best;
}

// `blocks_per_row`, asked for by the caller, if the device can have as many.
int checked_blocks(int64_t blocks_per_row, const DeviceFacts& device) {
  std::string allowed = "0";
  for (size_t i = 0; i < kClusterSizes.size(); ++i) {
    if (device.coresident_clusters[i] == 0) continue;
    if (kClusterSizes[i] == blocks_per_row) return kClusterSizes[i];
    allowed += ", " + std::to_string(kClusterSizes[i]);
  }
  throw std::invalid_argument("blocks_per_row: expected one of " + allowed +
                              " on this device, got " + std::to_string(blocks_per_row));
}

// The most survivors a block is likely to have.
double survivors_per_block(const Problem& problem, const LaunchConfig& c) {
  constexpr double kDeviations = 3.5;  // over all blocks of a launch
  const double share = static_cast<double>(problem.width) / c.blocks_per_row;
  const double passing = share * admitted_share(c.sample, kDeviations);
  return std::min(share, passing + kDeviations * std::sqrt(passing));
}

// Room for the survivors, and for the sort.
void set_staging(LaunchConfig& c, int entries_per_thread) {
  c.entries_per_thread = entries_per_thread;
  const int held = entries_per_thread == kResident ? kMostResident : entries_per_thread;
  const int listed = c.large_k ? 0 : c.threads * held;
  c.shared_bytes =
      kFixedSharedBytes +
      static_cast<int64_t>(std::max(listed, c.sort_entries) + c.sort_entries) * kEntryBytes;
}

}  // namespace

LaunchConfig choose_launch(const Problem& problem, const DeviceFacts& device,
                           int64_t blocks_per_row) {
  if (device.sms <= 0) throw std::invalid_argument("device: has no multiprocessors to launch on");
  LaunchConfig c;
  c.large_k = problem.k > kMaxFastK;
  c.blocks_per_row = blocks_per_row == 0 ? choose_cluster(problem, device)
                                         : checked_blocks(blocks_per_row, device);
  c.scope = c.blocks_per_row > 1 ? Scope::kCluster : Scope::kBlock;
  c.grid_blocks = problem.rows * c.blocks_per_row;
  constexpr int64_t kMostBlocks = 0x7fffffff;  // that a launch may have
  if (c.grid_blocks > kMostBlocks) {
    throw std::invalid_argument("rows: expected at most " + std::to_string(kMostBlocks) +
                                " on a GPU, got " + std::to_string(problem.rows));
  }

  const int64_t share = (problem.width + c.blocks_per_row - 1) / c.blocks_per_row;
  const int64_t per_vector = 16 / element_size(problem.dtype);
  c.threads = kThreadsPerBlock;
  c.vectors_per_thread = 1;
  while (c.vectors_per_thread * per_vector < kMaxElementsPerThread &&
         c.threads * c.vectors_per_thread * per_vector < share) {
    c.vectors_per_thread *= 2;
  }

  c.sample =
      plan_sample(static_cast<uint32_t>(problem.width), static_cast<uint32_t>(problem.k),
                  static_cast<uint32_t>(per_vector), static_cast<uint32_t>(c.vectors_per_thread),
                  static_cast<uint32_t>(c.threads), static_cast<uint32_t>(c.blocks_per_row));

  c.sort_entries = problem.order == Order::kAny || c.large_k
                       ? 0
                       : static_cast<int>(std::max<int64_t>(kThreadsPerBlock,
                                                            round_up_to_power_of_two(problem.k)));
  if (c.vectors_per_thread * per_vector <= kMostResident &&
      c.threads * c.vectors_per_thread * per_vector >= share) {
    set_staging(c, kResident);
  } else {
    const double survivors = survivors_per_block(problem, c);
    set_staging(c, kManyEntries);
    for (const int entries : {kSomeEntries, kFewEntries}) {
      if (survivors <= c.threads * entries || c.shared_bytes > device.shared_memory_per_block) {
        set_staging(c, entries);
      }
    }
  }

  if (blocks_per_row != 0) {
    c.reason = std::to_string(blocks_per_row) + (blocks_per_row == 1 ? " block" : " blocks") +
               " per row: as asked for";
  } else if (c.scope == Scope::kCluster) {
    c.reason = "one cluster of " + std::to_string(c.blocks_per_row) +
               " blocks per row: the most that all rows can have at once with " +
               std::to_string(kMinElementsPerBlock) + " elements or more for each";
  } else if (problem.width < 2 * kMinElementsPerBlock) {
    c.reason = "one block per row: a row is too short to share";
  } else {
    c.reason = "one block per row: clusters for all rows do not fit on the GPU at once";
  }
  return c;
}

const char* scope_name(Scope scope) { return scope == Scope::kBlock ? "block" : "cluster"; }

}  // namespace tl_topk
