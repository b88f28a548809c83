// What ranks exchange to agree on the best of a row that is divided over them, and what each makes
// of it. Two methods:
//
//   gather     every rank sends its own k best of each row, as they were selected: a *part*. The
//              merge selects among all parts.
//   threshold  every rank sorts its own k best and sends every `stride`-th of them: *samples*. All
//              ranks find the same bound in these, and each then contributes what it has above it,
//              into slots that are its own in a list of *words* that an all-reduce adds up.
//
// Why the second loses nothing: let the bound be the J-th best sample, J = ceil(k / stride). Every
// sample stands for `stride` elements of its rank at least as good, so stride * J >= k elements
// reach the bound. A rank with j samples there has fewer than stride * (j + 1) elements there. So
// stride * (J + ranks) slots hold whatever reaches it, on any input.
#pragma once

#include <cstdint>
#include <type_traits>

#include "host_device.h"
#include "key.h"
#include "problem.h"
#include "row_span.h"
#include "shards.h"

namespace tl_topk {

// Calls f with the dtype as a constant.
template <typename F>
void with_dtype(Dtype dtype, const F& f) {
  switch (dtype) {
    case Dtype::kFloat32:
      return f(std::integral_constant<Dtype, Dtype::kFloat32>{});
    case Dtype::kFloat16:
      return f(std::integral_constant<Dtype, Dtype::kFloat16>{});
    case Dtype::kBFloat16:
      return f(std::integral_constant<Dtype, Dtype::kBFloat16>{});
  }
}

// A candidate's bits as they lie in the row, and where it lies there.
struct Candidate {
  uint32_t bits;
  uint32_t index;
  bool present;
};

template <Dtype D>
struct RawOf {
  using Type = uint16_t;
};
template <>
struct RawOf<Dtype::kFloat32> {
  using Type = uint32_t;
};

template <Dtype D>
TL_TOPK_HD uint32_t widen(uint32_t bits) {
  if (D == Dtype::kFloat32) return bits;
  const auto half = static_cast<uint16_t>(bits);
  return D == Dtype::kFloat16 ? widen_float16(half) : widen_bfloat16(half);
}

// 0, below every rank of an element, where there is none.
template <Dtype D>
TL_TOPK_HD uint64_t rank_of_candidate(const Candidate& c, bool largest) {
  return c.present ? rank_key(order_key(orient(widen<D>(c.bits), largest)), c.index) : 0;
}

template <Dtype D>
TL_TOPK_HD typename RawOf<D>::Type padding_of(bool largest) {
  const uint32_t infinity = D == Dtype::kFloat32   ? kInfBits
                            : D == Dtype::kFloat16 ? 0x7c00
                                                   : 0x7f80;
  const uint32_t sign = D == Dtype::kFloat32 ? kSignBit : 0x8000;
  return static_cast<typename RawOf<D>::Type>(largest ? infinity | sign : infinity);
}

// What one rank selected of its own elements: (rows, count) each, without gaps. Indices count from
// its shard's first element; -1 where there is none.
struct Selected {
  const int32_t* indices;
  const void* values;
  int64_t rows;
  uint32_t count;

  template <Dtype D>
  TL_TOPK_HD Candidate at(const Shards& shards, uint32_t rank, int64_t row, uint32_t i) const {
    const int64_t place = row * count + i;
    const int32_t local = indices[place];
    const uint32_t bits = static_cast<const typename RawOf<D>::Type*>(values)[place];
    return {bits, shards.global_index(rank, static_cast<uint32_t>(local)), local >= 0};
  }
};

// Candidates of a row come in fours, so that kernels can read them as vectors.
constexpr uint32_t kQuad = 4;
TL_TOPK_HD uint32_t whole_quads(uint32_t count) { return (count + kQuad - 1) / kQuad * kQuad; }

// A part is the indices and then the values, of each row a multiple of kQuad; the next begins at
// the next multiple of 16 bytes.
TL_TOPK_HD int64_t part_bytes(int64_t rows, int64_t count, Dtype dtype) {
  return (rows * count * (4 + (dtype == Dtype::kFloat32 ? 4 : 2)) + 15) / 16 * 16;
}
TL_TOPK_HD Selected part_at(const void* parts, int64_t rows, uint32_t count, Dtype dtype,
                            uint32_t rank) {
  const char* part = static_cast<const char*>(parts) + rank * part_bytes(rows, count, dtype);
  return {reinterpret_cast<const int32_t*>(part), part + rows * count * 4, rows, count};
}

// An empty slot is 0: added to the same slot of the other ranks it changes nothing.
TL_TOPK_HD uint64_t word_of(const Candidate& c) {
  return c.present ? static_cast<uint64_t>(c.bits) << 32 | (c.index + 1) : 0;
}
TL_TOPK_HD Candidate candidate_of(uint64_t word) {
  const auto place = static_cast<uint32_t>(word);
  return {static_cast<uint32_t>(word >> 32), place - 1, place != 0};
}

// The candidates of all ranks: parts, `per_rank` of each row in each, or words, `slots` a row.
struct MergeArgs {
  int64_t rows;
  int64_t k;
  Dtype dtype;
  Order order;
  bool largest;
  const void* parts;      // null: words
  const uint64_t* words;  // (rows, slots)
  uint32_t per_rank;
  uint32_t slots;
  int32_t* indices;        // (rows, k), in the whole row
  void* values;            // (rows, k)
  int32_t* local_indices;  // (rows, k), of those among them that this rank has; null: not wanted

  // Of one row.
  TL_TOPK_HD uint32_t candidates(const Shards& shards) const {
    return parts == nullptr ? slots : shards.ranks * per_rank;
  }
  template <Dtype D>
  TL_TOPK_HD Candidate at(const Shards& shards, int64_t row, uint32_t i) const {
    if (parts == nullptr) return candidate_of(words[row * slots + i]);
    const uint32_t rank = i / per_rank;
    return part_at(parts, rows, per_rank, D, rank).template at<D>(shards, rank, row, i % per_rank);
  }
};

// From a rank's selection, best first, to its samples.
struct SampleArgs {
  Selected selected;
  Dtype dtype;
  bool largest;
  uint32_t stride;
  uint32_t samples;  // of one row
  uint64_t* ranks;   // (rows, samples): ranks (key.h) in the whole row, 0 where there is none
};

// From all ranks' samples and a rank's selection, best first, to its words.
struct ContributeArgs {
  Selected selected;
  Dtype dtype;
  bool largest;
  int64_t k;
  uint32_t stride;
  uint32_t samples;
  const uint64_t* ranks;  // (shards.ranks, rows, samples)
  uint32_t slots;         // slots_of
  uint64_t* words;        // (rows, slots)
};

// J above: the bound is the J-th best sample.
TL_TOPK_HD uint32_t bound_of(int64_t k, uint32_t stride) {
  return static_cast<uint32_t>((k + stride - 1) / stride);
}

// Slots that hold whatever reaches the bound.
TL_TOPK_HD uint32_t slots_of(int64_t k, uint32_t stride, uint32_t ranks) {
  return whole_quads(stride * (bound_of(k, stride) + ranks));
}

// From lengths of the whole row to lengths of this rank's shard.
struct LengthsArgs {
  int64_t rows;
  IntVector whole;
  int32_t* local;
};

}  // namespace tl_topk
