// The contract's comparison and selection from first principles: doubles and standard algorithms,
// with nothing of the library's keys.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "problem.h"

namespace contract {

using tl_topk::Dtype;
using tl_topk::Order;

struct Format {
  int exponent_bits;
  int mantissa_bits;

  int bits() const { return 1 + exponent_bits + mantissa_bits; }
  uint32_t sign() const { return uint32_t{1} << (bits() - 1); }
  uint32_t infinity() const { return ((uint32_t{1} << exponent_bits) - 1) << mantissa_bits; }
};

inline Format format_of(Dtype dtype) {
  if (dtype == Dtype::kFloat32) return {8, 23};
  return dtype == Dtype::kFloat16 ? Format{5, 10} : Format{8, 7};
}

// What bits of a format mean, as IEEE 754 defines it.
inline double value_of(uint32_t bits, Format format) {
  const uint32_t field = (bits & ~format.sign()) >> format.mantissa_bits;
  const uint32_t mantissa = bits & ((uint32_t{1} << format.mantissa_bits) - 1);
  const int largest_field = (1 << format.exponent_bits) - 1;
  const int bias = largest_field / 2;
  double magnitude;
  if (static_cast<int>(field) == largest_field) {
    magnitude = mantissa == 0 ? std::numeric_limits<double>::infinity()
                              : std::numeric_limits<double>::quiet_NaN();
  } else if (field == 0) {
    magnitude = std::ldexp(mantissa, 1 - bias - format.mantissa_bits);
  } else {
    magnitude = std::ldexp(mantissa + (uint32_t{1} << format.mantissa_bits),
                           static_cast<int>(field) - bias - format.mantissa_bits);
  }
  return (bits & format.sign()) != 0 ? -magnitude : magnitude;
}

// Does a come strictly before b? Larger (smaller) value first, NaN last.
inline bool before(double a, double b, bool largest) {
  if (std::isnan(a) || std::isnan(b)) return !std::isnan(a) && std::isnan(b);
  return largest ? a > b : a < b;
}

// The slots of one row for order index or value; order any is returned as index.
inline std::vector<int32_t> select(const std::vector<double>& row, int64_t k, bool largest,
                                   Order order) {
  std::vector<int32_t> slots(row.size());
  std::iota(slots.begin(), slots.end(), 0);
  const auto comes_first = [&](int32_t a, int32_t b) {
    const double x = row[static_cast<size_t>(a)];
    const double y = row[static_cast<size_t>(b)];
    return before(x, y, largest) || (!before(y, x, largest) && a < b);
  };
  const auto end = slots.begin() + std::min(static_cast<int64_t>(row.size()), k);
  std::nth_element(slots.begin(), end, slots.end(), comes_first);
  slots.erase(end, slots.end());
  if (order == Order::kValue) {
    std::sort(slots.begin(), slots.end(), comes_first);
  } else {
    std::sort(slots.begin(), slots.end());
  }
  slots.resize(static_cast<size_t>(k), -1);
  return slots;
}

}  // namespace contract
