// NEON form of the filter: every aarch64 has it.
#include "cpu/filter.h"

#if defined(__aarch64__) && defined(__ARM_NEON)

#include <arm_neon.h>

namespace tl_topk {
namespace {

// 64 bytes that are 0x00 or 0xff to 64 bits: each byte keeps the bit of its place, then
// neighbours are added three times.
uint64_t mask_of_bytes(const uint8x16_t bytes[4]) {
  const uint8x16_t place = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201u));
  const uint8x16_t low = vpaddq_u8(vandq_u8(bytes[0], place), vandq_u8(bytes[1], place));
  const uint8x16_t high = vpaddq_u8(vandq_u8(bytes[2], place), vandq_u8(bytes[3], place));
  const uint8x16_t sums = vpaddq_u8(low, high);
  return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(sums, sums)), 0);
}

// Loads go through bytes: a base may have any alignment.
uint32x4_t admitted32(const uint8_t* data, int32x4_t flip, int32x4_t low, int32x4_t high) {
  const int32x4_t x = veorq_s32(vreinterpretq_s32_u8(vld1q_u8(data)), flip);
  const int32x4_t magnitude =
      vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(vshrq_n_s32(x, 31)), 1));
  const int32x4_t ordered = veorq_s32(x, magnitude);
  return vandq_u32(vcgeq_s32(ordered, low), vcleq_s32(ordered, high));
}

uint16x8_t admitted16(const uint8_t* data, int16x8_t flip, int16x8_t low, int16x8_t high) {
  const int16x8_t x = veorq_s16(vreinterpretq_s16_u8(vld1q_u8(data)), flip);
  const int16x8_t magnitude =
      vreinterpretq_s16_u16(vshrq_n_u16(vreinterpretq_u16_s16(vshrq_n_s16(x, 15)), 1));
  const int16x8_t ordered = veorq_s16(x, magnitude);
  return vandq_u16(vcgeq_s16(ordered, low), vcleq_s16(ordered, high));
}

void filter32_neon(const void* elements, int words, Band32 band, uint64_t* masks) {
  const uint8_t* data = static_cast<const uint8_t*>(elements);
  const int32x4_t flip = vdupq_n_s32(band.flip);
  const int32x4_t low = vdupq_n_s32(band.low);
  const int32x4_t high = vdupq_n_s32(band.high);
  for (int w = 0; w < words; ++w) {
    uint8x16_t bytes[4];
    for (uint8x16_t& quarter : bytes) {
      uint16x8_t halves[2];
      for (uint16x8_t& half : halves) {
        const uint32x4_t first = admitted32(data, flip, low, high);
        const uint32x4_t second = admitted32(data + 16, flip, low, high);
        half = vcombine_u16(vmovn_u32(first), vmovn_u32(second));
        data += 32;
      }
      quarter = vcombine_u8(vmovn_u16(halves[0]), vmovn_u16(halves[1]));
    }
    masks[w] = mask_of_bytes(bytes);
  }
}

void filter16_neon(const void* elements, int words, Band16 band, uint64_t* masks) {
  const uint8_t* data = static_cast<const uint8_t*>(elements);
  const int16x8_t flip = vdupq_n_s16(band.flip);
  const int16x8_t low = vdupq_n_s16(band.low);
  const int16x8_t high = vdupq_n_s16(band.high);
  for (int w = 0; w < words; ++w) {
    uint8x16_t bytes[4];
    for (uint8x16_t& quarter : bytes) {
      const uint16x8_t first = admitted16(data, flip, low, high);
      const uint16x8_t second = admitted16(data + 16, flip, low, high);
      quarter = vcombine_u8(vmovn_u16(first), vmovn_u16(second));
      data += 32;
    }
    masks[w] = mask_of_bytes(bytes);
  }
}

}  // namespace

const FilterKernel* filter_neon() {
  static const FilterKernel kernel = {"neon", filter32_neon, filter16_neon};
  return &kernel;
}

}  // namespace tl_topk

#else

namespace tl_topk {
const FilterKernel* filter_neon() { return nullptr; }
}  // namespace tl_topk

#endif
