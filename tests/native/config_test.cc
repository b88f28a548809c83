// config.h: every problem gets a launch that its device can make.
#include "config.h"

#include <cstddef>
#include <cstring>
#include <stdexcept>

#include "check.h"
#include "sampling.h"

namespace {

using tl_topk::choose_launch;
using tl_topk::DeviceFacts;
using tl_topk::Dtype;
using tl_topk::LaunchConfig;
using tl_topk::Order;
using tl_topk::Problem;
using tl_topk::Scope;

const DeviceFacts kH200{90, 132, 232448, int64_t{60} << 20, {132, 66, 30, 15, 7}};
const DeviceFacts kA100{80, 108, 166912, int64_t{40} << 20, {108, 0, 0, 0, 0}};
const DeviceFacts kSmallMemory{120, 170, 101376, int64_t{96} << 20, {170, 85, 40, 18, 0}};

// Is the plan made for the sample that the configuration's kernel takes? With another the kernel is
// as exact, but slow.
bool plans_its_sample(const Problem& p, const LaunchConfig& c) {
  const auto per_vector = static_cast<uint32_t>(16 / tl_topk::element_size(p.dtype));
  const auto width = static_cast<uint32_t>(p.width);
  const auto k = static_cast<uint32_t>(p.k);
  const auto of_step = static_cast<uint32_t>(c.vectors_per_thread);
  const bool is_grid = c.scope == Scope::kGrid;
  const uint32_t loads = is_grid || c.queue_bytes > 0 ? 8 / per_vector : 1;
  const bool few_blocks =
      !is_grid && c.entries_per_thread == tl_topk::kSomeEntries && c.queue_bytes > 0;
  const uint32_t groups = few_blocks ? 128 : 64;
  tl_topk::SamplePlan plan = c.scope == Scope::kBlock
                                 ? tl_topk::plan_first_step(width, k, per_vector, of_step, 512)
                                 : tl_topk::plan_sample(width, k, per_vector, loads, 512, groups);
  plan.fit(p.order);
  constexpr size_t kFields = offsetof(tl_topk::SamplePlan, has_floor) + 1;
  static_assert(kFields == 10, "bytes without gaps");
  return std::memcmp(&plan, &c.sample, kFields) == 0;
}

void fits(const Problem& p, const DeviceFacts& device) {
  const LaunchConfig c = choose_launch(p, device);
  CHECK(c.cluster_blocks >= 1 && c.cluster_blocks <= 16);
  CHECK((c.scope == Scope::kBlock) == (c.blocks_per_row == 1));
  CHECK((c.scope == Scope::kGrid) == (c.blocks_per_row > c.cluster_blocks));
  CHECK(c.blocks_per_row % c.cluster_blocks == 0);
  CHECK(c.grid_blocks == p.rows * c.blocks_per_row);
  CHECK(c.shared_bytes <= device.shared_memory_per_block);
  // Room for pages takes no block of a multiprocessor its own.
  CHECK(c.page_words == 0 || (c.scope != Scope::kGrid && !c.large_k && p.order == Order::kAny));
  CHECK(c.shared_bytes + 4 * int64_t{c.page_words} <= device.shared_memory_per_block);
  CHECK((c.workspace_bytes > 0) == (c.scope == Scope::kGrid));
  CHECK(c.scope != Scope::kGrid || p.rows * 4 <= tl_topk::kCounterBytes);
  CHECK(!c.reason.empty());
  for (size_t i = 0; i < tl_topk::kClusterSizes.size(); ++i) {
    if (tl_topk::kClusterSizes[i] == c.cluster_blocks && c.cluster_blocks > 1) {
      CHECK(device.coresident_clusters[i] * c.cluster_blocks >= c.grid_blocks);
    }
  }
  CHECK(c.large_k == (p.k > tl_topk::kMaxFastK));
  if (c.large_k) return;
  CHECK(plans_its_sample(p, c));
  // What one step loads stays in registers only if it is the block's whole share.
  const int64_t a_step =
      int64_t{c.threads} * c.vectors_per_thread * 16 / tl_topk::element_size(p.dtype);
  if (c.entries_per_thread == tl_topk::kResident) CHECK(a_step * c.blocks_per_row >= p.width);
  CHECK(p.order == Order::kAny ? c.sort_entries == 0 : c.sort_entries >= p.k);
  // Steps are queued where there are several, and a kernel for it.
  const bool queued = c.queue_bytes > 0;
  CHECK(!queued || tl_topk::has_deep_queue(device.compute_capability));
  CHECK(!queued || c.queue_bytes == tl_topk::kQueueBytes);
  CHECK(!queued || c.scope == Scope::kGrid ||
        p.width > tl_topk::kElementsPerStep * c.blocks_per_row);
  CHECK(!queued || c.entries_per_thread == tl_topk::kFewEntries ||
        (c.entries_per_thread == tl_topk::kSomeEntries && c.scope != Scope::kBlock));
}

void every_problem_fits_every_device() {
  for (const DeviceFacts& device : {kH200, kA100, kSmallMemory}) {
    for (int64_t rows = 1; rows < 100000; rows = rows * 3 + 1) {
      for (int64_t width = 1; width <= tl_topk::kMaxWidth; width = width * 7 + 1) {
        for (const int64_t k : {0, 1, 31, 512, 2048, 3000, 4096, 4097, 1000000}) {
          for (const Order order : {Order::kAny, Order::kIndex, Order::kValue}) {
            for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBFloat16}) {
              Problem p;
              p.rows = rows;
              p.width = width;
              p.k = k;
              p.order = order;
              p.dtype = dtype;
              fits(p, device);
            }
          }
        }
      }
    }
  }
}

