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
