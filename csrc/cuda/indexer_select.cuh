// Selecting from what all blocks of a fused indexer's row let through.
//
// The survivors are gathered and the k best of them taken, which is exact if at least k lie above
// the highest floor. Where they do not, or something overflowed, the row's scores are narrowed down
// instead, which have all been written: exact whatever they are, and without the host.
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
constexpr uint32_t kMaxRanked = 128;    // ranked by one comparison a pair
constexpr uint32_t kMaxSegments = 160;  // of a row, a block each
constexpr uint32_t kConsumersBarrier = 4;
constexpr uint32_t kTeamBarrier = 5;  // and the next, for a second team
constexpr uint32_t kRehearsalBarrier = 7;

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

// Of one team, in shared memory: parameters as well, so that the functions below need no stack.
template <uint32_t kCapacity>
struct TailState {
  uint32_t bins[kTailBins];
  __align__(16) uint64_t ranked[kMaxRanked];
  uint32_t counts[kMaxSegments];   // survivors of each block that worked on the row
  uint32_t offsets[kMaxSegments];  // where they lie in the list
  TailParams params;
  Crossing crossing;
  uint32_t row;
  uint32_t length;
  float ceiling;
  uint32_t total;  // entries of the list
  uint32_t overflow;
  uint32_t floor_key;  // the highest floor's
  uint32_t winners;
  uint32_t inside;
  uint32_t tally[2];
  __align__(16) Survivor list[kCapacity];
};

// What the program sets aside for it, in words.
constexpr uint32_t kTailWords = 1500;  // beside the list

// `threads` threads, whole warps, with a barrier of their own. This code runs once in a launch, by
// one block, and comes from far away: it is short rather than unrolled, and not inlined, so that it
// can be rehearsed.
template <uint32_t kCapacity>
class Tail {
  using State = TailState<kCapacity>;
  static_assert(kCapacity * sizeof(Survivor) >= kDigitBins * 4, "digits are counted in the list");
  static_assert(sizeof(State) <= kCapacity * sizeof(Survivor) + kTailWords * 4);

 public:
  // What is asked of the team: by one of its threads, before the team runs.
  static __device__ __forceinline__ void prepare(State& s, const TailParams& params, uint32_t row,
                                                 uint32_t length, float ceiling) {
    s.params = params;
    s.row = row;
    s.length = length;
    s.ceiling = ceiling;
  }

  // `first` to `last`: the blocks that worked on the row. `state` is an address in shared memory:
  // of a pointer it would not be known which memory it points to.
  static __device__ __noinline__ void run(uint32_t state, uint32_t barrier, uint32_t threads,
                                          uint32_t thread, uint32_t first, uint32_t last,
                                          uint32_t nonce) {
    Tail(state, barrier, threads, thread).select(first, last, nonce);
  }

 private:
  __device__ Tail(uint32_t state, uint32_t barrier, uint32_t threads, uint32_t thread)
      : s_(*static_cast<State*>(__cvta_shared_to_generic(state))),
        address_(state),
        barrier_(barrier),
        threads_(threads),
        thread_(thread) {}

  __device__ __forceinline__ void select(uint32_t first, uint32_t last, uint32_t nonce) {
    for (uint32_t i = thread_; i < kTailBins; i += threads_) s_.bins[i] = 0;
    for (uint32_t i = thread_; i < kMaxRanked; i += threads_) s_.ranked[i] = 0;
    if (thread_ == 0) {
      s_.total = 0;
      s_.overflow = 0;
      s_.floor_key = 0;
      s_.winners = 0;
      s_.inside = 0;
      s_.crossing.bin = kNone;
    }
    sync();
    const uint32_t segments = last - first + 1;
    if (segments > kMaxSegments) {
      if (thread_ == 0) s_.overflow = 1;
    }
    for (uint32_t from = warp() * kWarp; from < segments; from += threads_) {
      await_heads(first, from, segments, tag_of(nonce));
    }
    sync();
    mark(kMomentHeads);
    const uint32_t k = s_.params.k;
    if (s_.length <= k) return take_all(address_, threads_, thread_);
    if (s_.overflow == 0 && s_.total <= kCapacity && s_.total >= k) {
      gather(first, segments);
      sync();
      mark(kMomentGathered);
      if (select_from_list()) return;
    }
    select_exactly(address_, barrier_, threads_, thread_);
  }

  __device__ uint32_t lane() const { return threadIdx.x % kWarp; }
  __device__ uint32_t warp() const { return thread_ / kWarp; }
  __device__ void sync() const { named_sync(barrier_, threads_); }

