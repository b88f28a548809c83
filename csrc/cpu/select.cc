#include "cpu/select.h"

#include <algorithm>
#include <array>
#include <functional>

namespace tl_topk {
namespace {

constexpr int kBinBits = 11;
constexpr int kBins = 1 << kBinBits;
constexpr int64_t kFewRanks = 64;  // a comparison sort of these costs less than clearing the bins

int bit_width(uint64_t x) { return x == 0 ? 0 : 64 - __builtin_clzll(x); }

// One pass of a stable counting sort, descending by the digit at `shift`.
void sort_digit(const uint64_t* from, int64_t count, int shift, uint64_t* to) {
  const auto digit = [shift](uint64_t rank) {
    return static_cast<size_t>(~(rank >> shift) & (kBins - 1));
  };
  std::array<uint32_t, kBins> place{};
  for (int64_t i = 0; i < count; ++i) ++place[digit(from[i])];
  uint32_t sum = 0;
  for (uint32_t& entry : place) {
    const uint32_t members = entry;
    entry = sum;
    sum += members;
  }
  for (int64_t i = 0; i < count; ++i) to[place[digit(from[i])]++] = from[i];
}

}  // namespace

uint64_t kth_rank(const uint64_t* ranks, int64_t count, int64_t k, uint64_t* scratch) {
  while (count > kFewRanks) {
    uint64_t lowest = ranks[0];
    uint64_t highest = ranks[0];
    for (int64_t i = 1; i < count; ++i) {
      lowest = std::min(lowest, ranks[i]);
      highest = std::max(highest, ranks[i]);
    }
    // About one bin for each rank: to clear and to search more would cost more than it saves.
    const int bin_bits = std::min(bit_width(static_cast<uint64_t>(count)), kBinBits);
    const int shift = std::max(bit_width(highest - lowest) - bin_bits, 0);
    size_t bin = (size_t{1} << bin_bits) - 1;
    std::array<uint32_t, kBins> members;
    std::fill_n(members.begin(), bin + 1, 0u);
    for (int64_t i = 0; i < count; ++i) ++members[(ranks[i] - lowest) >> shift];

    while (static_cast<int64_t>(members[bin]) < k) k -= members[bin--];

    int64_t kept = 0;  // never ahead of i, so `scratch` may be `ranks`
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t rank = ranks[i];
      scratch[kept] = rank;
      kept += ((rank - lowest) >> shift) == bin;
    }
    ranks = scratch;
    count = kept;
  }
  if (ranks != scratch) std::copy(ranks, ranks + count, scratch);
  std::sort(scratch, scratch + count, std::greater<>());
  return scratch[k - 1];
}

int64_t keep_from(uint64_t* ranks, int64_t count, uint64_t threshold) {
  int64_t kept = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t rank = ranks[i];
    ranks[kept] = rank;
    kept += rank >= threshold;
  }
  return kept;
}

void sort_by_value(uint64_t* ranks, int64_t count, uint64_t* scratch) {
  if (count <= kFewRanks) {
    std::sort(ranks, ranks + count, std::greater<>());
    return;
  }
  // The order of indices is given and the passes are stable, so the key's digits are enough.
  sort_digit(ranks, count, 32, scratch);
  sort_digit(scratch, count, 32 + kBinBits, ranks);
  sort_digit(ranks, count, 32 + 2 * kBinBits, scratch);
  std::copy(scratch, scratch + count, ranks);
}

}  // namespace tl_topk
