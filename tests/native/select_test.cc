// cpu/select.h against the standard library's sort.
#include "cpu/select.h"

#include <algorithm>
#include <functional>
#include <random>
#include <vector>

#include "check.h"
#include "key.h"

namespace {

using Ranks = std::vector<uint64_t>;

std::mt19937_64 random_bits(1);

// Distinct ranks whose keys have the low `key_bits` bits only, by ascending index.
Ranks make_ranks(int64_t count, int key_bits) {
  const uint64_t mask = (uint64_t{1} << key_bits) - 1;
  Ranks ranks;
  for (int64_t i = 0; i < count; ++i) {
    const auto key = static_cast<uint32_t>(random_bits() & mask);
    ranks.push_back(tl_topk::rank_key(key, static_cast<uint32_t>(3 * i)));
  }
  return ranks;
}

void selections_agree(const Ranks& ranks) {
  const auto count = static_cast<int64_t>(ranks.size());
  Ranks sorted = ranks;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  for (const int64_t k : {int64_t{1}, int64_t{2}, count / 3, count / 2, count - 1, count}) {
    if (k < 1 || k > count) continue;
    const uint64_t threshold = sorted[static_cast<size_t>(k - 1)];
    Ranks scratch(ranks.size());
    CHECK(tl_topk::kth_rank(ranks.data(), count, k, scratch.data()) == threshold);
    Ranks in_place = ranks;
    CHECK(tl_topk::kth_rank(in_place.data(), count, k, in_place.data()) == threshold);

    Ranks kept = ranks;
    CHECK(tl_topk::keep_from(kept.data(), count, threshold) == k);
    Ranks expected;
    std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(expected),
                 [threshold](uint64_t rank) { return rank >= threshold; });
    CHECK(std::equal(expected.begin(), expected.end(), kept.begin()));
  }
}

void sorts_agree(const Ranks& ranks) {
  Ranks expected = ranks;
  std::sort(expected.begin(), expected.end(), std::greater<>());
  Ranks sorted = ranks;
  Ranks scratch(ranks.size());
  tl_topk::sort_by_value(sorted.data(), static_cast<int64_t>(ranks.size()), scratch.data());
  CHECK(sorted == expected);
}

// Each pass of the selection leaves as many ranks as can be: they crowd below ever lower bits.
Ranks crowded() {
  Ranks ranks;
  for (int bit = 0; bit < 64; ++bit) {
    for (uint64_t low = 0; low < 100; ++low) ranks.push_back((uint64_t{1} << bit) + low);
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

}  // namespace

int main() {
  for (const int64_t count : {1, 2, 3, 63, 64, 65, 66, 127, 128, 1000, 2047, 2048, 2049, 30000}) {
    for (const int key_bits : {0, 1, 6, 16, 23, 32}) {
      const Ranks ranks = make_ranks(count, key_bits);
      selections_agree(ranks);
      sorts_agree(ranks);
    }
  }
  selections_agree(crowded());
  return check::status();
}
