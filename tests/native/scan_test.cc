// cpu/scan.h: whatever the floor and however full the list, the k best are among the candidates.
#include "cpu/scan.h"

#include <algorithm>
#include <functional>
#include <random>
#include <vector>

#include "check.h"
#include "rows.h"

namespace {

using contract::Dtype;
using tl_topk::BFloat16;
using tl_topk::Float16;
using tl_topk::Float32;

// Scans `bits` in `parts`, one after the other, as threads would at once, from the tightest floor
// that the k best reach (or from none), and looks for the k best in the lists.
template <class Element>
void best_are_found(const std::vector<uint32_t>& bits, int64_t k, int64_t parts, bool largest,
                    bool with_floor) {
  const std::vector<typename Element::Bits> elements(bits.begin(), bits.end());
  const tl_topk::Row<Element> row = {reinterpret_cast<const char*>(elements.data()),
                                     static_cast<int64_t>(elements.size()), largest};
  std::vector<uint64_t> best;
  for (int64_t i = 0; i < row.length; ++i) best.push_back(row.rank(i));
  std::nth_element(best.begin(), best.begin() + (k - 1), best.end(), std::greater<>());
  best.resize(static_cast<size_t>(k));
  std::sort(best.begin(), best.end());
  const uint32_t floor = with_floor ? tl_topk::key_of_rank(best[0]) : tl_topk::kNanKey;

  tl_topk::Bound bound;
  std::vector<uint64_t> candidates;
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t begin = part * row.length / parts;
    const int64_t end = (part + 1) * row.length / parts;
    const int64_t capacity = tl_topk::candidate_capacity(end - begin, k);
    std::vector<uint64_t> ranks(static_cast<size_t>(capacity));
    std::vector<uint64_t> scratch(static_cast<size_t>(capacity));
    tl_topk::Candidates list = {ranks.data(), capacity};
    scan(row, begin, end, k, floor, bound, list, scratch.data());
    CHECK(list.count <= capacity);
    candidates.insert(candidates.end(), ranks.begin(), ranks.begin() + list.count);
  }
  for (size_t i = 1; i < candidates.size(); ++i) {
    CHECK(tl_topk::index_of_rank(candidates[i - 1]) < tl_topk::index_of_rank(candidates[i]));
  }
  std::sort(candidates.begin(), candidates.end());
  CHECK(std::includes(candidates.begin(), candidates.end(), best.begin(), best.end()));
}

void all_ways(const std::vector<uint32_t>& bits, Dtype dtype, int64_t k) {
  for (const bool largest : {true, false}) {
    for (const bool with_floor : {true, false}) {
      for (const int64_t parts : {1, 2}) {
        switch (dtype) {
          case Dtype::kFloat32:
            best_are_found<Float32>(bits, k, parts, largest, with_floor);
            break;
          case Dtype::kFloat16:
            best_are_found<Float16>(bits, k, parts, largest, with_floor);
            break;
          case Dtype::kBFloat16:
            best_are_found<BFloat16>(bits, k, parts, largest, with_floor);
            break;
        }
      }
    }
  }
}

// Values that step up slowly: after each selection in a full list, the next value follows at once.
void steps_behind_a_full_list() {
  for (int64_t length = 20000; length < 28000; length += 211) {
    std::vector<uint32_t> bits;
    for (int64_t i = 0; i < length; ++i) bits.push_back(0x3c00 + static_cast<uint32_t>(i / 300));
    best_are_found<Float16>(bits, 5, 1, true, false);
    best_are_found<Float32>(bits, 5, 1, true, false);
  }
}

// Lists full of NaNs, then numbers of which the last and least, -inf, are wanted as well.
void minus_infinity_behind_nans() {
  std::vector<uint32_t> bits(30000, 0x7fc00000);
  for (size_t i = 25000; i < 25100; ++i) bits[i] = i % 2 == 0 ? 0xff800000 : 0x80000000;
  best_are_found<Float32>(bits, 100, 1, true, false);
  best_are_found<Float32>(bits, 60, 1, false, false);
}

}  // namespace

int main() {
  std::mt19937 random(1);
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kFloat16, Dtype::kBFloat16}) {
    for (const rows::Pattern pattern : rows::kPatterns) {
      for (const int64_t length : {3, 100, 20000}) {
        const auto bits = rows::make(pattern, length, contract::format_of(dtype), random);
        for (const int64_t k : {int64_t{1}, length / 20 + 1, length / 3, length}) {
          all_ways(bits, dtype, k);
        }
      }
    }
  }
  steps_behind_a_full_list();
  minus_infinity_behind_nans();
  return check::status();
}
