#include "cpu/exchange_cpu.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>
#include <vector>

namespace tl_topk {
namespace {

// The k-th best of `ranks`, or the least rank there is where they are fewer. They need not be
// distinct: what other ranks send decides how many are selected, never whether this ends.
uint64_t bound_among(std::vector<uint64_t> ranks, int64_t k) {
  if (static_cast<int64_t>(ranks.size()) <= k) return 1;
  const auto kth = ranks.begin() + (k - 1);
  std::nth_element(ranks.begin(), kth, ranks.end(), std::greater<>());
  return *kth;
}

struct Winner {
  uint64_t rank;
  uint32_t bits;
};

template <Dtype D>
void merge_row(const MergeArgs& args, const Shards& shards, int64_t row) {
  std::vector<Winner> winners;
  std::vector<uint64_t> ranks;
  for (uint32_t i = 0; i < args.candidates(shards); ++i) {
    const Candidate c = args.at<D>(shards, row, i);
    if (!c.present) continue;
    winners.push_back({rank_of_candidate<D>(c, args.largest), c.bits});
    ranks.push_back(winners.back().rank);
  }
  const uint64_t bound = bound_among(std::move(ranks), args.k);
  winners.erase(std::remove_if(winners.begin(), winners.end(),
                               [bound](const Winner& w) { return w.rank < bound; }),
                winners.end());
  if (args.order == Order::kValue) {
    std::sort(winners.begin(), winners.end(),
              [](const Winner& a, const Winner& b) { return a.rank > b.rank; });
  } else if (args.order == Order::kIndex) {
    std::sort(winners.begin(), winners.end(), [](const Winner& a, const Winner& b) {
      return index_of_rank(a.rank) < index_of_rank(b.rank);
    });
  }

  // Never more than there is room for, whatever the other ranks have sent.
  winners.resize(std::min(winners.size(), static_cast<size_t>(args.k)));

  using Raw = typename RawOf<D>::Type;
  int32_t* const indices = args.indices + row * args.k;
  Raw* const values = static_cast<Raw*>(args.values) + row * args.k;
  int64_t slot = 0;
  for (const Winner& w : winners) {
    indices[slot] = static_cast<int32_t>(index_of_rank(w.rank));
    values[slot++] = static_cast<Raw>(w.bits);
  }
  std::fill(indices + slot, indices + args.k, -1);
  std::fill(values + slot, values + args.k, padding_of<D>(args.largest));
  if (args.local_indices == nullptr) return;
  int32_t* const local = args.local_indices + row * args.k;
  int64_t own = 0;
  for (const Winner& w : winners) {
    const uint32_t index = index_of_rank(w.rank);
    if (shards.is_mine(index)) local[own++] = static_cast<int32_t>(shards.local_index(index));
  }
  std::fill(local + own, local + args.k, -1);
}

template <Dtype D>
void contribute_row(const ContributeArgs& args, const Shards& shards, int64_t row) {
  const auto samples_of = [&](uint32_t rank) {
    return args.ranks + (rank * args.selected.rows + row) * args.samples;
  };
  std::vector<uint64_t> present;
  for (uint32_t r = 0; r < shards.ranks; ++r) {
    std::copy_if(samples_of(r), samples_of(r) + args.samples, std::back_inserter(present),
                 [](uint64_t rank) { return rank != 0; });
  }
  const uint64_t bound = bound_among(std::move(present), bound_of(args.k, args.stride));
  const auto room_of = [&](uint32_t rank) {
    const uint64_t* const samples = samples_of(rank);
    return args.stride * (1 + std::count_if(samples, samples + args.samples,
                                            [bound](uint64_t sample) { return sample >= bound; }));
  };
  int64_t begin = 0;
  for (uint32_t r = 0; r < shards.rank; ++r) begin += room_of(r);
  uint64_t* const words = args.words + row * args.slots;
  std::fill(words, words + args.slots, 0);
  const auto count = std::min<int64_t>(room_of(shards.rank), args.selected.count);
  for (int64_t i = 0; i < count; ++i) {
    words[begin + i] =
        word_of(args.selected.at<D>(shards, shards.rank, row, static_cast<uint32_t>(i)));
  }
}

}  // namespace

void local_lengths_cpu(const LengthsArgs& args, const Shards& shards) {
  for (int64_t row = 0; row < args.rows; ++row) {
    args.local[row] =
        static_cast<int32_t>(shards.local_length(shards.rank, load_int(args.whole, row)));
  }
}

void sample_cpu(const SampleArgs& args, const Shards& shards) {
  with_dtype(args.dtype, [&](auto dtype) {
    for (int64_t row = 0; row < args.selected.rows; ++row) {
      for (uint32_t i = 0; i < args.samples; ++i) {
        const Candidate c =
            args.selected.at<dtype>(shards, shards.rank, row, (i + 1) * args.stride - 1);
        args.ranks[row * args.samples + i] = rank_of_candidate<dtype>(c, args.largest);
      }
    }
  });
}

void contribute_cpu(const ContributeArgs& args, const Shards& shards) {
  with_dtype(args.dtype, [&](auto dtype) {
    for (int64_t row = 0; row < args.selected.rows; ++row) contribute_row<dtype>(args, shards, row);
  });
}

void merge_cpu(const MergeArgs& args, const Shards& shards) {
  with_dtype(args.dtype, [&](auto dtype) {
    for (int64_t row = 0; row < args.rows; ++row) merge_row<dtype>(args, shards, row);
  });
}

}  // namespace tl_topk
