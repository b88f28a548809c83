#include "cpu/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>

namespace tl_topk {
namespace {

constexpr std::chrono::microseconds kPatience{10};

}  // namespace

// Lives on the stack of the thread that waits for it.
struct ThreadPool::Job {
  Job(int64_t parts_, int helpers, const void* context_, Call call_)
      : parts(parts_), context(context_), call(call_), wanted(helpers) {}

  const int64_t parts;
  const void* const context;
  const Call call;
  std::atomic<int64_t> next{0};

  int wanted;                  // workers that may still join
  int next_slot = 1;           // slot 0 is the caller's
  std::atomic<int> active{0};  // workers inside; written under the pool's mutex
  std::condition_variable left;
  Job* following = nullptr;

  void run_parts(int slot) {
    for (;;) {
      const int64_t part = next.fetch_add(1, std::memory_order_relaxed);
      if (part >= parts) return;
      call(context, part, slot);
    }
  }
};

ThreadPool::ThreadPool(int workers) {
  workers_.reserve(static_cast<size_t>(std::max(workers, 0)));
  // Signals are for the threads of the application: a worker inherits a mask that blocks all.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    for (int i = 0; i < workers; ++i) workers_.emplace_back([this] { work(); });
  } catch (const std::exception&) {
    // The system grants no more threads: those there, or the caller alone, do the work.
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stop_ || first_ != nullptr; });
    if (stop_) return;
    Job& job = *first_;
    const int slot = job.next_slot++;
    ++job.active;
    if (--job.wanted == 0) first_ = job.following;
    lock.unlock();
    job.run_parts(slot);
    lock.lock();
    // Notified under the lock: the caller takes it before it destroys the job.
    if (--job.active == 0) job.left.notify_one();
  }
}

void ThreadPool::run_job(int64_t parts, int threads, const void* context, Call call) {
  const auto helpers = static_cast<int>(
      std::min({static_cast<int64_t>(workers()), static_cast<int64_t>(threads) - 1, parts - 1}));
  Job job(parts, helpers, context, call);
  if (helpers <= 0) {
    job.run_parts(0);
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    job.following = first_;
    first_ = &job;
  }
  for (int i = 0; i < helpers; ++i) wake_.notify_one();
  job.run_parts(0);

  std::unique_lock<std::mutex> lock(mutex_);
  Job** link = &first_;
  while (*link != nullptr && *link != &job) link = &(*link)->following;
  if (*link == &job) *link = job.following;  // no worker joins any more
  lock.unlock();
  // The helpers are at their last parts: to sleep and be woken would take longer than they do.
  const auto patience = std::chrono::steady_clock::now() + kPatience;
  while (job.active.load() != 0 && std::chrono::steady_clock::now() < patience) {
  }
  lock.lock();
  job.left.wait(lock, [&job] { return job.active.load() == 0; });
}

int available_cores() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return CPU_COUNT(&allowed);
  return std::max(static_cast<int>(std::thread::hardware_concurrency()), 1);
}

namespace {

std::atomic<ThreadPool*> process_pool{nullptr};

// A child of fork() has none of its parent's threads: it forgets the pool, whose mutex may be
// locked for ever, and starts its own.
[[maybe_unused]] const int fork_handler =
    pthread_atfork(nullptr, nullptr, [] { process_pool.store(nullptr); });

}  // namespace

ThreadPool& shared_pool() {
  // Never destroyed: its threads may still be inside when the process exits.
  ThreadPool* pool = process_pool.load(std::memory_order_acquire);
  if (pool != nullptr) return *pool;
  ThreadPool* const fresh = new ThreadPool(available_cores() - 1);
  if (process_pool.compare_exchange_strong(pool, fresh, std::memory_order_acq_rel)) return *fresh;
  delete fresh;  // another thread was first
  return *pool;
}

}  // namespace tl_topk
