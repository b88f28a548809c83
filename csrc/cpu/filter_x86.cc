// AVX-512 and AVX2 forms of the filter. The functions carry their own target, so that the file
// needs no compiler flag and the library runs on any x86-64.
#include "cpu/filter.h"

#if defined(__x86_64__)

#include <immintrin.h>

namespace tl_topk {
namespace {

#define TL_TOPK_AVX512 __attribute__((target("avx512f,avx512bw")))
#define TL_TOPK_AVX2 __attribute__((target("avx2")))

TL_TOPK_AVX512 void filter32_avx512(const void* elements, int words, Band32 band, uint64_t* masks) {
  const char* data = static_cast<const char*>(elements);
  const __m512i zero = _mm512_setzero_si512();
  const __m512i mirror = _mm512_set1_epi32(0x7fffffff);  // minus x: the magnitude inverted
  const __m512i flip = _mm512_set1_epi32(band.flip);
  const __m512i low = _mm512_set1_epi32(band.low);
  const __m512i high = _mm512_set1_epi32(band.high);
  for (int w = 0; w < words; ++w) {
    uint64_t mask = 0;
    for (int part = 0; part < 4; ++part, data += 64) {
      const __m512i x = _mm512_xor_si512(_mm512_loadu_si512(data), flip);
      const __mmask16 negative = _mm512_cmplt_epi32_mask(x, zero);
      const __m512i ordered = _mm512_mask_sub_epi32(x, negative, mirror, x);
      const __mmask16 reaches = _mm512_cmpge_epi32_mask(ordered, low);
      const __mmask16 admitted = _mm512_mask_cmple_epi32_mask(reaches, ordered, high);
      mask |= static_cast<uint64_t>(admitted) << (16 * part);
    }
    masks[w] = mask;
  }
}

TL_TOPK_AVX512 void filter16_avx512(const void* elements, int words, Band16 band, uint64_t* masks) {
  const char* data = static_cast<const char*>(elements);
  const __m512i mirror = _mm512_set1_epi16(0x7fff);  // minus x: the magnitude inverted
  const __m512i flip = _mm512_set1_epi16(band.flip);
  const __m512i low = _mm512_set1_epi16(band.low);
  const __m512i high = _mm512_set1_epi16(band.high);
  for (int w = 0; w < words; ++w) {
    uint64_t mask = 0;
    for (int part = 0; part < 2; ++part, data += 64) {
      const __m512i x = _mm512_xor_si512(_mm512_loadu_si512(data), flip);
      const __mmask32 negative = _mm512_movepi16_mask(x);
      const __m512i ordered = _mm512_mask_sub_epi16(x, negative, mirror, x);
      const __mmask32 reaches = _mm512_cmpge_epi16_mask(ordered, low);
      const __mmask32 admitted = _mm512_mask_cmple_epi16_mask(reaches, ordered, high);
      mask |= static_cast<uint64_t>(admitted) << (32 * part);
    }
    masks[w] = mask;
  }
}

TL_TOPK_AVX2 __m256i load256(const char* data) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data));
}

TL_TOPK_AVX2 void filter32_avx2(const void* elements, int words, Band32 band, uint64_t* masks) {
  const char* data = static_cast<const char*>(elements);
  const __m256i flip = _mm256_set1_epi32(band.flip);
  const __m256i low = _mm256_set1_epi32(band.low);
  const __m256i high = _mm256_set1_epi32(band.high);
  for (int w = 0; w < words; ++w) {
    uint64_t rejected_mask = 0;
    for (int part = 0; part < 8; ++part, data += 32) {
      const __m256i x = _mm256_xor_si256(load256(data), flip);
      const __m256i magnitude = _mm256_srli_epi32(_mm256_srai_epi32(x, 31), 1);
      const __m256i ordered = _mm256_xor_si256(x, magnitude);
      const __m256i rejected =
          _mm256_or_si256(_mm256_cmpgt_epi32(low, ordered), _mm256_cmpgt_epi32(ordered, high));
      const int bits = _mm256_movemask_ps(_mm256_castsi256_ps(rejected));
      rejected_mask |= static_cast<uint64_t>(static_cast<uint32_t>(bits)) << (8 * part);
    }
    masks[w] = ~rejected_mask;
  }
}

TL_TOPK_AVX2 void filter16_avx2(const void* elements, int words, Band16 band, uint64_t* masks) {
  const char* data = static_cast<const char*>(elements);
  const __m256i flip = _mm256_set1_epi16(band.flip);
  const __m256i low = _mm256_set1_epi16(band.low);
  const __m256i high = _mm256_set1_epi16(band.high);
  for (int w = 0; w < words; ++w) {
    uint64_t rejected_mask = 0;
    for (int part = 0; part < 2; ++part, data += 64) {
      __m256i rejected[2];
      for (int half = 0; half < 2; ++half) {
        const __m256i x = _mm256_xor_si256(load256(data + 32 * half), flip);
        const __m256i magnitude = _mm256_srli_epi16(_mm256_srai_epi16(x, 15), 1);
        const __m256i ordered = _mm256_xor_si256(x, magnitude);
        rejected[half] =
            _mm256_or_si256(_mm256_cmpgt_epi16(low, ordered), _mm256_cmpgt_epi16(ordered, high));
      }
      // Packing works within 128-bit halves; the permutation puts the quarters back in order.
      const __m256i packed =
          _mm256_permute4x64_epi64(_mm256_packs_epi16(rejected[0], rejected[1]), 0xd8);
      const int bits = _mm256_movemask_epi8(packed);
      rejected_mask |= static_cast<uint64_t>(static_cast<uint32_t>(bits)) << (32 * part);
    }
    masks[w] = ~rejected_mask;
  }
}

}  // namespace

const FilterKernel* filter_avx512() {
  static const FilterKernel kernel = {"avx512", filter32_avx512, filter16_avx512};
  const bool supported = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
  return supported ? &kernel : nullptr;
}

const FilterKernel* filter_avx2() {
  static const FilterKernel kernel = {"avx2", filter32_avx2, filter16_avx2};
  return __builtin_cpu_supports("avx2") ? &kernel : nullptr;
}

}  // namespace tl_topk

#else

namespace tl_topk {
const FilterKernel* filter_avx512() { return nullptr; }
const FilterKernel* filter_avx2() { return nullptr; }
}  // namespace tl_topk

#endif
