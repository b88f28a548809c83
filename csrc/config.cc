#include "config.h"

#include <algorithm>
#include <stdexcept>

namespace tl_topk {
namespace {

constexpr int kEntryBytes = 8;
constexpr int kMinElementsPerBlock = 2048;  // fewer and the exchange costs more than it saves

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
  const int per_vector = 16 / element_size(problem.dtype);
  c.threads = share > 8192 ? 1024 : 512;
  c.vectors_per_thread = 1;
  while (c.vectors_per_thread < 4 &&
         static_cast<int64_t>(c.threads) * c.vectors_per_thread * per_vector < share) {
    c.vectors_per_thread *= 2;
  }

  const int64_t staged = std::max<int64_t>(3 * std::min(problem.k, kMaxFastK), 4096);
  c.segment_capacity =
      static_cast<int>(c.blocks_per_row == 1 ? staged : 2 * staged / c.blocks_per_row);
  c.sort_entries = problem.order == Order::kAny || c.large_k
                       ? 0
                       : static_cast<int>(std::max<int64_t>(64, round_up_to_power_of_two(problem.k)));
  c.shared_bytes = kFixedSharedBytes +
                   (static_cast<int64_t>(c.segment_capacity) * c.blocks_per_row + c.sort_entries) *
                       kEntryBytes;
  c.reason = c.scope == Scope::kBlock
                 ? "one block per row: rows are short or as many as the GPU holds blocks"
                 : "one cluster of " + std::to_string(c.blocks_per_row) +
                       " blocks per row: the largest that all rows can have at once";
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
