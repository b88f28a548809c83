// Memory that a thread keeps from call to call, so that a call in steady state allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace tl_topk {

class ScratchMemory {
 public:
  // At least `count` integers of any content, valid until the next call or release_excess().
  uint64_t* reserve(int64_t count) {
    if (count > size_) {
      memory_.reset();
      size_ = 0;
      memory_.reset(new uint64_t[static_cast<size_t>(count)]);
      size_ = count;
    }
    return memory_.get();
  }

  // Gives back what only an unusual call (a very large k) needs.
  void release_excess() {
    if (size_ <= kKept) return;
    memory_.reset();
    size_ = 0;
  }

 private:
  static constexpr int64_t kKept = int64_t{16} << 20;  // 128 MiB, of which few are touched

  std::unique_ptr<uint64_t[]> memory_;
  int64_t size_ = 0;
};

}  // namespace tl_topk
