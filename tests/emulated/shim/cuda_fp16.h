// float16 for emulated device code.
#pragma once

#include "key.h"

struct __half {
  unsigned short bits;
};
inline __half __ushort_as_half(unsigned short bits) { return {bits}; }
inline float __half2float(__half half) {
  return __uint_as_float(tl_topk::widen_float16(half.bits));
}
inline unsigned short __half_as_ushort(__half half) { return half.bits; }
// Of a float32 that a half can hold.
inline __half __float2half_rn(float x) {
  const unsigned bits = __float_as_uint(x);
  const unsigned sign = bits >> 16 & 0x8000u;
  const unsigned exponent = bits >> 23 & 0xffu;
  if (exponent == 0xffu) return {static_cast<unsigned short>(sign | 0x7c00u)};
  if (exponent >= 113u) {
    return {static_cast<unsigned short>(sign | (exponent - 112u) << 10 | (bits >> 13 & 0x3ffu))};
  }
  const auto denormal = static_cast<unsigned>(std::fabs(x) * 16777216.0f);
  return {static_cast<unsigned short>(sign | denormal)};
}

// What TileLang calls the types of 16 bits.
struct half_t {
  unsigned short bits;
  explicit operator float() const { return __uint_as_float(tl_topk::widen_float16(bits)); }
};
struct bfloat16_t {
  unsigned short bits;
  explicit operator float() const { return __uint_as_float(tl_topk::widen_bfloat16(bits)); }
};
