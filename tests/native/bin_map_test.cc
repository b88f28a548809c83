// bin_map.h: monotone over all floats, whatever the anchors.
#include "bin_map.h"

#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>

#include "check.h"
#include "key.h"

namespace {

using tl_topk::BinMap;
using tl_topk::make_bin_map;

constexpr uint32_t kBins = 512;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

float float_of_key(uint32_t key) {
  const uint32_t bits = tl_topk::bits_of_key(key);
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// Walks through the floats from -inf to +inf, `stride` keys at a time.
void is_monotone(float low, float high, uint64_t stride) {
  const BinMap map = make_bin_map(low, high, kBins);
  const uint64_t last = 0xff800000u;  // the key of +inf
  uint32_t before = 0;
  for (uint64_t key = 0x007fffffu; key <= last; key += stride) {
    const uint32_t bin = map(float_of_key(static_cast<uint32_t>(key)));
    CHECK(bin < kBins);
    CHECK(bin >= before);
    before = bin;
  }
  CHECK(map(kInf) >= before);
  CHECK(map(kNan) == 0);
}

void is_monotone_for_all_anchors() {
  const float tiny = std::numeric_limits<float>::denorm_min();
  const float huge = std::numeric_limits<float>::max();
  const float anchors[] = {-kInf, -huge,       -100.0f, -1.0f,    -tiny, 0.0f, tiny,
                           1.0f,  1.00000012f, 100.0f,  65504.0f, huge,  kInf, kNan};
  for (const float low : anchors) {
    for (const float high : anchors) is_monotone(low, high, 65521);
  }
  is_monotone(1.9f, 4.1f, 61);
}

void spreads_between_the_anchors() {
  const BinMap map = make_bin_map(2.0f, 4.0f, kBins);
  CHECK(map(1.0f) == 0);
  CHECK(map(2.0f) == 0);
  CHECK(map(3.0f) == (kBins - 1) / 2);
  CHECK(map(4.0f) == kBins - 1);
  CHECK(map(1e30f) == kBins - 1);
}

void equal_or_infinite_anchors_share_one_bin() {
  for (const BinMap& map : {make_bin_map(1.0f, 1.0f, kBins), make_bin_map(2.0f, 1.0f, kBins),
                            make_bin_map(-kInf, 1.0f, kBins), make_bin_map(0.0f, kInf, kBins)}) {
    CHECK(map(-5.0f) == 0 && map(1.0f) == 0 && map(1e30f) == 0);
  }
}

}  // namespace

int main() {
  is_monotone_for_all_anchors();
  spreads_between_the_anchors();
  equal_or_infinite_anchors_share_one_bin();
  return check::status();
}