void rows_get_clusters_while_they_fit() {
  const auto blocks = [](int64_t rows, int64_t width, Order order = Order::kAny, int64_t k = 2048) {
    Problem p;
    p.rows = rows;
    p.width = width;
    p.k = k;
    p.order = order;
    return choose_launch(p, kH200).blocks_per_row;
  };
  CHECK(blocks(1, 4097) == 8);
  CHECK(blocks(1, 16384) == 8);
  CHECK(blocks(1, 32768) == 16);
  CHECK(blocks(16, 4097) == 4);
  CHECK(blocks(1, 65536) == 16);
  CHECK(blocks(16, 65536) == 4);
  CHECK(blocks(64, 65536) == 2);
  CHECK(blocks(4096, 65536) == 1);
  // Several clusters where one would take too long, and never more than fit.
  constexpr int64_t kAlone = 786432;
  CHECK(blocks(1, kAlone) == 16);
  CHECK(blocks(1, kAlone + 1) == 64);
  CHECK(blocks(1, 8388608) == 64);
  CHECK(blocks(2, 1048576) == 16);  // two clusters a row gain less
  CHECK(blocks(2, 1048577) == 32);
  CHECK(blocks(16, 4194304) == 4);
  // What one block counts whole it takes alone; in an order it guesses a floor, and shares more.
  for (const int64_t rows : {1, 16, 4096}) {
    for (const int64_t width : {1, 2048, 3000, 4096}) CHECK(blocks(rows, width) == 1);
    CHECK(blocks(rows, 4096, Order::kAny, 1) == 1);
    CHECK(blocks(rows, 4096, Order::kAny, 4096) == 1);
  }
  for (const Order order : {Order::kIndex, Order::kValue}) {
    CHECK(blocks(1, 2048, order) == 1);
    CHECK(blocks(1, 3000, order) == 4);
    CHECK(blocks(1, 4096, order) == 8);
    CHECK(blocks(16, 4096, order) == 4);
    CHECK(blocks(1, 4097, order) == 8);
  }
  CHECK(blocks(1, 4096, Order::kAny, 4097) == 8);  // by the kernel for large k
}

