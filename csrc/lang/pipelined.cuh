// What the TileLang selector (tl_topk/tile/pipelined.py) does not say in TileLang: bounds of rows,
// the append of what passes the floor, and the exact end.
#pragma once

#include <cstdint>

#include "../row_span.h"
#include "floor.cuh"
#include "listed.cuh"
#include "row.cuh"
#include "select.cuh"

namespace tl_topk::lang {

// Which row a block works on. Divisions are slow enough to be avoided: most often there is one row.
__device__ __forceinline__ int row_of(int block, int blocks) {
  return block < blocks ? 0 : block / blocks;
}
// How many of a row's tiles each of its `blocks` blocks gets, the last ones less or nothing.
__device__ __forceinline__ int tiles_each(int tiles, int blocks) {
  return tiles <= blocks ? 1 : (tiles + blocks - 1) / blocks;
}
__device__ __forceinline__ int parts_of(int tiles, int each) {
  return each == 1 ? tiles : (tiles + each - 1) / each;
}

// Where the time inside a launch goes. Only where a benchmark asks (-DTL_TOPK_PHASE_CLOCK): then
// the clocks of a block's first thread lie where values would, which must not be asked for.
constexpr int kPhases = 7;  // start, sample there, floor known, filtered, together, counted, end
__device__ __forceinline__ void mark(void* clocks, int phase) {
#ifdef TL_TOPK_PHASE_CLOCK
  if (threadIdx.x == 0) static_cast<long long*>(clocks)[blockIdx.x * kPhases + phase] = clock64();
#endif
}

// kind: 0 not given, 1 int32, 2 int64.
__device__ __forceinline__ IntVector int_vector(const void* data, int kind) {
  return {kind == 0 ? nullptr : data, kind == 2};
}
// Where row `row` starts, counted from the boundary below the matrix, and how long it is.
__device__ __forceinline__ void find_row(int64_t width, const void* lengths, int lengths_kind,
                                         const void* starts, int starts_kind, int row,
                                         int64_t stride, int64_t skew, int64_t* start,
                                         int* length) {
  RowSpan span{0, width};
  if ((lengths_kind | starts_kind) != 0) {
    span = row_span(width, int_vector(lengths, lengths_kind), int_vector(starts, starts_kind), row);
  }
  *start = skew + row * stride + span.begin;
  *length = static_cast<int>(span.length);
}

// What turns raw bits so that better scores are larger: a mask, for a choice at each use would
// become two copies of the code.
template <int kDtype>
__device__ __forceinline__ typename Element<static_cast<Dtype>(kDtype)>::Raw flip_of(int largest) {
  using E = Element<static_cast<Dtype>(kDtype)>;
  return largest != 0 ? typename E::Raw{0} : E::kSign;
}
template <int kDtype, typename Word, typename Raw>
__device__ __forceinline__ float oriented(Word bits, Raw flip) {
  return Element<static_cast<Dtype>(kDtype)>::widen(
      static_cast<Raw>(static_cast<Raw>(bits) ^ flip));
}

// rank_key of a number, without branches. One key for both zeros, whose sum with 0 is 0.
__device__ __forceinline__ uint64_t rank_of_number(float score, int index) {
  const uint32_t key = order_key_of_number(__float_as_uint(__fadd_rn(score, 0.0f)));
  return rank_key(key, static_cast<uint32_t>(index));
}
// The same of any score.
__device__ __forceinline__ uint64_t rank_of(float score, int index) {
  const bool number = (__float_as_uint(score) & ~kSignBit) <= kInfBits;
  const uint64_t rank = rank_of_number(score, index);
  return number ? rank : rank_key(kNanKey, static_cast<uint32_t>(index));
}

__device__ __forceinline__ Scratch& scratch_of(void* words) {
  return *static_cast<Scratch*>(words);
}

// The vector that this thread samples as number `load` of `loads`: spread over the row, and so that
// threads that share a group look at different ends of it. The row's first and last vector, which
// may hold others' scores, are left out.
template <int kThreads>
__device__ __forceinline__ int sample_place(int load, int loads, int row_vectors) {
  constexpr uint32_t kSpread = 1265;  // odd, so that no place is taken twice
  const auto places = static_cast<uint32_t>(loads) * kThreads;  // a power of two
  const uint32_t place = (static_cast<uint32_t>(load) * kThreads + threadIdx.x) * kSpread;
  const uint32_t share = place << (__clz(places) + 1);  // of 2^32
  return 1 + static_cast<int>(
                 static_cast<uint64_t>(share) * static_cast<uint32_t>(row_vectors - 2) >> 32);
}

// There are no entries. Not in TileLang, which puts a barrier behind it, and loads should come
// first.
__device__ __forceinline__ void clear_count(int* count) {
  if (threadIdx.x == 0) *count = 0;
}

// At the first step only: the floor of a row from the first `size` of this thread's sampled scores.
// `range` (2 words) becomes the keys of the floor and of the best of the sample. Later: `floor`.
// What the end needs is made ready meanwhile.
template <int kDtype, int kThreads, int kMost, typename Word>
__device__ __forceinline__ float find_floor(int step, float floor, const Word* sampled, int size,
                                            int length, int k, int largest, void* floor_scratch,
                                            int* range, void* scratch, void* clocks) {
  constexpr int kPerVector = 16 / sizeof(Word);
  if (step != 0) return floor;
  clear_bins(Block<kThreads>{threadIdx.x}, scratch_of(scratch));
  const uint32_t rank = floor_rank<kThreads>(size, length, k);
  const auto flip = flip_of<kDtype>(largest);
  mark(clocks, 1);
  float best = -INFINITY;
#pragma unroll
  for (int first = 0; first < kMost; first += kPerVector) {
    if (first >= size) break;  // whole vectors, but for the first
#pragma unroll
    for (int e = first; e < first + kPerVector; ++e) {
      if (first > 0 || e < size) best = fmaxf(best, oriented<kDtype>(sampled[e], flip));
    }
  }
  const SampledRange found = sampled_range(Block<kThreads>{threadIdx.x}, best, rank,
                                           *static_cast<FloorScratch*>(floor_scratch));
  range[0] = static_cast<int>(found.floor);
  range[1] = static_cast<int>(found.highest);
  mark(clocks, 2);
  return __uint_as_float(bits_of_key(found.floor));
}

// Adds this thread's scores that pass the floor and are of the row to the list, if there is room;
// counts them anyway. It holds kVectors vectors; the first score's index is `first`, and from
// vector to vector kThreads of them lie between. The row begins `start` scores behind `scores`, and
// what it has past the first `whole` of them is read here. One reservation a warp. In whole warps.
template <int kDtype, int kThreads, int kVectors, typename Word>
__device__ __forceinline__ void append(void* list_words, int* count, int capacity, Word* held,
                                       const void* scores, int64_t start, int whole, int first,
                                       int length, float floor, int largest) {
  constexpr int kPerVector = 16 / sizeof(Word);
  constexpr int kApart = kThreads * kPerVector;
  auto* const list = static_cast<uint64_t*>(list_words);
  const auto flip = flip_of<kDtype>(largest);
  if (whole < length) {
#pragma unroll
    for (int e = 0; e < kVectors * kPerVector; ++e) {
      const int index = first + e / kPerVector * kApart + e % kPerVector;
      if (index >= whole && index < length) {
        held[e] = static_cast<const Word*>(scores)[start + index];
      }
    }
  }
  uint32_t passing = 0;
#pragma unroll
  for (int e = 0; e < kVectors * kPerVector; ++e) {
    passing |= static_cast<uint32_t>(oriented<kDtype>(held[e], flip) > floor) << e;
  }
  if (first < 0 || length - first < (kVectors - 1) * kApart + kPerVector) {
    uint32_t inside = 0;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int before = min(max(-(first + v * kApart), 0), kPerVector);
      const int upto = min(max(length - (first + v * kApart), 0), kPerVector);
      inside |= ((1u << upto) - 1 & ~((1u << before) - 1)) << v * kPerVector;
    }
    passing &= inside;
  }
  if (__ballot_sync(kAllLanes, passing != 0) == 0) return;
  const int mine = __popc(passing);
  int upto = mine;
#pragma unroll
  for (uint32_t d = 1; d < 32; d *= 2) {
    const int before = __shfl_up_sync(kAllLanes, upto, d);
    if (lane() >= d) upto += before;
  }
  int base = 0;
  if (lane() == 31) base = atomicAdd(count, upto);
  int at = __shfl_sync(kAllLanes, base, 31) + upto - mine;
#pragma unroll
  for (int e = 0; e < kVectors * kPerVector; ++e) {
    const int index = first + e / kPerVector * kApart + e % kPerVector;
    const bool passes = (passing >> e & 1) != 0;
    const uint64_t rank = rank_of_number(oriented<kDtype>(held[e], flip), index);
    if (passes && at < capacity) list[at] = rank;
    at += passes;
  }
}

