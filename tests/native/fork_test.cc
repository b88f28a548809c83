// A child of fork() has no pool threads, and must not wait for them.
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "check.h"
#include "cpu/topk_cpu.h"

namespace {

constexpr int64_t kWidth = 1 << 19;
constexpr int64_t kK = 100;

bool selects_the_last(const std::vector<float>& ascending) {
  std::vector<int32_t> indices(kK);
  tl_topk::TopKArgs args;
  args.problem = {1, kWidth, kK, tl_topk::Dtype::kFloat32, tl_topk::Order::kIndex, true, false};
  args.scores = ascending.data();
  args.scores_stride = kWidth;
  args.indices = indices.data();
  args.indices_stride = kK;
  tl_topk::topk_cpu(args, 0);
  for (int64_t j = 0; j < kK; ++j) {
    if (indices[static_cast<size_t>(j)] != kWidth - kK + j) return false;
  }
  return true;
}

bool child_succeeds(const std::vector<float>& scores) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // a hang ends as a failure
    const bool right = selects_the_last(scores) && selects_the_last(scores);
    _exit(right ? EXIT_SUCCESS : EXIT_FAILURE);
  }
  int status = -1;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) &&
         WEXITSTATUS(status) == EXIT_SUCCESS;
}

}  // namespace

int main() {
  std::vector<float> scores(kWidth);
  for (int64_t i = 0; i < kWidth; ++i) scores[static_cast<size_t>(i)] = static_cast<float>(i);
  CHECK(selects_the_last(scores));

  // Forked while another thread is using the pool, so that its mutex may be held.
  std::atomic<bool> stop{false};
  std::thread user([&] {
    while (!stop.load()) CHECK(selects_the_last(scores));
  });
  for (int i = 0; i < 20; ++i) CHECK(child_succeeds(scores));
  stop.store(true);
  user.join();
  CHECK(selects_the_last(scores));
  return check::status();
}
