// The vector compare of the scan: which of 64 elements lie in a band, as one 64-bit mask.
//
// Floats are compared as integers: with the magnitude of the negative ones inverted, the bits of
// a float, taken as a signed integer, are ordered as the numbers are. NaNs lie beyond both
// infinities, so a band that ends there excludes them; and no rounding mode, flush-to-zero setting
// or compiler option can change the result.
#pragma once

#include <cstdint>

namespace tl_topk {

template <class Lane>
struct Band {
  Lane flip;  // xored to each element first: its sign bit when the smallest are wanted
  Lane low;   // the band, both ends included, in the ordered form
  Lane high;
};
using Band32 = Band<int32_t>;
using Band16 = Band<int16_t>;

// The ordered form of float bits. It is its own inverse.
inline int32_t ordered_form(int32_t bits) { return bits ^ ((bits >> 31) & 0x7fffffff); }
inline int16_t ordered_form(int16_t bits) {
  return static_cast<int16_t>(bits ^ ((bits >> 15) & 0x7fff));
}

// Bit j of masks[w] tells whether element 64 * w + j, of `64 * words` in all, lies in the band.
// `elements` need no alignment.
struct FilterKernel {
  const char* name;
  void (*filter32)(const void* elements, int words, Band32 band, uint64_t* masks);
  void (*filter16)(const void* elements, int words, Band16 band, uint64_t* masks);
};

// One for each instruction set, null where this machine lacks it.
const FilterKernel* filter_avx512();
const FilterKernel* filter_avx2();
const FilterKernel* filter_neon();
const FilterKernel* filter_scalar();

// The widest this machine has, chosen once.
const FilterKernel& filter_kernel();

}  // namespace tl_topk
