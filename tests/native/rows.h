// Rows of scores, from ordinary to hostile, as bits of any of the formats.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "contract.h"

namespace rows {

enum class Pattern {
  kNormal,
  kAnyBits,
  kAllEqual,
  kZerosOfBothSigns,
  kTwoValues,
  kPeriodic,
  kAscending,
  kDescending,
  kMostlyNan,
  kAllNan,
  kInfinities,
  kMostlyInfinity,
  kDenormal,
  kOneBinade,
  kOutlier,
  kPlateauOfZeros,
  kWinnersLast,
};
constexpr Pattern kPatterns[] = {
    Pattern::kNormal,      Pattern::kAnyBits,   Pattern::kAllEqual,   Pattern::kZerosOfBothSigns,
    Pattern::kTwoValues,   Pattern::kPeriodic,  Pattern::kAscending,  Pattern::kDescending,
    Pattern::kMostlyNan,   Pattern::kAllNan,    Pattern::kInfinities, Pattern::kMostlyInfinity,
    Pattern::kDenormal,    Pattern::kOneBinade, Pattern::kOutlier,    Pattern::kPlateauOfZeros,
    Pattern::kWinnersLast,
};
constexpr size_t kPatternCount = sizeof kPatterns / sizeof kPatterns[0];

inline std::vector<uint32_t> make(Pattern pattern, int64_t width, contract::Format format,
                                  std::mt19937& random) {
  const uint32_t sign = format.sign();
  const uint32_t infinity = format.infinity();
  const uint32_t mantissa_mask = (uint32_t{1} << format.mantissa_bits) - 1;
  const uint32_t one = (infinity >> 1) & ~mantissa_mask;  // 1.0
  const uint32_t quiet_nan = infinity | (mantissa_mask + 1) >> 1;

  const auto any_sign = [&] { return random() % 2 == 0 ? 0 : sign; };
  const auto any_mantissa = [&] { return static_cast<uint32_t>(random()) & mantissa_mask; };
  // Magnitudes below 4, halving in frequency with the exponent: most of a normal's shape.
  const auto ordinary = [&] {
    uint32_t bits = one + mantissa_mask + 1;
    while (random() % 2 == 0 && bits > mantissa_mask + 1) bits -= mantissa_mask + 1;
    return any_sign() | bits | any_mantissa();
  };
  // Number n of the ascending numbers from -1.0 on.
  const auto counted = [&](int64_t n) {
    const int64_t from_zero = n - static_cast<int64_t>(one);
    const auto bits = static_cast<uint32_t>(from_zero < 0 ? -from_zero : from_zero);
    return from_zero < 0 ? sign | bits : std::min(bits, infinity);
  };

  std::vector<uint32_t> row;
  for (int64_t i = 0; i < width; ++i) {
    const auto n = static_cast<uint32_t>(i);
    const auto bits = [&]() -> uint32_t {
      switch (pattern) {
        case Pattern::kNormal:
          return ordinary();
        case Pattern::kAnyBits:
          return static_cast<uint32_t>(random()) & (sign | (sign - 1));
        case Pattern::kAllEqual:
          return one;
        case Pattern::kZerosOfBothSigns:
          return random() % 50 == 0 ? any_sign() | 1 : any_sign();
        case Pattern::kTwoValues:
          return random() % 2 == 0 ? one : one | sign;
        case Pattern::kPeriodic:
          return one + n % 64;
        case Pattern::kAscending:
          return counted(i);
        case Pattern::kDescending:
          return counted(width - i);
        case Pattern::kMostlyNan:
          return random() % 100 == 0 ? ordinary() : any_sign() | quiet_nan | n % 3;
        case Pattern::kAllNan:
          return any_sign() | quiet_nan;
        case Pattern::kInfinities:
          return any_sign() | infinity;
        case Pattern::kMostlyInfinity:
          return random() % 10 == 0 ? ordinary() : infinity;
        case Pattern::kDenormal:
          return any_sign() | any_mantissa();
        case Pattern::kOneBinade:
          return one | any_mantissa() / 4;
        case Pattern::kOutlier:
          return i == width / 3 ? infinity - 1 : ordinary();
        case Pattern::kPlateauOfZeros: {
          const uint32_t other = ordinary();
          return (other & sign) != 0 ? 0 : other;
        }
        case Pattern::kWinnersLast:
          return i >= width - 100 ? one + 3 * (mantissa_mask + 1) + n % 64 : ordinary();
      }
      return 0;
    };
    row.push_back(bits());
  }
  return row;
}

}  // namespace rows
