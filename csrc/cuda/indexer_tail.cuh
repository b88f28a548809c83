// The second kernel of a fused indexer: selects from what the scoring kernel let through.
//
// The leading block of a row's cluster gathers the survivors and takes the k best of them, which is
// exact if at least k lie above the highest floor. Where they do not, or something overflowed, the
// whole cluster narrows down the row's scores instead, which have all been written: exact whatever
// they are, and without the host.
#pragma once

#include <cstdint>

#include "bin_map.h"
#include "cuda/histogram.cuh"
#include "cuda/indexer_exchange.cuh"
#include "cuda/prefix_sum.cuh"
#include "cuda/ptx.cuh"
#include "cuda/radix.cuh"
#include "key.h"

namespace tl_topk::indexer {

constexpr uint32_t kTailBlocks = 8;       // in a cluster, one cluster a row
constexpr uint32_t kListCapacity = 8192;  // survivors that the leader can hold
constexpr uint32_t kTailBins = 512;
constexpr uint32_t kMaxRanked = 256;  // ranked by one comparison a pair
constexpr uint32_t kMaxSegments = kThreads;
constexpr uint32_t kPageKeys = 64;

enum class Result : uint32_t { kPositions = 0, kSlots = 1, kRagged = 2 };

struct TailParams {
  const float* scores;  // (rows, width), of which each row's first `length` count
  const int32_t* lengths;
  int32_t* indices;        // (rows, k)
  const int32_t* table;    // (sequences, width / 64), for slots
  const int32_t* offsets;  // (rows,), for ragged indices
  Exchange exchange;
  uint32_t width;
  uint32_t pages;
  uint32_t k;
  Result result;
};

struct TailState {
  RadixScratch radix;
  uint32_t bins[kTailBins];
  __align__(16) uint64_t ranked[kMaxRanked];
  uint32_t offsets[kMaxSegments];  // of each segment in the list
  uint32_t counts[kMaxSegments];
  uint32_t warp_sums[kWarps];
  uint32_t total;  // entries of the list
  uint32_t overflow;
  uint32_t floor_key;  // the highest floor's
  uint32_t ceiling_key;
  uint32_t winners;
  uint32_t inside;
  uint32_t misled;  // written by the leader for all
};

// The list follows in dynamic shared memory.
constexpr uint32_t kTailSharedBytes =
    (sizeof(TailState) + 15) / 16 * 16 + kListCapacity * sizeof(Survivor);

// Adds to a counter in another block's shared memory; returns what it held.
__device__ __forceinline__ uint32_t remote_add(ptx::ClusterAddress counter, uint32_t x) {
  uint32_t before;
  asm volatile("atom.relaxed.cluster.shared::cluster.add.u32 %0, [%1], %2;"
               : "=r"(before)
               : "r"(counter), "r"(x)
               : "memory");
  return before;
}

class Tail {
 public:
  __device__ Tail(const TailParams& params, TailState& state, Survivor* list)
      : p_(params), s_(state), list_(list), row_(blockIdx.x / kTailBlocks) {
    const int32_t length = params.lengths[row_];
    length_ = length < 0 ? 0 : min(static_cast<uint32_t>(length), params.width);
  }

  __device__ void run() {
    if (length_ <= p_.k) return take_all();
    const bool leads = ptx::cluster_rank() == 0;
    if (leads) {
      const bool selected = gather() && select_from_list(s_.floor_key);
      if (threadIdx.x < kTailBlocks) {
        ptx::remote_store(ptx::cluster_address(&s_.misled, threadIdx.x), selected ? 0u : 1u);
        ptx::remote_store(ptx::cluster_address(&s_.floor_key, threadIdx.x), s_.floor_key);
      }
    }
    __syncthreads();
    ptx::cluster_sync();
    if (s_.misled != 0) select_exactly(leads);
  }

