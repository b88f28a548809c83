#include "cpu/sample.h"

#include <cmath>

#include "cpu/select.h"

namespace tl_topk {
namespace {

constexpr int64_t kLeastStretch = 4;  // a denser sample costs more than it saves
constexpr double kDeviations = 3.0;

}  // namespace

template <class Element>
uint32_t sample_floor(const Row<Element>& row, int64_t k, uint64_t* scratch) {
  if (row.length < kLeastStretch * kSamples) return kNanKey;
  // About `expected` samples are among the k best, give or take its square root.
  const double expected = static_cast<double>(k) * kSamples / static_cast<double>(row.length);
  const auto rank = static_cast<int64_t>(expected + kDeviations * (std::sqrt(expected) + 1.0)) + 1;
  if (rank > kSamples / 2) return kNanKey;

  uint32_t state = 0x9e3779b9u;
  int64_t begin = 0;
  for (int64_t i = 0; i < kSamples; ++i) {
    const int64_t end = (i + 1) * row.length / kSamples;
    state = state * 1664525u + 1013904223u;  // a linear congruence: its high bits are good enough
    const int64_t place = begin + ((static_cast<int64_t>(state >> 1) * (end - begin)) >> 31);
    scratch[i] = rank_key(row.key(place), static_cast<uint32_t>(i));
    begin = end;
  }
  return key_of_rank(kth_rank(scratch, kSamples, rank, scratch));
}

template uint32_t sample_floor(const Row<Float32>&, int64_t, uint64_t*);
template uint32_t sample_floor(const Row<Float16>&, int64_t, uint64_t*);
template uint32_t sample_floor(const Row<BFloat16>&, int64_t, uint64_t*);

}  // namespace tl_topk
