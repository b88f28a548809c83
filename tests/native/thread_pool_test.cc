// cpu/thread_pool.h: every part once, slots without overlap, many callers at once.
#include "cpu/thread_pool.h"

#include <atomic>
#include <thread>
#include <vector>

#include "check.h"

namespace {

using tl_topk::ThreadPool;

void each_part_runs_once(ThreadPool& pool, int64_t parts, int threads) {
  std::vector<std::atomic<int>> runs(static_cast<size_t>(parts));
  std::vector<std::atomic<bool>> busy(static_cast<size_t>(threads));
  int64_t plain_sum[16] = {};  // by slot, not atomic: calls of one slot must not overlap
  pool.run(parts, threads, [&](int64_t part, int slot) {
    CHECK(slot >= 0 && slot < threads);
    CHECK(!busy[static_cast<size_t>(slot)].exchange(true));
    runs[static_cast<size_t>(part)].fetch_add(1);
    plain_sum[slot] += part;
    busy[static_cast<size_t>(slot)].store(false);
  });
  for (const std::atomic<int>& count : runs) CHECK(count.load() == 1);
  int64_t sum = 0;
  for (const int64_t share : plain_sum) sum += share;
  CHECK(sum == parts * (parts - 1) / 2);
}

void jobs_of_all_sizes(ThreadPool& pool) {
  for (const int64_t parts : {0, 1, 2, 3, 7, 300}) {
    for (const int threads : {1, 2, 3, 8}) {
      for (int repeat = 0; repeat < 10; ++repeat) each_part_runs_once(pool, parts, threads);
    }
  }
}

void callers_share_a_pool(ThreadPool& pool) {
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) callers.emplace_back([&pool] { jobs_of_all_sizes(pool); });
  for (std::thread& caller : callers) caller.join();
}

void process_pool_is_one() {
  std::atomic<ThreadPool*> seen[4] = {};
  std::vector<std::thread> callers;
  for (std::atomic<ThreadPool*>& pool : seen) {
    callers.emplace_back([&pool] { pool.store(&tl_topk::shared_pool()); });
  }
  for (std::thread& caller : callers) caller.join();
  for (const std::atomic<ThreadPool*>& pool : seen) CHECK(pool.load() == seen[0].load());
  CHECK(tl_topk::shared_pool().workers() <= tl_topk::available_cores() - 1);
}

}  // namespace

int main() {
  process_pool_is_one();
  for (const int workers : {0, 1, 3}) {
    ThreadPool pool(workers);
    CHECK(pool.workers() == workers);
    jobs_of_all_sizes(pool);
    callers_share_a_pool(pool);
  }
  for (int i = 0; i < 50; ++i) ThreadPool short_lived(2);  // idle from start to end
  return check::status();
}
