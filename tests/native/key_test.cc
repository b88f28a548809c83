// key.h against the contract's comparison, from first principles.
#include "key.h"

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "check.h"
#include "contract.h"

namespace {

using contract::format_of;
using contract::value_of;
using tl_topk::Dtype;

double value_of_float32(uint32_t bits) { return value_of(bits, format_of(Dtype::kFloat32)); }

bool same(double a, double b) {
  if (std::isnan(a)) return std::isnan(b);
  return a == b && std::signbit(a) == std::signbit(b);
}

void first_principles_agree_with_the_machine() {
  for (const uint32_t bits : {0u, 1u, 0x80000000u, 0x007fffffu, 0x00800000u, 0x3f800001u,
                              0x7f7fffffu, 0x7f800000u, 0xff800000u, 0x7fc00000u, 0xc0490fdbu}) {
    float number;
    std::memcpy(&number, &bits, sizeof number);
    CHECK(same(value_of_float32(bits), number));
  }
}

void widening_is_exact() {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto narrow = static_cast<uint16_t>(bits);
    CHECK(same(value_of_float32(tl_topk::widen_float16(narrow)),
               value_of(bits, format_of(Dtype::kFloat16))));
    CHECK(same(value_of_float32(tl_topk::widen_bfloat16(narrow)),
               value_of(bits, format_of(Dtype::kBFloat16))));
  }
}

void order_agrees(uint32_t a, uint32_t b) {
  for (const bool largest : {true, false}) {
    const uint32_t key_a = tl_topk::order_key(tl_topk::orient(a, largest));
    const uint32_t key_b = tl_topk::order_key(tl_topk::orient(b, largest));
    CHECK((key_a > key_b) == contract::before(value_of_float32(a), value_of_float32(b), largest));
    // Ranks order the slots in full: what ties goes by the lower index.
    CHECK((tl_topk::rank_key(key_a, 7) > tl_topk::rank_key(key_b, 9)) ==
          !contract::before(value_of_float32(b), value_of_float32(a), largest));
  }
}

void order_is_the_contract() {
  std::vector<uint32_t> boundaries;
  for (const uint32_t bits : {0u, 1u, 2u, 0x007fffffu, 0x00800000u, 0x00800001u, 0x3f7fffffu,
                              0x3f800000u, 0x477fe000u, 0x477ff000u, 0x7f7fffffu, 0x7f800000u,
                              0x7f800001u, 0x7fbfffffu, 0x7fc00000u, 0x7fffffffu}) {
    boundaries.push_back(bits);
    boundaries.push_back(bits | tl_topk::kSignBit);
  }
  for (const uint32_t a : boundaries) {
    for (const uint32_t b : boundaries) order_agrees(a, b);
  }
  std::mt19937 random(1);
  for (int i = 0; i < 300000; ++i) {
    const auto a = static_cast<uint32_t>(random());
    order_agrees(a, static_cast<uint32_t>(random()));
    order_agrees(a, a + static_cast<uint32_t>(random() % 5) - 2);
    order_agrees(a, a ^ tl_topk::kSignBit);
  }
}

void keys_and_ranks_can_be_undone() {
  std::mt19937 random(2);
  for (int i = 0; i < 1000000; ++i) {
    const auto bits = static_cast<uint32_t>(random());
    if (std::isnan(value_of_float32(bits))) {
      CHECK(tl_topk::order_key(bits) == tl_topk::kNanKey);
    } else {
      CHECK(tl_topk::bits_of_key(tl_topk::order_key(bits)) == bits || value_of_float32(bits) == 0);
    }
    const auto index = static_cast<uint32_t>(random());
    const uint64_t rank = tl_topk::rank_key(bits, index);
    CHECK(tl_topk::key_of_rank(rank) == bits && tl_topk::index_of_rank(rank) == index);
  }
  for (const uint32_t zero : {0u, tl_topk::kSignBit}) {
    CHECK(tl_topk::bits_of_key(tl_topk::order_key(zero)) == 0);
  }
  CHECK(std::isnan(value_of_float32(tl_topk::bits_of_key(tl_topk::kNanKey))));
}

}  // namespace

int main() {
  first_principles_agree_with_the_machine();
  widening_is_exact();
  order_is_the_contract();
  keys_and_ranks_can_be_undone();
  return check::status();
}
