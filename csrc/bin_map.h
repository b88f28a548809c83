// The linear bin map: scores between two anchors spread evenly over bins.
//
// Real scores crowd into few of a float's exponents, so its top bits make poor bins. An affine map
// between anchors near the threshold spreads them evenly. All that exactness needs is that the map
// is monotone: x >= y implies bin(x) >= bin(y). One fused multiply-add rounds once, and rounding,
// floor and clamping are monotone, so it is, for any finite scale >= 0.
#pragma once

#include <cmath>
#include <cstdint>

#include "host_device.h"

namespace tl_topk {

struct BinMap {
  float scale;
  float shift;
  uint32_t last;  // bins are 0 .. last

  TL_TOPK_HD uint32_t operator()(float x) const {
    const float position = fmaf(x, scale, shift);
#ifdef __CUDA_ARCH__
    const uint32_t bin = __float2uint_rz(position);  // saturates: below 0 and NaN give 0
#else
    const uint32_t bin = !(position > 0.0f)          ? 0
                         : position >= 4294967296.0f ? 0xffffffffu
                                                     : static_cast<uint32_t>(position);
#endif
    return bin < last ? bin : last;
  }
};

// Bin 0 begins at `low`, bin `bins - 1` at `high`. Anchors that give no usable scale (equal,
// infinite, too close) put everything into bin 0.
TL_TOPK_HD BinMap make_bin_map(float low, float high, uint32_t bins) {
#ifdef __CUDA_ARCH__
  const float scale = __fdividef(static_cast<float>(bins - 1), high - low);  // any slope will do
#else
  const float scale = static_cast<float>(bins - 1) / (high - low);
#endif
  const float shift = -low * scale;
  // An infinite scale makes the shift infinite or NaN, and one that is NaN passes no comparison.
  const bool usable = scale >= 0.0f && fabsf(shift) < INFINITY;
  return usable ? BinMap{scale, shift, bins - 1} : BinMap{0.0f, 0.0f, bins - 1};
}

}  // namespace tl_topk