void short_rows_are_taken_at_once() {
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBFloat16}) {
    for (const int64_t width : {1, 2048, 2049, 4096, 4097}) {
      Problem p;
      p.rows = 1;
      p.width = width;
      p.k = 512;
      p.dtype = dtype;
      const LaunchConfig alone = choose_launch(p, kH200, 1);
      CHECK((alone.entries_per_thread == tl_topk::kResident) == (width <= 4096));
      const bool one_load = width <= (dtype == Dtype::kFloat32 ? 2048 : 4096);
      CHECK((alone.vectors_per_thread == 1) == one_load);
    }
  }
}

bool refuses(const Problem& p, const DeviceFacts& device, int64_t blocks_per_row = 0) {
  try {
    choose_launch(p, device, blocks_per_row);
  } catch (const std::invalid_argument&) {
    return true;
  }
  return false;
}

void mapped_launches_have_room_for_pages() {
  const auto words = [](int64_t rows, int64_t width, int64_t k, const DeviceFacts& device) {
    Problem p;
    p.rows = rows;
    p.width = width;
    p.k = k;
    return choose_launch(p, device).page_words;
  };
  for (const int64_t rows : {1, 64}) {
    for (const int64_t width : {3000, 65536, 262144}) {
      CHECK(words(rows, width, 2048, kH200) == tl_topk::kMostPageWords);
    }
  }
  CHECK(words(4096, 65536, 512, kH200) == tl_topk::kMostPageWords);
  CHECK(words(4096, 65536, 2048, kH200) == 0);  // two blocks share a multiprocessor: it is full
  CHECK(words(1, 65536, 5000, kH200) == 0);
  CHECK(words(1, 4194304, 2048, kH200) == 0);
  CHECK(words(1, 65536, 2048, kA100) == 0);  // it cannot copy them in bulk
}

void callers_may_ask_for_blocks() {
  Problem p;
  p.rows = 64;
  p.width = 65536;
  p.k = 2048;
  for (const int blocks : tl_topk::kClusterSizes) {
    const LaunchConfig c = choose_launch(p, kH200, blocks);
    CHECK(c.blocks_per_row == blocks);
    CHECK((c.scope == Scope::kCluster) == (blocks > 1));
    CHECK(c.grid_blocks == 64 * blocks);
    CHECK(c.shared_bytes <= kH200.shared_memory_per_block);
    CHECK(blocks == 1 ? !refuses(p, kA100, blocks) : refuses(p, kA100, blocks));
  }
  for (const int64_t blocks : {-1, 3, 32}) CHECK(refuses(p, kH200, blocks));
  p.rows = 1;
  p.width = 1 << 20;
  for (const int64_t blocks : {32, 64}) {
    const LaunchConfig c = choose_launch(p, kH200, blocks);
    CHECK(c.scope == Scope::kGrid && c.blocks_per_row == blocks && c.cluster_blocks == 16);
    CHECK(c.workspace_bytes > 0 && c.shared_bytes <= kH200.shared_memory_per_block);
  }
  for (const int64_t blocks : {48, 128, 1024}) CHECK(refuses(p, kH200, blocks));
  CHECK(refuses(p, kA100, 32));
  p.k = 5000;
  CHECK(refuses(p, kH200, 32));
}

void what_cannot_be_launched_is_refused() {
  Problem p;
  p.rows = int64_t{1} << 31;
  p.width = 1;
  p.k = 1;
  CHECK(refuses(p, kH200));
  p.rows = (int64_t{1} << 31) - 1;
  CHECK(!refuses(p, kH200));
  CHECK(refuses(p, DeviceFacts{}));
}

}  // namespace

int main() {
  every_problem_fits_every_device();
  rows_get_clusters_while_they_fit();
  short_rows_are_taken_at_once();
  mapped_launches_have_room_for_pages();
  callers_may_ask_for_blocks();
  what_cannot_be_launched_is_refused();
  return check::status();
}
