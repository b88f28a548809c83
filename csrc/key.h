// The order of the contract as unsigned integers: larger key, better element.
//
// Keys are computed on bit patterns, never with float arithmetic, so no compiler may rewrite them
// into an operation that canonicalises NaN or flushes denormals.
#pragma once

#include <cstdint>

#include "host_device.h"

namespace tl_topk {

constexpr uint32_t kSignBit = 0x80000000u;
constexpr uint32_t kInfBits = 0x7f800000u;
constexpr uint32_t kNanKey = 0;  // below every number: the key of -inf is 0x007fffff

// `bits` as they stand for largest=True, negated for largest=False: afterwards both mean "largest".
TL_TOPK_HD uint32_t orient(uint32_t bits, bool largest) { return largest ? bits : bits ^ kSignBit; }

// Order-preserving key of an oriented float32: NaN first, then -inf .. +inf; -0 and +0 are equal.
TL_TOPK_HD uint32_t order_key(uint32_t oriented_bits) {
  const uint32_t magnitude = oriented_bits & ~kSignBit;
  if (magnitude > kInfBits) return kNanKey;
  if (magnitude == 0) return kSignBit;
  // No branch on the sign: it would be mispredicted for half the elements of a row.
  return oriented_bits ^
         (static_cast<uint32_t>(static_cast<int32_t>(oriented_bits) >> 31) | kSignBit);
}

// The same for a float32 that is known not to be NaN, where -0 may rank just below +0.
TL_TOPK_HD uint32_t order_key_of_number(uint32_t bits) {
  return bits ^ (static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31) | kSignBit);
}

// The inverse of order_key for every key of a number (kNanKey gives a NaN, zeros give +0).
TL_TOPK_HD uint32_t bits_of_key(uint32_t key) {
  return (key & kSignBit) != 0 ? key ^ kSignBit : ~key;
}

// Value and position in one integer: larger value first, equal values by lower index. All ranks of
// a row are distinct, so ties need no special case anywhere.
TL_TOPK_HD uint64_t rank_key(uint32_t key, uint32_t index) {
  return (static_cast<uint64_t>(key) << 32) | (0xffffffffu - index);
}
TL_TOPK_HD uint32_t key_of_rank(uint64_t rank) { return static_cast<uint32_t>(rank >> 32); }
TL_TOPK_HD uint32_t index_of_rank(uint64_t rank) {
  return 0xffffffffu - static_cast<uint32_t>(rank);
}

// Widening to float32 is exact and keeps the order, so all dtypes share one key.
TL_TOPK_HD uint32_t widen_bfloat16(uint16_t bits) { return static_cast<uint32_t>(bits) << 16; }

TL_TOPK_HD uint32_t widen_float16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1fu) return sign | kInfBits | (mantissa << 13);
  if (exponent != 0) return sign | ((exponent + 112u) << 23) | (mantissa << 13);
  if (mantissa == 0) return sign;
  // A denormal: shift the leading one out of the mantissa and count it into the exponent.
  uint32_t shift = 0;
  uint32_t m = mantissa;
  while ((m & 0x400u) == 0) {
    m <<= 1;
    ++shift;
  }
  return sign | ((113u - shift) << 23) | ((m & 0x3ffu) << 13);
}

}  // namespace tl_topk
