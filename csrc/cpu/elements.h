// The three score types, and a row of one of them.
#pragma once

#include <cstdint>
#include <cstring>

#include "key.h"
#include "problem.h"

namespace tl_topk {

struct Float32 {
  using Bits = uint32_t;
  static constexpr Bits kInfinity = kInfBits;
  static uint32_t widen(Bits bits) { return bits; }
};

struct Float16 {
  using Bits = uint16_t;
  static constexpr Bits kInfinity = 0x7c00;
  static uint32_t widen(Bits bits) { return widen_float16(bits); }
};

struct BFloat16 {
  using Bits = uint16_t;
  static constexpr Bits kInfinity = 0x7f80;
  static uint32_t widen(Bits bits) { return widen_bfloat16(bits); }
};

template <class Element>
constexpr typename Element::Bits kSignOf = static_cast<typename Element::Bits>(
    typename Element::Bits{1} << (8 * sizeof(typename Element::Bits) - 1));

// What fills a slot without an element: the value that no element ranks behind, save NaN.
template <class Element>
typename Element::Bits padding_bits(bool largest) {
  return static_cast<typename Element::Bits>(Element::kInfinity | (largest ? kSignOf<Element> : 0));
}

// The elements of one row that take part. Loads go through memcpy: a base need not be aligned.
template <class Element>
struct Row {
  using Bits = typename Element::Bits;

  const char* data;
  int64_t length;
  bool largest;

  const char* at(int64_t i) const { return data + i * static_cast<int64_t>(sizeof(Bits)); }
  Bits bits(int64_t i) const {
    Bits bits;
    std::memcpy(&bits, at(i), sizeof bits);
    return bits;
  }
  uint32_t key(int64_t i) const { return order_key(orient(Element::widen(bits(i)), largest)); }
  uint64_t rank(int64_t i) const { return rank_key(key(i), static_cast<uint32_t>(i)); }
};

}  // namespace tl_topk
