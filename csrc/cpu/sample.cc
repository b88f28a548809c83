#include "cpu/sample.h"

#include <algorithm>
#include <cmath>

#include "cpu/select.h"

namespace tl_topk {
namespace {

// A sample costs several times as much per element as the pass that it speeds up, and must be large
// enough to tell something.
constexpr int64_t kStretch = 8;
constexpr int64_t kLeastSamples = 32;
constexpr double kDeviations = 3.0;

}  // namespace

template <class Element>
uint32_t sample_floor(const Row<Element>& row, int64_t k, uint64_t* scratch) {
  const int64_t samples = std::min(row.length / kStretch, kMostSamples);
  if (samples < kLeastSamples) return kNanKey;
  // About `expected` samples are among the k best, give or take its square root.
  const double expected = static_cast<double>(k * samples) / static_cast<double>(row.length);
  const auto rank = static_cast<int64_t>(expected + kDeviations * (std::sqrt(expected) + 1.0)) + 1;
  if (rank > samples / 2) return kNanKey;

  uint32_t state = 0x9e3779b9u;
  const uint64_t stretch =
      (static_cast<uint64_t>(row.length) << 32) / static_cast<uint64_t>(samples);
  for (int64_t i = 0; i < samples; ++i) {
    state = state * 1664525u + 1013904223u;  // a linear congruence: its high bits are good enough
    const uint64_t offset = (stretch >> 32) * state + (((stretch & 0xffffffffu) * state) >> 32);
    const auto place = static_cast<int64_t>((static_cast<uint64_t>(i) * stretch + offset) >> 32);
    scratch[i] = rank_key(row.key(place), static_cast<uint32_t>(i));
  }
  return key_of_rank(kth_rank(scratch, samples, rank, scratch));
}

template uint32_t sample_floor(const Row<Float32>&, int64_t, uint64_t*);
template uint32_t sample_floor(const Row<Float16>&, int64_t, uint64_t*);
template uint32_t sample_floor(const Row<BFloat16>&, int64_t, uint64_t*);

}  // namespace tl_topk
