// The CPU backend: how a problem is spread over threads, and what is done with one row.
//
// A sample gives a floor that almost surely k elements reach; one pass rejects the rest with a
// vector compare (scan.h); an exact selection picks the k best of the few thousand survivors
// (select.h). Where the sample misled, the pass is repeated without a floor, which is exact on
// every input. Whatever the row holds, it is read three times at most and selected from in linear
// time: see kth_rank() and candidate_capacity() for the constants.
#include "cpu/topk_cpu.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "cpu/elements.h"
#include "cpu/filter.h"
#include "cpu/sample.h"
#include "cpu/scan.h"
#include "cpu/scratch.h"
#include "cpu/select.h"
#include "cpu/thread_pool.h"
#include "mapping.h"
#include "row_span.h"

namespace tl_topk {
namespace {

// Below this many elements in all, waking another thread takes longer than the work.
constexpr int64_t kLeastParallel = 1 << 16;
// A row is divided among threads from this width on, into parts of at least this length.
constexpr int64_t kLeastSplit = 1 << 19;
constexpr int64_t kLeastPart = 1 << 16;
constexpr int64_t kPartsPerThread = 8;  // a helper that wakes late finds parts left
constexpr int64_t kMostParts = 64;
constexpr int64_t kElementsPerTask = 1 << 14;  // short rows are handed out in groups

// Working memory for one row at a time. Every part of the row has its own list of candidates.
// While the lists are filled, every thread has its own share of `spare`; after that, all of it
// serves the selection.
struct Scratch {
  uint64_t* lists;
  int64_t list_size;
  uint64_t* spare;
  int64_t spare_size;  // of one thread

  static int64_t spare_for(int64_t list_size) { return std::max(list_size, kMostSamples); }
};

// The result slots of one row.
template <class Element>
class Slots {
 public:
  Slots(const TopKArgs& args, int64_t r)
      : indices_(args.indices == nullptr ? nullptr : args.indices + r * args.indices_stride),
        values_(args.values == nullptr
                    ? nullptr
                    : static_cast<char*>(args.values) + r * args.values_stride * kSize),
        mapping_(args.mapping != nullptr ? map_row(*args.mapping, r) : RowMapping{}) {}

  void put(int64_t slot, const Row<Element>& row, uint32_t index) const {
    put_index(slot, index);
    if (values_ != nullptr) std::memcpy(values_ + slot * kSize, row.at(index), kSize);
  }

  void put_whole(const Row<Element>& row) const {
    for (int64_t i = 0; i < row.length; ++i) put_index(i, static_cast<uint32_t>(i));
    if (values_ != nullptr) {
      std::memcpy(values_, row.data, static_cast<size_t>(row.length * kSize));
    }
  }

  void pad(int64_t begin, int64_t end, bool largest) const {
    for (int32_t* each : {indices_, mapping_.slots, mapping_.ragged}) {
      if (each != nullptr) std::fill(each + begin, each + end, -1);
    }
    if (values_ == nullptr) return;
    const auto bits = padding_bits<Element>(largest);
    for (int64_t i = begin; i < end; ++i) std::memcpy(values_ + i * kSize, &bits, kSize);
  }

 private:
  static constexpr int64_t kSize = sizeof(typename Element::Bits);

  void put_index(int64_t slot, uint32_t index) const {
    if (indices_ != nullptr) indices_[slot] = static_cast<int32_t>(index);
    if (mapping_.slots != nullptr) mapping_.slots[slot] = mapping_.slot(index);
    if (mapping_.ragged != nullptr) mapping_.ragged[slot] = mapping_.place(index);
  }

