// A guess of what the k-th best element is at least, from a small sample of the row.
#pragma once

#include <cstdint>

#include "cpu/elements.h"

namespace tl_topk {

constexpr int64_t kMostSamples = 2048;

// A key that almost surely k elements of the row reach, and few more: kNanKey, which rejects
// nothing, where the row is too short to gain by it. `scratch` holds kMostSamples ranks. One
// element is drawn from each of many equal stretches, at a place in it that varies, so that no
// period of the data meets one of the sample. The places are fixed: the same row takes the same
// time.
template <class Element>
uint32_t sample_floor(const Row<Element>& row, int64_t k, uint64_t* scratch);

extern template uint32_t sample_floor(const Row<Float32>&, int64_t, uint64_t*);
extern template uint32_t sample_floor(const Row<Float16>&, int64_t, uint64_t*);
extern template uint32_t sample_floor(const Row<BFloat16>&, int64_t, uint64_t*);

}  // namespace tl_topk
