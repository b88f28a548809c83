// The end of a fused indexer's program: the block that has a row's last tile selects from what all
// blocks let through.
//
// It gathers the survivors and takes the k best of them, which is exact if at least k lie above the
// highest floor. Where they do not, or something overflowed, it narrows down the row's scores
// instead, which have all been written: exact whatever they are, and without the host.
//
// It waits for blocks of lower numbers only, which the GPU has started before it: no deadlock, even
// where not all blocks run at the same time.
#pragma once

#include <cstdint>

#include "bin_map.h"
#include "cuda/histogram.cuh"
#include "cuda/indexer_clock.cuh"
#include "cuda/indexer_exchange.cuh"
#include "cuda/indexer_filter.cuh"
#include "cuda/prefix_sum.cuh"
#include "cuda/ptx.cuh"
#include "cuda/radix.cuh"
#include "key.h"

namespace tl_topk::indexer {

constexpr uint32_t kTailBins = 512;
constexpr uint32_t kMaxRanked = 128;  // ranked by one comparison a pair
constexpr uint32_t kConsumersBarrier = 4;
constexpr uint32_t kTeamBarrier = 5;  // and the next, for a second team

__device__ __forceinline__ void named_sync(uint32_t barrier, uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

enum class Result : uint32_t { kPositions = 0, kSlots = 1, kRagged = 2 };

struct TailParams {
  const float* scores;     // (rows, width), of which each row's first `length` count
  int32_t* indices;        // (rows, k)
  const int32_t* table;    // (sequences, width / 64), for slots
  const int32_t* offsets;  // (rows,), for ragged indices
  Exchange exchange;
  uint32_t width;
  uint32_t pages;
  uint32_t k;
  Result result;
};

// Of one team, in shared memory.
template <uint32_t kCapacity>
struct TailState {
  Survivor list[kCapacity];
  uint32_t bins[kTailBins];
  __align__(16) uint64_t ranked[kMaxRanked];
  Crossing crossing;
  uint32_t total;  // entries of the list
  uint32_t overflow;
  uint32_t floor_key;  // the highest floor's
  uint32_t winners;
  uint32_t inside;
  uint32_t tally[2];
};

// What the program sets aside for it, in words.
constexpr uint32_t kTailWords = 800;  // beside the list

// `kThreads` threads, whole warps, with a barrier of their own.
template <uint32_t kTeamThreads, uint32_t kCapacity>
class Tail {
  using State = TailState<kCapacity>;
  static constexpr uint32_t kTeamWarps = kTeamThreads / kWarp;
  static_assert(kCapacity * sizeof(Survivor) >= kDigitBins * 4, "digits are counted in the list");
  static_assert(sizeof(State) <= kCapacity * sizeof(Survivor) + kTailWords * 4);
  static_assert(kTeamThreads >= kMaxRanked, "each ranks one");

 public:
  __device__ Tail(const TailParams& params, State& state, uint32_t team, uint32_t row,
                  uint32_t length)
      : p_(params),
        s_(state),
        barrier_(kTeamBarrier + team),
        thread_(threadIdx.x - team * kTeamThreads),
        row_(row),
        length_(length) {}

  // `first` to `last`: the blocks that worked on the row.
  __device__ void run(uint32_t first, uint32_t last, uint32_t nonce, float ceiling) {
    for (uint32_t i = thread_; i < kTailBins; i += kTeamThreads) s_.bins[i] = 0;
    if (thread_ < kMaxRanked) s_.ranked[thread_] = 0;
    if (thread_ == 0) {
      s_.total = 0;
      s_.overflow = 0;
      s_.floor_key = 0;
      s_.winners = 0;
      s_.inside = 0;
      s_.crossing.bin = kNone;
    }
    sync();
    gather(first, last, nonce);
    sync();
    mark(kMomentGathered);
    forget(first, last);
    if (length_ <= p_.k) {
      take_all();
    } else if (s_.overflow != 0 || s_.total > kCapacity || !select_from_list(ceiling)) {
      select_exactly();
    }
    sync();  // the state may be used again
    mark(kMomentEnd);
  }

 private:
  __device__ uint32_t lane() const { return threadIdx.x % kWarp; }
  __device__ uint32_t warp() const { return thread_ / kWarp; }
  __device__ void sync() const { named_sync(barrier_, kTeamThreads); }

  // One slot of the result.
  __device__ __forceinline__ void put(uint32_t slot, uint32_t position) const {
    uint32_t index = position;
    if (p_.result == Result::kSlots) {
      const uint32_t sequence = row_ / p_.exchange.queries;
      const int32_t page =
          p_.table[static_cast<uint64_t>(sequence) * (p_.width / kPageKeys) + position / kPageKeys];
      const bool there = static_cast<uint32_t>(page) < p_.pages;
      index = there ? page * kPageKeys + position % kPageKeys : 0xffffffffu;
    } else if (p_.result == Result::kRagged) {
      index += static_cast<uint32_t>(p_.offsets[row_]);
    }
    p_.indices[static_cast<uint64_t>(row_) * p_.k + slot] = static_cast<int32_t>(index);
  }

  __device__ void take_all() const {
    for (uint32_t i = thread_; i < p_.k; i += kTeamThreads) {
      if (i < length_) {
        put(i, i);
      } else {
        p_.indices[static_cast<uint64_t>(row_) * p_.k + i] = -1;
      }
    }
  }

  // Reserves n slots of a counter in shared memory for this warp; called by whole warps.
  __device__ __forceinline__ uint32_t reserve(uint32_t* counter, uint32_t n) const {
    uint32_t base = 0;
    if (lane() == 0 && n != 0) base = atomicAdd(counter, n);
    return __shfl_sync(kAllLanes, base, 0);
  }

  __device__ uint32_t segment(uint32_t block) const {
    const Exchange& x = p_.exchange;
    return x.segment(block, row_ / x.queries, row_ % x.queries);
  }

  // The row's segments into one list, in any order, each as soon as it is there.
  __device__ void gather(uint32_t first, uint32_t last, uint32_t nonce) {
    const Exchange& x = p_.exchange;
    const uint64_t tag = tag_of(nonce);
    // Each lane waits for a segment's head, then the warp fetches one segment after the other.
    for (uint32_t from = first + warp() * kWarp; from <= last; from += kTeamThreads) {
      gather_some(from, min(last, from + kWarp - 1), tag, x);
    }
  }
  __device__ __forceinline__ void gather_some(uint32_t first, uint32_t last, uint64_t tag,
                                              const Exchange& x) {
    const uint32_t mine = min(first + lane(), last);
    const SegmentHead* const head = x.head(segment(mine));
    uint64_t seen;
    uint64_t content;
    do {
      asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
                   : "=l"(seen), "=l"(content)
                   : "l"(head)
                   : "memory");
    } while (!__all_sync(kAllLanes, seen == tag));
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    const bool counts = first + lane() <= last;
    const uint32_t survivors = counts ? static_cast<uint32_t>(content) : 0;
    const uint32_t floor_key = __reduce_max_sync(kAllLanes, static_cast<uint32_t>(content >> 32));
    if (lane() == 0) atomicMax(&s_.floor_key, floor_key);
    const bool overflows = survivors > x.capacity;
    if (overflows) s_.overflow = 1;
    const uint32_t upto = warp_inclusive_sum(overflows ? 0 : survivors);
    const uint32_t base = reserve(&s_.total, __shfl_sync(kAllLanes, upto, kWarp - 1));
    const uint32_t offset = base + upto - survivors;
    const uint32_t segments = last - first + 1;
    constexpr uint32_t kAhead = 8;  // loads under way at a time
    for (uint32_t i = 0; i < segments; i += kAhead) {
      Survivor got[kAhead];
      uint32_t places[kAhead];
      uint32_t left[kAhead];
#pragma unroll
      for (uint32_t u = 0; u < kAhead; ++u) {
        left[u] = __shfl_sync(kAllLanes, overflows ? 0 : survivors, (i + u) % kWarp);
        if (i + u >= segments) left[u] = 0;
        places[u] = __shfl_sync(kAllLanes, offset, (i + u) % kWarp) + lane();
        if (lane() < left[u]) got[u] = x.survivors(segment(first + i + u))[lane()];
      }
#pragma unroll
      for (uint32_t u = 0; u < kAhead; ++u) {
        if (lane() < left[u] && places[u] < kCapacity) s_.list[places[u]] = got[u];
        for (uint32_t j = kWarp + lane(); j < left[u]; j += kWarp) {
          const uint32_t place = places[u] + j - lane();
          if (place < kCapacity) s_.list[place] = x.survivors(segment(first + i + u))[j];
        }
      }
    }
  }

  // No later launch may take these for its own.
  __device__ void forget(uint32_t first, uint32_t last) const {
    const Exchange& x = p_.exchange;
    for (uint32_t b = first + thread_; b <= last; b += kTeamThreads) {
      x.head(segment(b))->tag = 0;
      for (uint32_t i = 0; i < x.warps; i += 4) {
        *reinterpret_cast<uint4*>(x.published(segment(b)) + i) = make_uint4(0, 0, 0, 0);
      }
    }
  }

  // Calls f(score, position, valid) for the list, in whole warps.
  template <typename F>
  __device__ __forceinline__ void for_each_entry(F&& f) const {
    const uint32_t total = s_.total;
#pragma unroll 2
    for (uint32_t i = thread_; i - lane() < total; i += kTeamThreads) {
      const Survivor e = s_.list[min(i, total - 1)];
      f(e.score, e.position, i < total);
    }
  }

  // Like find_crossing, by one warp.
  __device__ void cross(const uint32_t* bins, uint32_t count, uint32_t wanted) {
    sync();
    if (warp() == 0) {
      uint32_t above = 0;
      for (uint32_t top = count; top > 0; top -= kWarp) {
        const uint32_t mine = bins[top - 1 - lane()];
        const uint32_t sum = __reduce_add_sync(kAllLanes, mine);
        if (above + sum >= wanted) {
          above += warp_inclusive_sum(mine) - mine;
          if (above < wanted && wanted <= above + mine) {
            s_.crossing = {top - 1 - lane(), above, mine};
          }
          break;
        }
        above += sum;
      }
    }
    sync();
  }

  // The k best of the list's entries above the floor. False where there are fewer.
  __device__ bool select_from_list(float ceiling) {
    if (s_.total < p_.k) return false;
    const float floor = __uint_as_float(bits_of_key(s_.floor_key));
    const BinMap map = make_bin_map(floor, ceiling, kTailBins);
    for_each_entry([&](float score, uint32_t, bool valid) {
      if (valid && score > floor) atomicAdd(&s_.bins[map(score)], 1u);
    });
    cross(s_.bins, kTailBins, p_.k);
    const Crossing cut = s_.crossing;
    if (cut.bin == kNone) return false;
    if (cut.inside > kMaxRanked) {
      select_by_digits(floor, {0, 64, p_.k, kNone});
      return true;
    }
    for_each_entry([&](float score, uint32_t position, bool valid) {
      const bool counts = valid && score > floor;
      const uint32_t bin = map(score);
      const uint32_t votes = __ballot_sync(kAllLanes, counts && bin > cut.bin);
      const uint32_t base = reserve(&s_.winners, __popc(votes));
      if (counts && bin > cut.bin) put(base + __popc(votes & ptx::lanes_below()), position);
      if (counts && bin == cut.bin) {
        s_.ranked[atomicAdd(&s_.inside, 1u)] =
            rank_key(order_key(__float_as_uint(score)), position);
      }
    });
    sync();
    if (thread_ < cut.inside) {
      const uint64_t mine = s_.ranked[thread_];
      uint32_t better = 0;
      for (uint32_t i = 0; i < cut.inside; i += 2) {  // ranks past the last are zero: the worst
        const auto pair = *reinterpret_cast<const ulonglong2*>(&s_.ranked[i]);
        better += (pair.x > mine) + (pair.y > mine);
      }
      if (cut.above + better < p_.k) put(cut.above + better, index_of_rank(mine));
    }
    return true;
  }

  // Narrows `t` down, as tl_topk::narrow does, until at most `at_most` ranks pass.
  template <typename ForEachRank>
  __device__ Threshold narrow_down(Threshold t, uint32_t at_most, uint32_t* bins,
                                   uint32_t digit_bits, ForEachRank&& for_each_rank) {
    const uint32_t index_bits = kWarp - __clz(length_ - 1);
    while (t.passing > at_most) {
      if (t.shift == 32) {
        t.prefix = ((t.prefix + 1) << (32 - index_bits)) - 1;
        t.shift = index_bits;
      }
      // A digit is of the key or of the index, never of both.
      const uint32_t bits = min(digit_bits, t.shift > 32 ? t.shift - 32 : t.shift);
      const uint32_t next = t.shift - bits;
      for (uint32_t i = thread_; i < 1u << digit_bits; i += kTeamThreads) bins[i] = 0;
      sync();
      for_each_rank([&](uint64_t rank, bool valid) {
        const auto digit = static_cast<uint32_t>(rank >> next) & ((1u << bits) - 1);
        warp_count(bins, digit, valid && t.undecided(rank));
      });
      cross(bins, 1u << digit_bits, t.wanted);
      const Crossing c = s_.crossing;
      t.prefix = (t.prefix << bits) | c.bin;
      t.shift = next;
      t.wanted -= c.above;
      t.passing = p_.k - t.wanted + c.inside;
      sync();
    }
    return t;
  }

  // The k best of the list by digits of their ranks; entries at or below the floor do not count,
  // and a NaN floor rejects nothing.
  __device__ void select_by_digits(float floor, Threshold t) {
    t = narrow_down(t, p_.k, s_.bins, 9, [&](auto&& f) {
      for_each_entry([&](float score, uint32_t position, bool valid) {
        f(rank_key(order_key(__float_as_uint(score)), position), valid && !(score <= floor));
      });
    });
    for_each_entry([&](float score, uint32_t position, bool valid) {
      const bool wins = valid && !(score <= floor) &&
                        t.passes(rank_key(order_key(__float_as_uint(score)), position));
      const uint32_t votes = __ballot_sync(kAllLanes, wins);
      const uint32_t base = reserve(&s_.winners, __popc(votes));
      if (wins) put(base + __popc(votes & ptx::lanes_below()), position);
    });
  }

  // Calls f(score, position, valid) for the row, in whole warps.
  template <typename F>
  __device__ __forceinline__ void for_each_score(F&& f) const {
    const auto* const scores = reinterpret_cast<const float4*>(
        p_.scores + static_cast<uint64_t>(row_) * p_.width);
    const uint32_t vectors = (length_ + 3) / 4;  // rows are whole pages, so all may be read
    constexpr uint32_t kAhead = 4;               // loads under way at a time
    for (uint32_t v = thread_; v - lane() < vectors; v += kAhead * kTeamThreads) {
      float4 four[kAhead];
#pragma unroll
      for (uint32_t u = 0; u < kAhead; ++u) {
        four[u] = __ldcg(scores + min(v + u * kTeamThreads, vectors - 1));
      }
#pragma unroll
      for (uint32_t u = 0; u < kAhead; ++u) {
        const uint32_t at = v + u * kTeamThreads;
        const float x[4] = {four[u].x, four[u].y, four[u].z, four[u].w};
#pragma unroll
        for (uint32_t j = 0; j < 4; ++j) f(x[j], 4 * at + j, at < vectors && 4 * at + j < length_);
      }
    }
  }

  // The way without survivors: narrows the row down to what the list can hold, then selects.
  __device__ __noinline__ void select_exactly() {
    // What misleads most often is a value that much of the row shares; then it is next to the
    // floor, and only positions remain to be decided.
    const uint32_t tie_key = s_.floor_key + 1;
    uint32_t above = 0;
    uint32_t equal = 0;
    for_each_score([&](float score, uint32_t, bool valid) {
      const uint32_t key = order_key(__float_as_uint(score));
      above += valid && key > tie_key;
      equal += valid && key == tie_key;
    });
    sync();
    if (thread_ < 2) s_.tally[thread_] = 0;
    sync();
    above = __reduce_add_sync(kAllLanes, above);
    equal = __reduce_add_sync(kAllLanes, equal);
    if (lane() == 0) {
      atomicAdd(&s_.tally[0], above);
      atomicAdd(&s_.tally[1], equal);
    }
    sync();
    above = s_.tally[0];
    equal = s_.tally[1];
    Threshold t{0, 64, p_.k, length_};
    if (above < p_.k && p_.k <= above + equal) t = {tie_key, 32, p_.k - above, above + equal};

    t = narrow_down(t, kCapacity, reinterpret_cast<uint32_t*>(s_.list), kDigitBits,
                    [&](auto&& f) {
                      for_each_score([&](float score, uint32_t position, bool valid) {
                        f(rank_key(order_key(__float_as_uint(score)), position), valid);
                      });
                    });
    if (thread_ == 0) {
      s_.total = 0;
      s_.winners = 0;
    }
    sync();
    for_each_score([&](float score, uint32_t position, bool valid) {
      const bool passes = valid && t.passes(rank_key(order_key(__float_as_uint(score)), position));
      const uint32_t votes = __ballot_sync(kAllLanes, passes);
      if (votes == 0) return;
      const uint32_t base = reserve(&s_.total, __popc(votes));
      if (passes) s_.list[base + __popc(votes & ptx::lanes_below())] = {score, position};
    });
    sync();
    select_by_digits(NAN, t);
  }

  static constexpr uint32_t kNone = 0xffffffffu;

  const TailParams& p_;
  State& s_;
  uint32_t barrier_;
  uint32_t thread_;
  uint32_t row_;
  uint32_t length_;
};

// Called by all that multiply when they are done with a sequence: writes the heads of the block's
// segments and, where the row's last tile is among this block's, selects.
template <uint32_t kTile, uint32_t kQueries, uint32_t kTeams, uint32_t kCapacity, uint32_t kRatio,
          bool kLensPerQuery>
__device__ __forceinline__ void finish_visit(FilterState& state, void* tails, const TailParams& p,
                                             const Visit& visit, uint32_t nonce, bool ends,
                                             uint32_t before, uint32_t total, const int* lens) {
  constexpr uint32_t kThreads = kTile / kKeysPerWarp * kLanes;
  constexpr uint32_t kTeamThreads = kThreads / kTeams;
  const Exchange& x = p.exchange;
  mark(kMomentFloor);
  float ceilings[kQueries];
#pragma unroll
  for (uint32_t q = 0; q < kQueries; ++q) ceilings[q] = state.ceilings[q];
  named_sync(kConsumersBarrier, kThreads);  // all survivors and scores are written
  if (threadIdx.x < kQueries) {
    const uint32_t q = threadIdx.x;
    SegmentHead* const head = x.head(x.segment(visit.block, visit.sequence, q));
    const uint64_t content =
        static_cast<uint64_t>(order_key_of_number(__float_as_uint(state.floors[q]))) << 32 |
        state.counts[q];
    asm volatile(
        "fence.acq_rel.gpu;\n"
        "st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};" ::"l"(head),
        "l"(tag_of(nonce)), "l"(content)
        : "memory");
    state.counts[q] = 0;
  }
  named_sync(kConsumersBarrier, kThreads);
  if (threadIdx.x == 0) store_volatile(&state.done, visit.number + 1);
  mark(kMomentPassed);
  if (!ends) return;

  const uint32_t team = threadIdx.x / kTeamThreads;
  auto& tail = static_cast<TailState<kCapacity>*>(tails)[team];
  const uint32_t first = block_of_tile(before, total, x.blocks);
#pragma unroll
  for (uint32_t q = 0; q < kQueries; ++q) {
    if (q % kTeams != team) continue;
    const int length = row_length<kQueries, kRatio, kLensPerQuery>(
        lens, static_cast<int>(visit.sequence), static_cast<int>(q),
        static_cast<int>(p.width / kPageKeys));
    Tail<kTeamThreads, kCapacity>(p, tail, team, visit.sequence * kQueries + q,
                                  static_cast<uint32_t>(length))
        .run(first, visit.block, nonce, ceilings[q]);
  }
}

// What TileLang programs call: numbers and pointers only.

template <uint32_t kTile, uint32_t kQueries, uint32_t kTeams, uint32_t kCapacity, uint32_t kRatio,
          bool kLensPerQuery>
__device__ __forceinline__ void conclude(void* state, void* tails, void* exchange, int blocks,
                                         int sequences, int capacity, int nonce, int block,
                                         int sequence, int number, int tiles, int total, int before,
                                         bool ends, const int* lens, const float* scores,
                                         int* indices, const int* table, const int* offsets,
                                         int width, int pages, int k, int result) {
  const auto u = [](int x) { return static_cast<uint32_t>(x); };
  const TailParams params{scores,
                          indices,
                          table,
                          offsets,
                          exchange_at<kTile, kQueries>(exchange, blocks, sequences, capacity),
                          u(width),
                          u(pages),
                          u(k),
                          static_cast<Result>(result)};
  finish_visit<kTile, kQueries, kTeams, kCapacity, kRatio, kLensPerQuery>(
      *static_cast<FilterState*>(state), tails, params,
      {u(block), u(sequence), u(number), u(tiles), 0}, u(nonce), ends, u(before), u(total), lens);
}

}  // namespace tl_topk::indexer
