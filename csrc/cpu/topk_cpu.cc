// First form of the CPU backend: every row is ranked in full on the calling thread.
#include "cpu/topk_cpu.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "key.h"
#include "row_span.h"

namespace tl_topk {
namespace {

uint32_t widened(const void* row, int64_t i, Dtype dtype) {
  if (dtype == Dtype::kFloat32) {
    uint32_t bits;
    std::memcpy(&bits, static_cast<const char*>(row) + i * 4, 4);
    return bits;
  }
  uint16_t bits;
  std::memcpy(&bits, static_cast<const char*>(row) + i * 2, 2);
  return dtype == Dtype::kFloat16 ? widen_float16(bits) : widen_bfloat16(bits);
}

void store_padding(void* out, Dtype dtype, bool largest) {
  const uint32_t sign = largest ? kSignBit : 0;
  const uint32_t wide = sign | kInfBits;
  const uint16_t narrow = static_cast<uint16_t>((sign >> 16) | 0x7c00u);
  const uint16_t brain = static_cast<uint16_t>(wide >> 16);
  if (dtype == Dtype::kFloat32) {
    std::memcpy(out, &wide, 4);
  } else {
    std::memcpy(out, dtype == Dtype::kFloat16 ? &narrow : &brain, 2);
  }
}

}  // namespace

void topk_cpu(const TopKArgs& args, int /*threads*/) {
  const Problem& p = args.problem;
  const int64_t size = element_size(p.dtype);
  std::vector<uint64_t> ranks;
  for (int64_t r = 0; r < p.rows; ++r) {
    const RowSpan span = row_span(p.width, args.lengths, args.row_starts, r);
    const char* row =
        static_cast<const char*>(args.scores) + (r * args.scores_stride + span.begin) * size;
    const int64_t kept = std::min(span.length, p.k);
    ranks.resize(static_cast<size_t>(span.length));
    for (int64_t i = 0; i < span.length; ++i) {
      ranks[static_cast<size_t>(i)] = rank_key(
          order_key(orient(widened(row, i, p.dtype), p.largest)), static_cast<uint32_t>(i));
    }
    if (kept < span.length) {
      std::nth_element(ranks.begin(), ranks.begin() + kept, ranks.end(), std::greater<>());
    }
    const auto end = ranks.begin() + kept;
    if (p.order == Order::kValue) {
      std::sort(ranks.begin(), end, std::greater<>());
    } else {
      std::sort(ranks.begin(), end,
                [](uint64_t a, uint64_t b) { return index_of_rank(a) < index_of_rank(b); });
    }
    int32_t* indices = args.indices + r * args.indices_stride;
    char* values = args.values == nullptr
                       ? nullptr
                       : static_cast<char*>(args.values) + r * args.values_stride * size;
    for (int64_t j = 0; j < p.k; ++j) {
      const bool valid = j < kept;
      const uint32_t index = valid ? index_of_rank(ranks[static_cast<size_t>(j)]) : 0;
      indices[j] = valid ? static_cast<int32_t>(index) : -1;
      if (values == nullptr) continue;
      if (valid) {
        std::memcpy(values + j * size, row + index * size, static_cast<size_t>(size));
      } else {
        store_padding(values + j * size, p.dtype, p.largest);
      }
    }
  }
}

const char* cpu_simd_name() { return "scalar"; }

}  // namespace tl_topk
