// float16 for emulated kernels.
#pragma once

#include "key.h"

struct __half {
  unsigned short bits;
};
inline __half __ushort_as_half(unsigned short bits) { return {bits}; }
inline unsigned short __half_as_ushort(__half half) { return half.bits; }
inline float __half2float(__half half) {
  return __uint_as_float(tl_topk::widen_float16(half.bits));
}
// Of what a float16 was widened to: exact.
inline __half __float2half_rn(float x) {
  const _Float16 narrow = static_cast<_Float16>(x);
  return {with_bits_of<unsigned short>(narrow)};
}