  int32_t* indices_;
  char* values_;
  RowMapping mapping_;  // without outputs where nothing is mapped
};

// Fills the lists with all elements that may be among the k best, k <= length; returns how many
// these are. run_parts(parts, body) calls body(part, slot) for every part.
template <class Element, class RunParts>
int64_t find_candidates(const Row<Element>& row, int64_t k, int64_t parts, const Scratch& scratch,
                        const RunParts& run_parts, Candidates* found) {
  const auto pass = [&](uint32_t floor) {
    Bound bound;
    run_parts(parts, [&](int64_t part, int slot) {
      found[part] = {scratch.lists + part * scratch.list_size, scratch.list_size};
      scan(row, part * row.length / parts, (part + 1) * row.length / parts, k, floor, bound,
           found[part], scratch.spare + slot * scratch.spare_size);
    });
    int64_t count = 0;
    for (int64_t part = 0; part < parts; ++part) count += found[part].count;
    return count;
  };
  const int64_t count = pass(sample_floor(row, k, scratch.spare));
  // With fewer than k the sample misled; without a floor at least k are found.
  return count >= k ? count : pass(kNanKey);
}

template <class Element, class RunParts>
void select_row(const Row<Element>& row, int64_t k, Order order, int64_t parts,
                const Scratch& scratch, const RunParts& run_parts, const Slots<Element>& slots) {
  const int64_t kept = std::min(row.length, k);
  slots.pad(kept, k, row.largest);
  if (kept == 0) return;
  if (kept == row.length && order != Order::kValue) {
    slots.put_whole(row);
    return;
  }

  std::array<Candidates, kMostParts> found;
  const int64_t count = find_candidates(row, kept, parts, scratch, run_parts, found.data());
  uint64_t threshold = 0;
  if (count > kept) {
    uint64_t* end = scratch.spare;
    for (int64_t part = 0; part < parts; ++part) {
      end = std::copy(found[part].ranks, found[part].ranks + found[part].count, end);
    }
    threshold = kth_rank(scratch.spare, count, kept, scratch.spare);
  }

  // The lists are in the order of the row, so the winners come by ascending index.
  int64_t winners = 0;
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t members = keep_from(found[part].ranks, found[part].count, threshold);
    for (int64_t i = 0; i < members; ++i, ++winners) {
      if (order == Order::kValue) {
        scratch.spare[winners] = found[part].ranks[i];
      } else {
        slots.put(winners, row, index_of_rank(found[part].ranks[i]));
      }
    }
  }
  if (order != Order::kValue) return;
  sort_by_value(scratch.spare, kept, scratch.lists);
  for (int64_t i = 0; i < kept; ++i) slots.put(i, row, index_of_rank(scratch.spare[i]));
}

template <class Element>
Row<Element> row_of(const TopKArgs& args, int64_t r) {
  const RowSpan span =
      args.mapping == nullptr
          ? row_span(args.problem.width, args.lengths, args.row_starts, r)
          : mapped_row_span(args.problem.width, args.lengths, args.row_starts, *args.mapping, r);
  const int64_t size = element_size(args.problem.dtype);
  const char* scores = static_cast<const char*>(args.scores);
  return {scores + (r * args.scores_stride + span.begin) * size, span.length, args.problem.largest};
}

// Whole rows, each by one thread.
template <class Element, class Run>
void select_whole_rows(const TopKArgs& args, int threads, ScratchMemory& memory, const Run& run) {
  const Problem& p = args.problem;
  const int64_t list_size = candidate_capacity(p.width, std::min(p.k, p.width));
  const int64_t spare_size = Scratch::spare_for(list_size);
  uint64_t* const base = memory.reserve(threads * (list_size + spare_size));
  const auto alone = [](int64_t, const auto& body) { body(int64_t{0}, 0); };

  const int64_t rows_per_task = std::max<int64_t>(kElementsPerTask / (p.width + p.k), 1);
  run((p.rows + rows_per_task - 1) / rows_per_task, [&](int64_t task, int slot) {
    uint64_t* const own = base + slot * (list_size + spare_size);
    const Scratch scratch = {own, list_size, own + list_size, spare_size};
    const int64_t end = std::min((task + 1) * rows_per_task, p.rows);
    for (int64_t r = task * rows_per_task; r < end; ++r) {
      select_row(row_of<Element>(args, r), p.k, p.order, 1, scratch, alone,
                 Slots<Element>(args, r));
    }
  });
}

// One row after the other, each by all threads.
template <class Element, class Run>
void select_split_rows(const TopKArgs& args, int threads, ScratchMemory& memory, const Run& run) {
  const Problem& p = args.problem;
  const int64_t most_parts = std::min(threads * kPartsPerThread, kMostParts);
  const auto parts_of = [&](int64_t length) {
    return std::min(std::max<int64_t>(length / kLeastPart, 1), most_parts);
  };
  // The widest row has the longest parts, or as long ones as any.
  const int64_t part_length = std::max(p.width / parts_of(p.width) + 1, 2 * kLeastPart);
  const int64_t list_size = candidate_capacity(part_length, std::min(p.k, p.width));
  const int64_t lists_size = list_size * parts_of(p.width);
  const int64_t spare_size = Scratch::spare_for(list_size);
  uint64_t* const base = memory.reserve(lists_size + std::max(lists_size, threads * spare_size));
  const Scratch scratch = {base, list_size, base + lists_size, spare_size};
  for (int64_t r = 0; r < p.rows; ++r) {
    const Row<Element> row = row_of<Element>(args, r);
    select_row(row, p.k, p.order, parts_of(row.length), scratch, run, Slots<Element>(args, r));
  }
}

template <class Element>
void select_all(const TopKArgs& args, int threads, ScratchMemory& memory) {
  const Problem& p = args.problem;
  const bool parallel = threads != 1 && p.rows * (p.width + p.k) >= kLeastParallel;
  if (!parallel) {
    const auto run = [](int64_t tasks, const auto& body) {
      for (int64_t task = 0; task < tasks; ++task) body(task, 0);
    };
    select_whole_rows<Element>(args, 1, memory, run);
  } else {
    ThreadPool& pool = shared_pool();
    const int available = pool.workers() + 1;
    const int used = threads == 0 ? available : std::min(threads, available);
    const auto run = [&](int64_t tasks, const auto& body) { pool.run(tasks, used, body); };
    if (p.width >= kLeastSplit && 2 * p.rows <= used) {
      select_split_rows<Element>(args, used, memory, run);
    } else {
      select_whole_rows<Element>(args, used, memory, run);
    }
  }
}

}  // namespace

void topk_cpu(const TopKArgs& args, int threads) {
  if (args.problem.rows == 0 || args.problem.k == 0) return;
  thread_local ScratchMemory memory;
  switch (args.problem.dtype) {
    case Dtype::kFloat32:
      select_all<Float32>(args, threads, memory);
      break;
    case Dtype::kFloat16:
      select_all<Float16>(args, threads, memory);
      break;
    case Dtype::kBFloat16:
      select_all<BFloat16>(args, threads, memory);
      break;
  }
  memory.release_excess();
}

const char* cpu_simd_name() { return filter_kernel().name; }

}  // namespace tl_topk