  static __device__ __noinline__ uint32_t converted(uint32_t state, uint32_t position) {
    const State& s = *static_cast<State*>(__cvta_shared_to_generic(state));
    const TailParams& p = s.params;
    if (p.result == Result::kRagged) {
      return position + static_cast<uint32_t>(p.offsets[s.row]);
    }
    const uint32_t sequence = s.row / p.exchange.queries;
    const int32_t page =
        p.table[static_cast<uint64_t>(sequence) * (p.width / kPageKeys) + position / kPageKeys];
    const bool there = static_cast<uint32_t>(page) < p.pages;
    return there ? page * kPageKeys + position % kPageKeys : 0xffffffffu;
  }

  // Where the result goes.
  struct Output {
    int32_t* slots;
    uint32_t state;
    bool plain;

    __device__ __forceinline__ void put(uint32_t slot, uint32_t position) const {
      slots[slot] = static_cast<int32_t>(plain ? position : converted(state, position));
    }
  };
  __device__ Output output() const {
    const TailParams& p = s_.params;
    return {p.indices + static_cast<uint64_t>(s_.row) * p.k, address_,
            p.result == Result::kPositions};
  }

  static __device__ __noinline__ void take_all(uint32_t state, uint32_t threads, uint32_t thread) {
    const Tail tail(state, 0, threads, thread);
    const Output out = tail.output();
    const uint32_t k = tail.s_.params.k;
#pragma unroll 1
    for (uint32_t i = thread; i < k; i += threads) {
      if (i < tail.s_.length) {
        out.put(i, i);
      } else {
        out.slots[i] = -1;
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
    const Exchange& x = s_.params.exchange;
    return x.segment(block, s_.row / x.queries, s_.row % x.queries);
  }

  // Waits for up to 32 segments, a lane each, finds their places in the list, and takes away what
  // would pass for a later launch's.
  __device__ __forceinline__ void await_heads(uint32_t first, uint32_t from, uint32_t segments,
                                              uint64_t tag) {
    const Exchange& x = s_.params.exchange;
    const bool counts = from + lane() < segments;
    const uint32_t mine = segment(first + min(from + lane(), segments - 1));
    SegmentHead* const head = x.head(mine);
    uint64_t seen;
    uint64_t content;
    do {
      asm volatile("ld.relaxed.gpu.v2.u64 {%0, %1}, [%2];"
                   : "=l"(seen), "=l"(content)
                   : "l"(head)
                   : "memory");
    } while (!__all_sync(kAllLanes, seen == tag));
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    uint32_t survivors = counts ? static_cast<uint32_t>(content) : 0;
    const uint32_t floor_key = __reduce_max_sync(kAllLanes, static_cast<uint32_t>(content >> 32));
    if (lane() == 0) atomicMax(&s_.floor_key, floor_key);
    if (survivors > x.capacity) {
      s_.overflow = 1;
      survivors = 0;
    }
    const uint32_t upto = warp_inclusive_sum(survivors);
    const uint32_t base = reserve(&s_.total, __shfl_sync(kAllLanes, upto, kWarp - 1));
    if (counts && from + lane() < kMaxSegments) {
      s_.counts[from + lane()] = survivors;
      s_.offsets[from + lane()] = base + upto - survivors;
    }
    if (counts) {
      head->tag = 0;
      for (uint32_t i = 0; i < x.warps; i += 4) {
        *reinterpret_cast<uint4*>(x.published(mine) + i) = make_uint4(0, 0, 0, 0);
      }
    }
  }

  // The row's segments into one list: a warp takes every so manyth.
  __device__ __forceinline__ void gather(uint32_t first, uint32_t segments) {
    const uint32_t capacity = s_.params.exchange.capacity;
    const uint32_t stride = s_.params.exchange.queries * capacity;  // from block to block
    const Survivor* from = s_.params.exchange.survivors(segment(first)) + lane();
    constexpr uint32_t kAhead = 9;  // loads under way at a time
#pragma unroll 1
    for (uint32_t i = warp(); i < segments; i += kAhead * (threads_ / kWarp)) {
      Survivor got[kAhead];
#pragma unroll
      for (uint32_t u = 0; u < kAhead; ++u) {
        const uint32_t at = i + u * (threads_ / kWarp);
        if (at < segments && lane() < s_.counts[at]) got[u] = from[at * stride];
      }
#pragma unroll
      for (uint32_t u = 0; u < kAhead; ++u) {
        const uint32_t at = i + u * (threads_ / kWarp);
        if (at < segments && lane() < s_.counts[at]) s_.list[s_.offsets[at] + lane()] = got[u];
      }
    }
#pragma unroll 1
    for (uint32_t i = warp(); i < segments; i += (threads_ / kWarp)) {
#pragma unroll 1
      for (uint32_t j = kWarp; j + lane() < s_.counts[i]; j += kWarp) {
        s_.list[s_.offsets[i] + j + lane()] = from[i * stride + j];
      }
    }
  }

  // Calls f(score, position, valid) for the list, in whole warps.
  template <typename F>
  __device__ __forceinline__ void for_each_entry(F&& f) const {
    const uint32_t total = s_.total;
#pragma unroll 1
    for (uint32_t i = thread_; i - lane() < total; i += threads_) {
      const Survivor e = s_.list[min(i, total - 1)];
      f(e.score, e.position, i < total);
    }
  }

  // Like find_crossing, by one warp.
  __device__ __forceinline__ void cross(const uint32_t* bins, uint32_t count, uint32_t wanted) {
    sync();
    if (warp() == 0) {
      constexpr uint32_t kAhead = 8;  // tiles of 32 bins
      uint32_t above = 0;
      bool found = false;
#pragma unroll 1
      for (uint32_t top = count; top > 0 && !found; top -= kAhead * kWarp) {
        const uint32_t* const mine = bins + top - 1 - lane();
        uint32_t sums[kAhead];
#pragma unroll
        for (uint32_t u = 0; u < kAhead; ++u) {
          sums[u] = __reduce_add_sync(kAllLanes, mine[-static_cast<int>(u * kWarp)]);
        }
        uint32_t tile = 0;
#pragma unroll
        for (uint32_t u = 0; u < kAhead; ++u) {
          found = found || above + sums[u] >= wanted;
          above += found ? 0 : sums[u];
          tile += !found;
        }
        if (!found) continue;
        const uint32_t inside = mine[-static_cast<int>(tile * kWarp)];
        above += warp_inclusive_sum(inside) - inside;
        if (above < wanted && wanted <= above + inside) {
          s_.crossing = {top - 1 - tile * kWarp - lane(), above, inside};
        }
      }
    }
    sync();
  }

  // The k best of the list's entries above the floor. False where there are fewer.
  __device__ __forceinline__ bool select_from_list() {
    const uint32_t k = s_.params.k;
    const float floor = __uint_as_float(bits_of_key(s_.floor_key));
    const BinMap map = make_bin_map(floor, s_.ceiling, kTailBins);
    const uint32_t total = s_.total;
#pragma unroll 4
    for (uint32_t i = thread_; i < total; i += threads_) {
      const float score = s_.list[i].score;
      if (score > floor) atomicAdd(&s_.bins[map(score)], 1u);
    }
    cross(s_.bins, kTailBins, k);
    mark(kMomentCut);
    const Crossing cut = s_.crossing;
    if (cut.bin == kNone) return false;
    if (cut.inside > kMaxRanked) {
      select_by_digits(address_, barrier_, threads_, thread_, floor, {0, 64, k, kNone});
      return true;
    }
    const Output out = output();
    uint32_t mine = 0;
#pragma unroll 4
    for (uint32_t i = thread_; i < total; i += threads_) {
      const float score = s_.list[i].score;
      const uint32_t bin = score > floor ? map(score) : 0;
      mine += bin > cut.bin;
      if (score > floor && bin == cut.bin) {
        s_.ranked[atomicAdd(&s_.inside, 1u)] =
            rank_key(order_key(__float_as_uint(score)), s_.list[i].position);
      }
    }
    const uint32_t upto = warp_inclusive_sum(mine);
    uint32_t slot = reserve(&s_.winners, __shfl_sync(kAllLanes, upto, kWarp - 1)) + upto - mine;
#pragma unroll 2
    for (uint32_t i = thread_; i < total; i += threads_) {
      const Survivor e = s_.list[i];
      if (e.score > floor && map(e.score) > cut.bin) out.put(slot++, e.position);
    }
    sync();
    for (uint32_t own = thread_; own < cut.inside; own += threads_) {
      const uint64_t rank = s_.ranked[own];
      uint32_t better = 0;
#pragma unroll 4
      for (uint32_t i = 0; i < cut.inside; i += 2) {  // ranks past the last are zero: the worst
        const auto pair = *reinterpret_cast<const ulonglong2*>(&s_.ranked[i]);
        better += (pair.x > rank) + (pair.y > rank);
      }
      if (cut.above + better < k) out.put(cut.above + better, index_of_rank(rank));
    }
    return true;
  }

  // Narrows `t` down, as tl_topk::narrow does, until at most `at_most` ranks pass.
  template <typename ForEachRank>
  __device__ __forceinline__ Threshold narrow_down(Threshold t, uint32_t at_most, uint32_t* bins,
                                                   uint32_t digit_bits,
                                                   ForEachRank&& for_each_rank) {
    const uint32_t index_bits = kWarp - __clz(s_.length - 1);
#pragma unroll 1
    while (t.passing > at_most) {
      if (t.shift == 32) {
        t.prefix = ((t.prefix + 1) << (32 - index_bits)) - 1;
        t.shift = index_bits;
      }
      // A digit is of the key or of the index, never of both.
      const uint32_t bits = min(digit_bits, t.shift > 32 ? t.shift - 32 : t.shift);
      const uint32_t next = t.shift - bits;
      for (uint32_t i = thread_; i < 1u << digit_bits; i += threads_) bins[i] = 0;
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
      t.passing = s_.params.k - t.wanted + c.inside;
      sync();
    }
    return t;
  }

  // The k best of the list by digits of their ranks; entries at or below the floor do not count,
  // and a NaN floor rejects nothing.
  static __device__ __noinline__ void select_by_digits(uint32_t state, uint32_t barrier,
                                                       uint32_t threads, uint32_t thread,
                                                       float floor, Threshold t) {
    Tail(state, barrier, threads, thread).select_by_digits(floor, t);
  }
  __device__ __forceinline__ void select_by_digits(float floor, Threshold t) {
    const Output out = output();
    t = narrow_down(t, s_.params.k, s_.bins, 9, [&](auto&& f) {
      for_each_entry([&](float score, uint32_t position, bool valid) {
        f(rank_key(order_key(__float_as_uint(score)), position), valid && !(score <= floor));
      });
    });
    for_each_entry([&](float score, uint32_t position, bool valid) {
      const bool wins = valid && !(score <= floor) &&
                        t.passes(rank_key(order_key(__float_as_uint(score)), position));
      const uint32_t votes = __ballot_sync(kAllLanes, wins);
      const uint32_t base = reserve(&s_.winners, __popc(votes));
      if (wins) out.put(base + __popc(votes & ptx::lanes_below()), position);
    });
  }

  // Calls f(score, position, valid) for the row, in whole warps.
  template <typename F>
  __device__ __forceinline__ void for_each_score(F&& f) const {
    const float* const scores = s_.params.scores + static_cast<uint64_t>(s_.row) * s_.params.width;
    const uint32_t length = s_.length;
    constexpr uint32_t kAhead = 8;  // loads under way at a time
#pragma unroll 1
    for (uint32_t i = thread_; i - lane() < length; i += kAhead * threads_) {
      float x[kAhead];
#pragma unroll
      for (uint32_t u = 0; u < kAhead; ++u) {
        x[u] = __ldcg(scores + min(i + u * threads_, length - 1));
      }
#pragma unroll
      for (uint32_t u = 0; u < kAhead; ++u) {
        f(x[u], i + u * threads_, i + u * threads_ < length);
      }
    }
  }

  // The way without survivors: narrows the row down to what the list can hold, then selects.
  static __device__ __noinline__ void select_exactly(uint32_t state, uint32_t barrier,
                                                     uint32_t threads, uint32_t thread) {
    Tail(state, barrier, threads, thread).select_exactly();
  }
  __device__ __forceinline__ void select_exactly() {
    // What misleads most often is a value that much of the row shares; then it is next to the
    // floor, and only positions remain to be decided.
    const uint32_t k = s_.params.k;
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
    Threshold t{0, 64, k, s_.length};
    if (above < k && k <= above + equal) t = {tie_key, 32, k - above, above + equal};

    t = narrow_down(t, kCapacity, reinterpret_cast<uint32_t*>(s_.list), kDigitBits, [&](auto&& f) {
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
    select_by_digits(address_, barrier_, threads_, thread_, NAN, t);
  }

  static constexpr uint32_t kNone = 0xffffffffu;

  State& s_;
  uint32_t address_;  // of the same
  uint32_t barrier_;
  uint32_t threads_;
  uint32_t thread_;
};

}  // namespace tl_topk::indexer
