// The lists of all blocks of a row in the cluster that finishes it: each of its blocks takes over
// those of as many blocks as there are clusters, as if it had listed all that itself.
#pragma once

#include <cstdint>

#include "bin_map.h"
#include "cuda/count_table.cuh"
#include "cuda/grid_meeting.cuh"
#include "cuda/survivors.cuh"

namespace tl_topk {

constexpr uint32_t kMostGridClusters = kMaxGridBlocks / kMaxClusterBlocks;
static_assert(kMaxClusterBlocks == kWarps, "each warp sums up the tables of one block");

// The lists that one block takes over, in the order of their bins. Several threads read each.
class TakenLists {
 public:
  static constexpr uint32_t kMostEntries = kGridEntries / kMaxClusterBlocks;

  // Asks for as much of them as there seldom is more of.
  __device__ __forceinline__ TakenLists(const GridMeeting& meeting, uint32_t rank)
      : count_log2_(meeting.clusters_log2()),
        readers_log2_(kThreadsLog2 - count_log2_),
        list_(threadIdx.x >> readers_log2_),
        from_(reinterpret_cast<const uint2*>(meeting.segment((rank << count_log2_) + list_))) {
#pragma unroll
    for (uint32_t u = 0; u < kAtOnce; ++u) first_[u] = __ldcg(from_ + reader() + u * readers());
  }

  // To `tables` every block's, added up of those of the lists that it takes over; and to `before`,
  // for each of this block's lists and for what would follow them, the sum of those before it. A
  // barrier must follow.
  __device__ __forceinline__ void add_tables(const GridMeeting& meeting, uint32_t rank,
                                             bool overflow, CountTable* tables,
                                             CountTable* before) const {
    const uint32_t block = threadIdx.x / kWarp;
    const uint32_t lane = threadIdx.x % kWarp;
    uint2 part[kMostGridClusters];
#pragma unroll
    for (uint32_t i = 0; i < kMostGridClusters; ++i) {  // all under way before the first is used
      if (i >> count_log2_ == 0) {
        part[i] = __ldcg(meeting.table((block << count_log2_) + i) + lane);
      }
    }
    // The low half of `overflow` is read as the count of the bin after the last.
    const auto put = [&](CountTable& table, uint2 sum, uint32_t high) {
      reinterpret_cast<uint2*>(table.words)[lane] = sum;
      if (lane == 0) table.overflow = high << 16;
    };
    uint2 sum{};
#pragma unroll
    for (uint32_t i = 0; i < kMostGridClusters; ++i) {
      if (i >> count_log2_ != 0) break;
      if (block == rank) put(before[i], sum, 0);
      sum.x += part[i].x;
      sum.y += part[i].y;
    }
    if (block == rank) put(before[1u << count_log2_], sum, 0);
    put(tables[block], sum, overflow);
  }

  // Makes one list of them, in the order of bins. A barrier must follow.
  __device__ __forceinline__ void join(const CountTable* before, const CountTable& all,
                                       const BinMap& map, Entry* list) const {
    const CountTable& earlier = before[list_];
    const CountTable& upto = before[list_ + 1];
    const uint32_t count = upto.count(0) - earlier.count(0);
    const auto put = [&](uint32_t i, uint2 raw) {
      if (i >= count) return;
      const Entry entry{__uint_as_float(raw.x), raw.y};
      const uint32_t bin = map(mapped(entry.score));
      // Behind what is above the bin, and what earlier lists have in it.
      list[all.count_above(bin) + earlier.count(bin) - upto.count_above(bin) + i] = entry;
    };
#pragma unroll
    for (uint32_t u = 0; u < kAtOnce; ++u) put(reader() + u * readers(), first_[u]);
#pragma unroll 1
    for (uint32_t i = reader() + kAtOnce * readers(); i < count; i += readers()) {
      put(i, __ldcg(from_ + i));
    }
  }

 private:
  static constexpr uint32_t kAtOnce = 2;  // entries a thread; seldom are there more

  __device__ __forceinline__ uint32_t readers() const { return 1u << readers_log2_; }
  __device__ __forceinline__ uint32_t reader() const { return threadIdx.x & (readers() - 1); }

  uint32_t count_log2_;
  uint32_t readers_log2_;
  uint32_t list_;  // that this thread reads
  const uint2* from_;
  uint2 first_[kAtOnce];
};

}  // namespace tl_topk
