#include "cpu/scan.h"

#include <array>
#include <type_traits>

#include "cpu/filter.h"
#include "cpu/select.h"

namespace tl_topk {
namespace {

constexpr int kWordBits = 64;
constexpr uint32_t kLargestKey = kInfBits | kSignBit;

template <class Element>
using Lane = std::make_signed_t<typename Element::Bits>;

// The elements with a key >= floor, where kNanKey < floor <= kLargestKey: the least number that
// reaches the floor, found by bisection because the key is monotone, up to infinity.
template <class Element>
Band<Lane<Element>> band_above(uint32_t floor, bool largest) {
  using Bits = typename Element::Bits;
  const auto key = [](int64_t ordered) {
    const auto bits = static_cast<Bits>(ordered_form(static_cast<Lane<Element>>(ordered)));
    return order_key(Element::widen(bits));
  };
  int64_t high = Element::kInfinity;
  int64_t low = -high - 1;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (key(middle) >= floor) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  const Bits flip = largest ? Bits{0} : kSignOf<Element>;
  return {static_cast<Lane<Element>>(flip), static_cast<Lane<Element>>(high),
          static_cast<Lane<Element>>(Element::kInfinity)};
}

inline void run_filter(const char* elements, int words, Band32 band, uint64_t* masks) {
  filter_kernel().filter32(elements, words, band, masks);
}
inline void run_filter(const char* elements, int words, Band16 band, uint64_t* masks) {
  filter_kernel().filter16(elements, words, band, masks);
}

// Masks of [begin, end), at most kScanChunk elements; the unused bits of the last are 0.
template <class Element>
void filter_chunk(const Row<Element>& row, int64_t begin, int64_t end,
                  const Band<Lane<Element>>& band, uint64_t* masks) {
  const int whole = static_cast<int>((end - begin) / kWordBits);
  run_filter(row.at(begin), whole, band, masks);
  const int64_t rest_begin = begin + static_cast<int64_t>(whole) * kWordBits;
  if (rest_begin == end) return;
  // The last elements are copied, so that no vector reaches past the row.
  typename Element::Bits rest[kWordBits] = {};
  const auto rest_count = static_cast<size_t>(end - rest_begin);
  std::memcpy(rest, row.at(rest_begin), rest_count * sizeof rest[0]);
  run_filter(reinterpret_cast<const char*>(rest), 1, band, masks + whole);
  masks[whole] &= (uint64_t{1} << rest_count) - 1;
}

}  // namespace

template <class Element>
void scan(const Row<Element>& row, int64_t begin, int64_t end, int64_t k, uint32_t floor,
          Bound& bound, Candidates& candidates, uint64_t* scratch) {
  uint64_t* const ranks = candidates.ranks;
  int64_t count = 0;
  bool raised = false;
  // A full list knows k elements that beat the rest of it.
  const auto make_room = [&](int64_t incoming) {
    if (count + incoming <= candidates.capacity) return;
    std::copy(ranks, ranks + count, scratch);
    const uint64_t threshold = kth_rank(scratch, count, k, scratch);
    count = keep_from(ranks, count, threshold);
    bound.raise(threshold);
  };
  // The first k admitted make a bound without any selection. It is a poor one, except where many
  // elements equal the floor: there it rejects the rest of them at once.
  const auto raise_first_bound = [&] {
    if (raised || count < k) return;
    bound.raise(*std::min_element(ranks, ranks + count));
    raised = true;
  };

  uint32_t band_floor = kNanKey;
  Band<Lane<Element>> band{};
  for (int64_t at = begin; at < end; at += kScanChunk) {
    const int64_t stop = std::min(at + kScanChunk, end);
    make_room(stop - at);
    floor = std::max(floor, bound.floor_from(at));
    if (floor > kLargestKey) break;
    if (floor == kNanKey) {
      for (int64_t i = at; i < stop; ++i) ranks[count++] = row.rank(i);
      raise_first_bound();
      continue;
    }
    if (floor != band_floor) {
      band_floor = floor;
      band = band_above<Element>(floor, row.largest);
    }
    std::array<uint64_t, kScanChunk / kWordBits> masks;
    filter_chunk(row, at, stop, band, masks.data());
    const auto words = static_cast<size_t>((stop - at + kWordBits - 1) / kWordBits);
    for (size_t w = 0; w < words; ++w) {
      const int64_t base = at + static_cast<int64_t>(w) * kWordBits;
      for (uint64_t mask = masks[w]; mask != 0; mask &= mask - 1) {
        ranks[count++] = row.rank(base + __builtin_ctzll(mask));
      }
    }
    raise_first_bound();
  }
  candidates.count = count;
}

template void scan(const Row<Float32>&, int64_t, int64_t, int64_t, uint32_t, Bound&, Candidates&,
                   uint64_t*);
template void scan(const Row<Float16>&, int64_t, int64_t, int64_t, uint32_t, Bound&, Candidates&,
                   uint64_t*);
template void scan(const Row<BFloat16>&, int64_t, int64_t, int64_t, uint32_t, Bound&, Candidates&,
                   uint64_t*);

}  // namespace tl_topk
