// A check that says where it failed, and an exit status that says whether any did.
#pragma once

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace check {

inline std::atomic<int> failures{0};

inline void fail(const char* file, int line, const char* expression) {
  constexpr int kMostReported = 20;
  const int seen = failures.fetch_add(1);
  if (seen < kMostReported) std::fprintf(stderr, "%s:%d: %s\n", file, line, expression);
}

inline int status() {
  const int count = failures.load();
  if (count != 0) std::fprintf(stderr, "%d checks failed\n", count);
  return count == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace check

#define CHECK(...) \
  ((__VA_ARGS__) ? static_cast<void>(0) : check::fail(__FILE__, __LINE__, #__VA_ARGS__))
