// One pass over a range of a row: what may be among the k best goes to a list, the rest is
// rejected by a vector compare.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "cpu/elements.h"

namespace tl_topk {

// A rank that k elements of the row are known to reach: what ranks below it is not selected.
// Scans of several ranges of one row share it.
class Bound {
 public:
  // Of the elements from index `begin` on, none with a key below this is selected.
  uint32_t floor_from(int64_t begin) const {
    const uint64_t rank = rank_.load(std::memory_order_relaxed);
    // Equal keys rank by index: behind the bound's own element, only larger keys count.
    return key_of_rank(rank) + (begin > static_cast<int64_t>(index_of_rank(rank)) ? 1 : 0);
  }
  void raise(uint64_t rank) {
    uint64_t seen = rank_.load(std::memory_order_relaxed);
    while (seen < rank && !rank_.compare_exchange_weak(seen, rank, std::memory_order_relaxed)) {
    }
  }

 private:
  std::atomic<uint64_t> rank_{0};
};

// The ranks that a scan admitted, by ascending index.
struct Candidates {
  uint64_t* ranks;
  int64_t capacity;
  int64_t count = 0;
};

constexpr int64_t kScanChunk = 4096;  // elements filtered at a time: they stay in the L1 cache

// Room that lets a scan of `length` elements run in linear time whatever they are: when the list is
// full, a selection of the k best makes room for k more at least, and for several chunks.
inline int64_t candidate_capacity(int64_t length, int64_t k) {
  const int64_t wanted = k + std::max(k, 4 * kScanChunk);
  return std::min(length, wanted);
}

// Fills `candidates` with elements of [begin, end), among them all that are among the row's k best,
// provided that k elements of the row have a key >= `floor`. `candidates` has the capacity named
// above for this range; `scratch` holds as many ranks.
template <class Element>
void scan(const Row<Element>& row, int64_t begin, int64_t end, int64_t k, uint32_t floor,
          Bound& bound, Candidates& candidates, uint64_t* scratch);

extern template void scan(const Row<Float32>&, int64_t, int64_t, int64_t, uint32_t, Bound&,
                          Candidates&, uint64_t*);
extern template void scan(const Row<Float16>&, int64_t, int64_t, int64_t, uint32_t, Bound&,
                          Candidates&, uint64_t*);
extern template void scan(const Row<BFloat16>&, int64_t, int64_t, int64_t, uint32_t, Bound&,
                          Candidates&, uint64_t*);

}  // namespace tl_topk
