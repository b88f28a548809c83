// Threads that help a caller with the parts of one job.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace tl_topk {

class ThreadPool {
 public:
  // Starts `workers` threads, or as many of them as the system grants.
  explicit ThreadPool(int workers);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int workers() const { return static_cast<int>(workers_.size()); }

  // Calls body(part, slot) once for each part in [0, parts), on the calling thread and at most
  // `threads - 1` workers; returns when all calls have. Calls of one slot, 0 <= slot < threads, do
  // not overlap: a slot may own scratch memory. `body` must not throw. Several threads may call
  // run() at once and share the workers; body must not call it.
  template <class Body>
  void run(int64_t parts, int threads, const Body& body) {
    run_job(parts, threads, &body, [](const void* context, int64_t part, int slot) noexcept {
      (*static_cast<const Body*>(context))(part, slot);
    });
  }

 private:
  using Call = void (*)(const void* context, int64_t part, int slot) noexcept;
  struct Job;

  void run_job(int64_t parts, int threads, const void* context, Call call);
  void work();

  std::mutex mutex_;  // guards all below but workers_, and the jobs' own counts
  std::condition_variable wake_;
  Job* first_ = nullptr;  // the jobs that still want a worker, newest first
  bool stop_ = false;
  std::vector<std::thread> workers_;
};

// As many threads as this process may run at once.
int available_cores();

// The pool of this process, one worker fewer than available_cores(), started on first use. A child
// made by fork() gets its own: threads are not inherited.
ThreadPool& shared_pool();

}  // namespace tl_topk
