// Scores of each dtype as float32. Widening is exact, so all dtypes share one comparison.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "key.h"
#include "problem.h"

namespace tl_topk {

// `narrow` is exact for the numbers (not NaN) that `widen` gives.
template <Dtype D>
struct Element;

template <>
struct Element<Dtype::kFloat32> {
  using Raw = uint32_t;
  static constexpr int kPerVector = 4;
  static constexpr uint32_t kSigns = 0x80000000u;  // the sign bits of one 32-bit word
  static __device__ float widen(Raw raw) { return __uint_as_float(raw); }
  static __device__ Raw narrow(float x) { return __float_as_uint(x); }
  static __device__ void widen_word(uint32_t word, float* out) { out[0] = __uint_as_float(word); }
};

template <>
struct Element<Dtype::kFloat16> {
  using Raw = uint16_t;
  static constexpr int kPerVector = 8;
  static constexpr uint32_t kSigns = 0x80008000u;
  static __device__ float widen(Raw raw) { return __half2float(__ushort_as_half(raw)); }
  static __device__ Raw narrow(float x) { return __half_as_ushort(__float2half_rn(x)); }
  static __device__ void widen_word(uint32_t word, float* out) {
    out[0] = widen(static_cast<Raw>(word));
    out[1] = widen(static_cast<Raw>(word >> 16));
  }
};

template <>
struct Element<Dtype::kBFloat16> {
  using Raw = uint16_t;
  static constexpr int kPerVector = 8;
  static constexpr uint32_t kSigns = 0x80008000u;
  static __device__ float widen(Raw raw) { return __uint_as_float(widen_bfloat16(raw)); }
  static __device__ Raw narrow(float x) { return static_cast<Raw>(__float_as_uint(x) >> 16); }
  static __device__ void widen_word(uint32_t word, float* out) {
    out[0] = __uint_as_float(word << 16);
    out[1] = __uint_as_float(word & 0xffff0000u);
  }
};

// 16 bytes of scores, oriented by `flip` (0 or kSigns), as floats.
template <Dtype D>
__device__ __forceinline__ void widen_vector(uint4 v, uint32_t flip,
                                             float (&out)[Element<D>::kPerVector]) {
  constexpr int kPerWord = Element<D>::kPerVector / 4;
  Element<D>::widen_word(v.x ^ flip, out);
  Element<D>::widen_word(v.y ^ flip, out + kPerWord);
  Element<D>::widen_word(v.z ^ flip, out + 2 * kPerWord);
  Element<D>::widen_word(v.w ^ flip, out + 3 * kPerWord);
}

}  // namespace tl_topk