// This block's list to the end of the row's list in global memory, which has `room` for more than
// one block's `capacity`, then a ticket. True, for all threads, in the block that comes last: then
// *count is how many entries the row's list has, and the counter is as it was found. `counters`:
// one of 64 bits a row, entries in the lower half, tickets in the upper.
template <int kThreads>
__device__ __forceinline__ int deliver(const void* list_words, int* count, int capacity,
                                       void* lists, int room, void* counters, int row, int blocks,
                                       int* shared) {
  const auto* const list = static_cast<const uint64_t*>(list_words);
  auto* const row_list = static_cast<uint64_t*>(lists) + static_cast<int64_t>(row) * room;
  auto* const counter = static_cast<unsigned long long*>(counters) + row;
  constexpr unsigned long long kTicket = 1ull << 32;
  __syncthreads();
  const int mine = *count;
  if (mine > 0) {
    // More than its list holds: the row's count must say so too.
    if (threadIdx.x == 0) {
      *shared = static_cast<int>(
          atomicAdd(counter, static_cast<unsigned long long>(mine) + (mine > capacity ? room : 0)));
    }
    __syncthreads();
    const auto base = static_cast<uint32_t>(*shared);
    for (uint32_t i = threadIdx.x; i < min(mine, capacity); i += kThreads) {
      if (base + i < room) __stcg(row_list + base + i, list[i]);
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();  // what the whole block has stored, for the barrier lies between
    const unsigned long long before = atomicAdd(counter, kTicket);
    const bool last = static_cast<int>(before / kTicket) == blocks - 1;
    *shared = last;
    if (last) {
      __threadfence();
      *counter = 0;
      *count = static_cast<int>(min(before % kTicket, static_cast<unsigned long long>(INT32_MAX)));
    }
  }
  __syncthreads();
  return *shared;
}

// One row of the problem and of its result, as a TileLang program hands them over.
template <int kDtype, int kThreads>
struct Task {
  static constexpr auto kD = static_cast<Dtype>(kDtype);
  using Raw = typename Element<kD>::Raw;
  RowSource<kD, kThreads> row;
  Output<kD, kThreads> out;

  __device__ __forceinline__ Task(int number, const void* scores, int64_t start, int length,
                                  int* indices, int64_t indices_stride, void* values,
                                  int64_t values_stride, int with_values, int k, int order,
                                  int largest, void* keys)
      : row{{threadIdx.x},
            static_cast<const Raw*>(scores) + start,
            static_cast<uint32_t>(length),
            flip_of<kDtype>(largest)},
        out{{threadIdx.x},
            row.first,
            indices + number * indices_stride,
            with_values != 0 ? static_cast<Raw*>(values) + number * values_stride : nullptr,
            static_cast<uint32_t>(k),
            static_cast<Order>(order),
            largest != 0,
            static_cast<uint64_t*>(keys)} {}

  // The k best of `count` ranks of a list, all counted; `source` has the same ones.
  template <typename Source>
  __device__ __forceinline__ void finish(const uint64_t* list, uint32_t places, const KeyBins& bins,
                                         const Source& source, uint32_t count,
                                         Scratch& scratch) const {
    uint64_t* const winners = out.keys;
    if (out.order == Order::kAny && out.values == nullptr) {
      auto* const slots = reinterpret_cast<uint32_t*>(winners);
      if (select_counted(row.block, list, places, bins, out.k, scratch, slots)) {
        // Neighbours together, which the slots were not as they were found.
#pragma unroll 4
        for (uint32_t i = threadIdx.x; i < out.k; i += kThreads) {
          out.indices[i] = static_cast<int32_t>(slots[i]);
        }
        return;
      }
    } else if (select_counted(row.block, list, places, bins, out.k, scratch, winners)) {
      return write_winners(out, winners);
    }
    select_apart(row.block, source, count, out.k, scratch, winners);
    write_winners(out, winners);
  }
};

// The end of a row that the block holds, kHeld scores a thread in vectors that lie as append() has
// them; the row begins with number `head` of them, and what it has past the first `whole` scores is
// read here. `list`: kHeld * kThreads ranks.
template <int kDtype, int kThreads, int kHeld, typename Word, typename... Rest>
__device__ __forceinline__ void finish_short(const Word* held, int head, int whole,
                                             void* list_words, void* scratch_words, void* clocks,
                                             Rest... rest) {
  constexpr int kPerVector = 16 / sizeof(Word);
  const Task<kDtype, kThreads> task(rest...);
  const auto& row = task.row;
  if (row.length <= task.out.k) return select_all(row, task.out);
  clear_bins(row.block, scratch_of(scratch_words));
  auto* const list = static_cast<uint64_t*>(list_words);
  Scratch& scratch = scratch_of(scratch_words);
  const uint32_t vectors = (row.length + head + kPerVector - 1) / kPerVector;
  const uint32_t used = (vectors + kThreads - 1) / kThreads * kPerVector;
  uint32_t lowest = 0xffffffffu;
  uint32_t highest = 0;
#pragma unroll
  for (int e = 0; e < kHeld; ++e) {
    if (e % kPerVector == 0 && e >= used) break;
    const int index = (e / kPerVector * kThreads + static_cast<int>(threadIdx.x)) * kPerVector +
                      e % kPerVector - head;
    const bool inside = static_cast<uint32_t>(index) < row.length;
    const uint64_t rank = !inside         ? 0
                          : index < whole ? rank_of(oriented<kDtype>(held[e], row.flip), index)
                                          : row.rank(index);
    list[e * kThreads + threadIdx.x] = rank;
    if (inside) lowest = min(lowest, key_of_rank(rank));
    highest = max(highest, key_of_rank(rank));
  }
  for (int phase = 1; phase <= 4; ++phase) mark(clocks, phase);  // there is no floor
  const KeyBins bins = bins_of_all(row.block, lowest, highest, scratch);
  const uint32_t places = used * kThreads;
  for (uint32_t i = threadIdx.x; i < places; i += kThreads) count_rank(bins, list[i], scratch);
  mark(clocks, 5);
  task.finish(list, places, bins, row, row.length, scratch);
}

// The end of a longer row: the k best of the *count entries above the floor, or of the whole row
// where that cannot be. The entries lie in the block's list, of kCapacity, or where several blocks
// share a row without a cluster (`room` > 0), in the row's list. `range`: see find_floor().
template <int kDtype, int kThreads, int kCapacity, typename... Rest>
__device__ __forceinline__ void finish_long(void* list_words, const int* count, void* lists,
                                            int room, const int* range, void* scratch_words,
                                            void* clocks, int number, Rest... rest) {
  const Task<kDtype, kThreads> task(number, rest...);
  const Block<kThreads> block = task.row.block;
  Scratch& scratch = scratch_of(scratch_words);
  __syncthreads();  // the last entries have been appended
  const bool afar = room > 0;
  auto* const row_list = static_cast<uint64_t*>(lists) + static_cast<int64_t>(number) * room;
  auto* const list = static_cast<uint64_t*>(list_words);
  const auto entries = static_cast<uint32_t>(*count);
  const float floor = __uint_as_float(bits_of_key(static_cast<uint32_t>(range[0])));
  const bool too_few = entries < task.out.k;
  if (too_few && select_ties(task.row, floor, afar ? row_list : list, entries, task.out, scratch)) {
    task.out.finish(task.out.k);
  } else if (too_few || entries > static_cast<uint32_t>(afar ? room : kCapacity)) {
    select_row(task.row, floor, task.out, scratch);
  } else if (entries > kCapacity) {
    select_apart(block, ListSource<kThreads>{block, row_list, entries}, entries, task.out.k,
                 scratch, task.out.keys);
    write_winners(task.out, task.out.keys);
  } else {
    const KeyBins bins =
        bins_between(static_cast<uint32_t>(range[0]), static_cast<uint32_t>(range[1]));
    count_list(block, bins, list, afar ? row_list : nullptr, entries, scratch);
    mark(clocks, 5);
    task.finish(list, entries, bins, ListSource<kThreads>{block, list, entries}, entries, scratch);
  }
  if (afar) {  // the workspace is left as it was found
    const uint32_t written = min(entries, static_cast<uint32_t>(room));
    for (uint32_t i = threadIdx.x; i < written; i += kThreads) row_list[i] = 0;
  }
}

}  // namespace tl_topk::lang
