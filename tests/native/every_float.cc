// All 2^32 floats: their keys are the contract's order, and the bin map never steps down.
// Takes a minute or so; `make test` leaves it out, `pytest -m exhaustive` runs it.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "bin_map.h"
#include "check.h"
#include "key.h"

namespace {

using namespace tl_topk;

float float_of(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// The patterns `first` to `last` of one sign, by rising magnitude: of numbers each key lies one
// beside the one before, and can be undone; of NaNs all are the same, below every number.
void keys_follow(uint32_t sign, uint32_t first, uint32_t last) {
  uint64_t wrong = 0;
  for (uint64_t magnitude = first; magnitude <= last; ++magnitude) {
    const uint32_t bits = sign | static_cast<uint32_t>(magnitude);
    for (const bool largest : {true, false}) {
      const uint32_t oriented = orient(bits, largest);
      const uint32_t key = order_key(oriented);
      if (magnitude > kInfBits) {
        wrong += key != kNanKey;
        continue;
      }
      const bool rises = (sign == 0) == largest;
      const auto distance = static_cast<uint32_t>(magnitude);
      wrong += key != (rises || distance == 0 ? kSignBit + distance : kSignBit - 1 - distance);
      wrong += key <= kNanKey;
      wrong += magnitude != 0 && bits_of_key(key) != oriented;
      const uint32_t number_key = order_key_of_number(oriented);
      wrong += magnitude != 0 ? number_key != key : key - number_key > 1;
    }
  }
  CHECK(wrong == 0);
}

// Keys `first` to `last`: larger floats never lie in a lower bin.
void bins_follow(const BinMap& map, uint32_t first, uint32_t last) {
  uint32_t before = map(float_of(bits_of_key(first)));
  uint64_t wrong = 0;
  for (uint64_t key = first; key <= last; ++key) {
    const uint32_t bin = map(float_of(bits_of_key(static_cast<uint32_t>(key))));
    wrong += bin < before || bin > map.last;
    before = bin;
  }
  CHECK(wrong == 0);
}

// In as many threads as there are processors; parts overlap by one.
template <typename F>
void in_parts(uint64_t first, uint64_t last, F&& f) {
  const uint64_t parts = std::max(1u, std::thread::hardware_concurrency());
  const uint64_t size = (last - first) / parts + 1;
  std::vector<std::thread> threads;
  for (uint64_t begin = first; begin <= last; begin += size) {
    const uint64_t end = begin + size < last ? begin + size : last;
    threads.emplace_back([=, &f] { f(static_cast<uint32_t>(begin), static_cast<uint32_t>(end)); });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

int main() {
  for (const uint32_t sign : {0u, kSignBit}) {
    in_parts(0, 0x7fffffffu,
             [sign](uint32_t first, uint32_t last) { keys_follow(sign, first, last); });
  }
  constexpr uint32_t kMinusInfKey = 0x007fffffu;
  constexpr uint32_t kInfKey = 0xff800000u;
  const float tiny = std::numeric_limits<float>::denorm_min();
  const float huge = std::numeric_limits<float>::max();
  const float anchors[][2] = {
      {1.9f, 4.1f}, {-huge / 4, huge / 4}, {-tiny, 70 * tiny}, {0.99999994f, 1.0000001f}};
  for (const auto& [low, high] : anchors) {
    const BinMap map = make_bin_map(low, high, 256);
    in_parts(kMinusInfKey, kInfKey,
             [&](uint32_t first, uint32_t last) { bins_follow(map, first, last); });
  }
  return check::status();
}
