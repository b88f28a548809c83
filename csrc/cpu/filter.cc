#include "cpu/filter.h"

#include <cstring>
#include <initializer_list>

namespace tl_topk {
namespace {

template <class Lane>
void filter(const void* elements, int words, Band<Lane> band, uint64_t* masks) {
  const char* data = static_cast<const char*>(elements);
  for (int w = 0; w < words; ++w) {
    uint64_t mask = 0;
    for (int j = 0; j < 64; ++j, data += sizeof(Lane)) {
      Lane bits;
      std::memcpy(&bits, data, sizeof bits);
      const Lane x = ordered_form(static_cast<Lane>(bits ^ band.flip));
      mask |= static_cast<uint64_t>(x >= band.low && x <= band.high) << j;
    }
    masks[w] = mask;
  }
}

const FilterKernel& choose() {
  for (const FilterKernel* kernel : {filter_avx512(), filter_avx2(), filter_neon()}) {
    if (kernel != nullptr) return *kernel;
  }
  return *filter_scalar();
}

}  // namespace

const FilterKernel* filter_scalar() {
  static const FilterKernel kernel = {"scalar", filter<int32_t>, filter<int16_t>};
  return &kernel;
}

const FilterKernel& filter_kernel() {
  static const FilterKernel& kernel = choose();
  return kernel;
}

}  // namespace tl_topk
