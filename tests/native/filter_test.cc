// Every filter kernel this machine can run against the comparison itself.
#include "cpu/filter.h"

#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "check.h"

namespace {

using tl_topk::Band;
using tl_topk::FilterKernel;

constexpr int kWords = 5;
constexpr int kCount = 64 * kWords;

void run(const FilterKernel& kernel, const void* data, Band<int32_t> band, uint64_t* masks) {
  kernel.filter32(data, kWords, band, masks);
}
void run(const FilterKernel& kernel, const void* data, Band<int16_t> band, uint64_t* masks) {
  kernel.filter16(data, kWords, band, masks);
}

template <class Lane>
std::vector<Lane> make_elements(std::mt19937& random) {
  constexpr Lane kLeast = std::numeric_limits<Lane>::min();
  constexpr Lane kMost = std::numeric_limits<Lane>::max();
  std::vector<Lane> elements;
  for (int i = 0; i < kCount; ++i) {
    const auto any = static_cast<Lane>(random());
    const Lane choices[] = {any, kLeast, kMost, 0, -1, static_cast<Lane>(any % 16)};
    elements.push_back(choices[random() % 6]);
  }
  return elements;
}

template <class Lane>
void kernel_compares(const FilterKernel& kernel) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    const std::vector<Lane> elements = make_elements<Lane>(random);
    const std::vector<Lane> ends = make_elements<Lane>(random);
    const Lane flip = random() % 2 == 0 ? Lane{0} : std::numeric_limits<Lane>::min();
    const Band<Lane> band = {flip, ends[0], ends[1]};

    // At every alignment, bytes included; exactly as long as promised, for the sanitizer.
    const size_t offset = random() % 64;
    std::vector<char> bytes(offset + kCount * sizeof(Lane));
    std::memcpy(bytes.data() + offset, elements.data(), kCount * sizeof(Lane));
    uint64_t masks[kWords];
    run(kernel, bytes.data() + offset, band, masks);
    for (int i = 0; i < kCount; ++i) {
      const Lane element = elements[static_cast<size_t>(i)];
      const Lane x = tl_topk::ordered_form(static_cast<Lane>(element ^ flip));
      const bool admitted = (masks[i / 64] >> (i % 64) & 1) != 0;
      CHECK(admitted == (x >= band.low && x <= band.high));
    }
  }
}

void ordered_form_is_monotone() {
  const float numbers[] = {-std::numeric_limits<float>::infinity(),
                           -3e38f,
                           -1.0f,
                           -1e-45f,
                           0.0f,
                           1e-45f,
                           1e-39f,
                           1.0f,
                           1.0000001f,
                           3e38f,
                           std::numeric_limits<float>::infinity()};
  int32_t last = std::numeric_limits<int32_t>::min();
  for (const float number : numbers) {
    int32_t bits;
    std::memcpy(&bits, &number, sizeof bits);
    CHECK(tl_topk::ordered_form(bits) > last);
    last = tl_topk::ordered_form(bits);
    CHECK(tl_topk::ordered_form(last) == bits);
  }
}

}  // namespace

int main() {
  ordered_form_is_monotone();
  for (const FilterKernel* kernel : {tl_topk::filter_scalar(), tl_topk::filter_avx2(),
                                     tl_topk::filter_avx512(), tl_topk::filter_neon()}) {
    if (kernel == nullptr) continue;
    std::printf("%s\n", kernel->name);
    kernel_compares<int32_t>(*kernel);
    kernel_compares<int16_t>(*kernel);
  }
  return check::status();
}