 private:
  __device__ uint32_t lane() const { return threadIdx.x % kWarp; }
  __device__ uint32_t warp() const { return threadIdx.x / kWarp; }

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
    const uint32_t step = kTailBlocks * kThreads;
    for (uint32_t i = ptx::cluster_rank() * kThreads + threadIdx.x; i < p_.k; i += step) {
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

  // The row's segments into one list. False where something overflowed.
  __device__ bool gather() {
    const Exchange& x = p_.exchange;
    const uint32_t sequence = row_ / x.queries;
    const uint32_t query = row_ % x.queries;
    const BlockSpan span = *x.span(row_);
    const uint32_t segments = min(span.last - span.first + 1, kMaxSegments + 1);
    const auto segment = [&](uint32_t i) { return x.segment(span.first + i, sequence, query); };

    // The first survivors of each segment are on their way before it is known how many there are.
    constexpr uint32_t kAhead = 9;  // segments a warp, of 132 blocks
    Survivor ahead[kAhead];
#pragma unroll
    for (uint32_t u = 0; u < kAhead; ++u) {
      const uint32_t i = warp() + u * kWarps;
      if (i < segments && lane() < x.capacity) ahead[u] = x.survivors(segment(i))[lane()];
    }
    SegmentHead head{0, -INFINITY, -INFINITY, 0};
    if (threadIdx.x < segments) head = *x.head(segment(threadIdx.x));
    const uint32_t upto = warp_inclusive_sum(head.survivors);
    if (lane() == kWarp - 1) s_.warp_sums[warp()] = upto;
    if (threadIdx.x == 0) {
      s_.overflow = segments > kMaxSegments;
      s_.floor_key = 0;
      s_.ceiling_key = 0;
      s_.winners = 0;
      s_.inside = 0;
      s_.radix.crossing.bin = kNone;
    }
    s_.bins[threadIdx.x] = 0;
    static_assert(kTailBins == kThreads);
    if (threadIdx.x < kMaxRanked) s_.ranked[threadIdx.x] = 0;
    __syncthreads();
    uint32_t before = lane() < warp() ? s_.warp_sums[lane()] : 0;
    before = __reduce_add_sync(kAllLanes, before);
    s_.offsets[threadIdx.x] = before + upto - head.survivors;
    s_.counts[threadIdx.x] = head.survivors;
    if (threadIdx.x == kThreads - 1) s_.total = before + upto;
    if (head.survivors > x.capacity) s_.overflow = 1;
    if (warp() * kWarp < segments) {
      const uint32_t floor =
          __reduce_max_sync(kAllLanes, order_key_of_number(__float_as_uint(head.floor)));
      const uint32_t ceiling =
          __reduce_max_sync(kAllLanes, order_key_of_number(__float_as_uint(head.ceiling)));
      if (lane() == 0) {
        atomicMax(&s_.floor_key, floor);
        atomicMax(&s_.ceiling_key, ceiling);
      }
    }
    __syncthreads();
    if (s_.overflow != 0 || s_.total > kListCapacity) return false;
#pragma unroll
    for (uint32_t u = 0; u < kAhead; ++u) {
      const uint32_t i = warp() + u * kWarps;
      if (i < segments && lane() < s_.counts[i]) list_[s_.offsets[i] + lane()] = ahead[u];
    }
    for (uint32_t i = warp(), u = 0; i < segments; i += kWarps, ++u) {
      const uint32_t count = s_.counts[i];
      const Survivor* from = x.survivors(segment(i));
      for (uint32_t j = (u < kAhead ? kWarp : 0) + lane(); j < count; j += kWarp) {
        list_[s_.offsets[i] + j] = from[j];
      }
    }
    __syncthreads();
    return true;
  }

  // Calls f(score, position, valid) for the list, in whole warps.
  template <typename F>
  __device__ __forceinline__ void for_each_entry(F&& f) const {
    const uint32_t total = s_.total;
    for (uint32_t i = threadIdx.x; i - lane() < total; i += kThreads) {
      const Survivor e = list_[min(i, total - 1)];
      f(e.score, e.position, i < total);
    }
  }

  // The k best of the list's entries above the floor. False where there are fewer.
  __device__ bool select_from_list(uint32_t floor_key) {
    const float floor = __uint_as_float(bits_of_key(floor_key));
    const float ceiling = __uint_as_float(bits_of_key(s_.ceiling_key));
    if (s_.total < p_.k) return false;
    const BinMap map = make_bin_map(floor, ceiling, kTailBins);
    for_each_entry([&](float score, uint32_t, bool valid) {
      if (valid && score > floor) atomicAdd(&s_.bins[map(score)], 1u);
    });
    __syncthreads();
    find_crossing<kTailBins>(s_.bins, p_.k, s_.radix.tile_sums, &s_.radix.crossing);
    __syncthreads();
    const Crossing cut = s_.radix.crossing;
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
    __syncthreads();
    if (threadIdx.x < cut.inside) {
      const uint64_t mine = s_.ranked[threadIdx.x];
      uint32_t better = 0;
      for (uint32_t i = 0; i < cut.inside; i += 2) {  // ranks past the last are zero: the worst
        const auto pair = *reinterpret_cast<const ulonglong2*>(&s_.ranked[i]);
        better += (pair.x > mine) + (pair.y > mine);
      }
      if (cut.above + better < p_.k) put(cut.above + better, index_of_rank(mine));
    }
    return true;
  }

  // The k best of the list by digits of their ranks; entries at or below the floor do not count,
  // and a NaN floor rejects nothing.
  __device__ void select_by_digits(float floor, Threshold t) {
    t = narrow(
        t, length_, p_.k, p_.k, s_.radix,
        [&](auto&& f) {
          for_each_entry([&](float score, uint32_t position, bool valid) {
            f(rank_key(order_key(__float_as_uint(score)), position), valid && !(score <= floor));
          });
        },
        [](uint32_t*, uint32_t) {});
    for_each_entry([&](float score, uint32_t position, bool valid) {
      const bool wins = valid && !(score <= floor) &&
                        t.passes(rank_key(order_key(__float_as_uint(score)), position));
      const uint32_t votes = __ballot_sync(kAllLanes, wins);
      const uint32_t base = reserve(&s_.winners, __popc(votes));
      if (wins) put(base + __popc(votes & ptx::lanes_below()), position);
    });
  }

  // Calls f(score, position, valid) for this block's share of the row, in whole warps.
  template <typename F>
  __device__ __forceinline__ void for_each_score(F&& f) const {
    const float* const scores = p_.scores + static_cast<uint64_t>(row_) * p_.width;
    const uint32_t vectors = (length_ + 3) / 4;  // rows are whole pages, so all may be read
    const uint32_t step = kTailBlocks * kThreads;
    for (uint32_t v = ptx::cluster_rank() * kThreads + threadIdx.x; v - lane() < vectors;
         v += step) {
      const float4 four = reinterpret_cast<const float4*>(scores)[min(v, vectors - 1)];
      const float x[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (uint32_t j = 0; j < 4; ++j) f(x[j], 4 * v + j, v < vectors && 4 * v + j < length_);
    }
  }

  // Replaces every block's counters by the cluster's sums; n is a multiple of the cluster's size.
  __device__ void sum_over_cluster(uint32_t* counters, uint32_t n) const {
    ptx::cluster_sync();
    const uint32_t slice = n / kTailBlocks;
    for (uint32_t i = threadIdx.x; i < slice; i += kThreads) {
      uint32_t* const counter = counters + ptx::cluster_rank() * slice + i;
      uint32_t sum = 0;
#pragma unroll
      for (uint32_t b = 0; b < kTailBlocks; ++b) {
        sum += ptx::remote_load(ptx::cluster_address(counter, b));
      }
#pragma unroll
      for (uint32_t b = 0; b < kTailBlocks; ++b) {
        ptx::remote_store(ptx::cluster_address(counter, b), sum);
      }
    }
    ptx::cluster_sync();
  }

  // The way without survivors: narrows the row down to what the list can hold, then selects.
  __device__ __noinline__ void select_exactly(bool leads) {
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
    if (threadIdx.x < kTailBlocks) s_.bins[threadIdx.x] = 0;
    __syncthreads();
    above = __reduce_add_sync(kAllLanes, above);
    equal = __reduce_add_sync(kAllLanes, equal);
    if (lane() == 0) {
      atomicAdd(&s_.bins[0], above);
      atomicAdd(&s_.bins[1], equal);
    }
    __syncthreads();
    sum_over_cluster(s_.bins, kTailBlocks);
    above = s_.bins[0];
    equal = s_.bins[1];
    Threshold t{0, 64, p_.k, length_};
    if (above < p_.k && p_.k <= above + equal) t = {tie_key, 32, p_.k - above, above + equal};

    t = narrow(
        t, length_, p_.k, kListCapacity, s_.radix,
        [&](auto&& f) {
          for_each_score([&](float score, uint32_t position, bool valid) {
            f(rank_key(order_key(__float_as_uint(score)), position), valid);
          });
        },
        [&](uint32_t* bins, uint32_t n) { sum_over_cluster(bins, n); });
    if (threadIdx.x == 0) {
      s_.total = 0;
      s_.winners = 0;
    }
    ptx::cluster_sync();
    const ptx::ClusterAddress counter = ptx::cluster_address(&s_.total, 0);
    const ptx::ClusterAddress list = ptx::cluster_address(list_, 0);
    for_each_score([&](float score, uint32_t position, bool valid) {
      const bool passes = valid && t.passes(rank_key(order_key(__float_as_uint(score)), position));
      const uint32_t votes = __ballot_sync(kAllLanes, passes);
      if (votes == 0) return;
      uint32_t base = 0;
      if (lane() == 0) base = remote_add(counter, __popc(votes));
      base = __shfl_sync(kAllLanes, base, 0) + __popc(votes & ptx::lanes_below());
      if (passes) {
        ptx::remote_store(list + base * static_cast<uint32_t>(sizeof(Survivor)),
                          __float_as_uint(score), position);
      }
    });
    ptx::cluster_sync();
    if (leads) select_by_digits(NAN, t);
  }

  static constexpr uint32_t kNone = 0xffffffffu;

  const TailParams& p_;
  TailState& s_;
  Survivor* list_;
  uint32_t row_;
  uint32_t length_;
};

__global__ void __cluster_dims__(kTailBlocks) __launch_bounds__(kThreads, 1)
    indexer_tail_kernel(const __grid_constant__ TailParams params) {
  extern __shared__ __align__(16) unsigned char shared_memory[];
  auto& state = *reinterpret_cast<TailState*>(shared_memory);
  auto* const list =
      reinterpret_cast<Survivor*>(shared_memory + (sizeof(TailState) + 15) / 16 * 16);
  ptx::wait_for_previous_kernel();
  Tail(params, state, list).run();
}

}  // namespace tl_topk::indexer
