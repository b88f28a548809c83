#include "config.h"

#include <algorithm>
#include <stdexcept>

namespace tl_topk {
namespace {

constexpr int kEntryBytes = 8;
constexpr int kThreadsPerBlock = 512;
constexpr int64_t kMaxElementsPerThread = 16;  // in registers
constexpr int64_t kFewEntriesK = 2560;
constexpr int kMinElementsPerBlock = 2048;  // fewer, and meeting costs more than it saves

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

}  // namespace

LaunchConfig choose_launch(const Problem& problem, const DeviceFacts& device) {
  if (device.sms <= 0) throw std::invalid_argument("device: has no multiprocessors to launch on");
  LaunchConfig c;
  c.large_k = problem.k > kMaxFastK;
  c.blocks_per_row = choose_cluster(problem, device);
  c.scope = c.blocks_per_row > 1 ? Scope::kCluster : Scope::kBlock;
  c.grid_blocks = problem.rows * c.blocks_per_row;

  const int64_t share = (problem.width + c.blocks_per_row - 1) / c.blocks_per_row;
  const int64_t per_vector = 16 / element_size(problem.dtype);
  c.threads = kThreadsPerBlock;
  c.vectors_per_thread = 1;
  while (c.vectors_per_thread * per_vector < kMaxElementsPerThread &&
         c.threads * c.vectors_per_thread * per_vector < share) {
    c.vectors_per_thread *= 2;
  }

  // The floor admits about 1.7 k elements. A segment has room for half as many again, since no row
  // is spread quite evenly over its blocks, but not for more than the leader can hold.
  const int64_t k = std::min(problem.k, kMaxFastK);
  c.entries_per_thread = k <= kFewEntriesK ? kFewEntries : kManyEntries;
  const int64_t staged = std::max<int64_t>(5 * k / 2, 4096);
  c.segment_capacity = c.large_k
                           ? 0
                           : static_cast<int>(std::min<int64_t>(
                                 c.blocks_per_row == 1 ? staged : 3 * staged / 2 / c.blocks_per_row,
                                 c.threads / c.blocks_per_row * c.entries_per_thread));
  c.sort_entries =
      problem.order == Order::kAny || c.large_k
          ? 0
          : static_cast<int>(std::max<int64_t>(64, round_up_to_power_of_two(problem.k)));
  c.shared_bytes =
      kFixedSharedBytes +
      (static_cast<int64_t>(c.segment_capacity) * c.blocks_per_row + c.sort_entries) * kEntryBytes;
  c.reason = c.scope == Scope::kBlock
                 ? "one block per row: rows are short or as many as the GPU holds blocks"
                 : "one cluster of " + std::to_string(c.blocks_per_row) +
                       " blocks per row: the largest that all rows can have at once";
  return c;
}

const char* scope_name(Scope scope) { return scope == Scope::kBlock ? "block" : "cluster"; }

}  // namespace tl_topk
