// Scores of each dtype as float32, known by their bits.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "../key.h"
#include "../problem.h"

namespace tl_topk::lang {

template <Dtype D>
struct Element {
  using Raw = uint16_t;
  static constexpr Raw kSign = 0x8000u;
  static constexpr Raw kInf = D == Dtype::kFloat16 ? 0x7c00u : 0x7f80u;
  static __device__ __forceinline__ float widen(Raw raw) {
    if constexpr (D == Dtype::kFloat16) return __half2float(__ushort_as_half(raw));
    return __uint_as_float(widen_bfloat16(raw));
  }
  // Of a score of this dtype as float32: as it was, but for NaN.
  static __device__ __forceinline__ Raw narrow(float score) {
    if constexpr (D == Dtype::kFloat16) return __half_as_ushort(__float2half_rn(score));
    return static_cast<Raw>(__float_as_uint(score) >> 16);
  }
};

template <>
struct Element<Dtype::kFloat32> {
  using Raw = uint32_t;
  static constexpr Raw kSign = kSignBit;
  static constexpr Raw kInf = kInfBits;
  static __device__ __forceinline__ float widen(Raw raw) { return __uint_as_float(raw); }
  static __device__ __forceinline__ Raw narrow(float score) { return __float_as_uint(score); }
};

}  // namespace tl_topk::lang
