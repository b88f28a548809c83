// How the blocks of several clusters that share a row meet: in L2, and none waits for another
// cluster, so nothing needs to be co-resident.
//
// Every block leaves its survivors, in the order of their bins, and how many each bin has in its
// segment of the workspace, and draws a ticket. The cluster of the block that draws the row's last
// one finds all of them there and finishes the row. A cluster runs as a whole in any case: its
// blocks tell one another what they drew.
#pragma once

#include <cstdint>

#include "config.h"
#include "cuda/count_table.cuh"
#include "cuda/params.h"
#include "cuda/shared_state.cuh"
#include "cuda/survivors.cuh"

namespace tl_topk {

static_assert(kGridHeadBytes == sizeof(CountTable::words));

// What a cluster has drawn.
struct GridDraw {
  bool finishes;  // the row: one of its blocks came last
  bool overflow;  // and some block could not keep all that passed the floor
};

class GridMeeting {
 public:
  __device__ GridMeeting(const KernelParams& params, GridState& state)
      : state_(state),
        cluster_log2_(params.blocks_log2),
        blocks_log2_(params.blocks_log2 + params.clusters_log2) {
    auto* const at = static_cast<unsigned char*>(params.workspace);
    constexpr uint32_t kRowBytes = kMaxGridBlocks * kGridHeadBytes + kGridEntries * sizeof(Entry);
    tickets_ = reinterpret_cast<uint32_t*>(at) + row();
    heads_ = at + kCounterBytes + size_t{row()} * kRowBytes;
  }

  __device__ uint32_t row() const { return blockIdx.x >> blocks_log2_; }
  __device__ uint32_t blocks_log2() const { return blocks_log2_; }
  __device__ uint32_t clusters_log2() const { return blocks_log2_ - cluster_log2_; }
  // Of the blocks that share the row.
  __device__ uint32_t block() const { return blockIdx.x & ((1u << blocks_log2_) - 1); }
  __device__ bool in_first_cluster() const { return block() >> cluster_log2_ == 0; }

  // A block's counts, two words for each lane of a warp.
  __device__ uint2* table(uint32_t block) const {
    return reinterpret_cast<uint2*>(heads_ + block * kGridHeadBytes);
  }
  __device__ uint32_t room() const { return grid_room(blocks_log2_); }  // of a segment
  __device__ Entry* segment(uint32_t block) const {
    return reinterpret_cast<Entry*>(heads_ + kMaxGridBlocks * kGridHeadBytes) + block * room();
  }

  // Before any other block may write here. A barrier of the cluster must follow, and expect().
  __device__ void open() const {
    if (threadIdx.x != 0) return;
    ptx::init_barrier(&state_.all_drew, 1);
    ptx::fence_barrier_init();
  }
  // Whether blocks tell what they drew before this or after it: the barrier waits for its arrival.
  __device__ void expect() const {
    if (threadIdx.x != 0) return;
    ptx::arrive_and_expect(&state_.all_drew, sizeof(uint32_t) << cluster_log2_);
  }

  // Called by the whole block once its segment is written. No block may end before it knows what
  // its cluster has drawn: the others tell it.
  __device__ GridDraw draw(bool overflow) const {
    __syncthreads();
    if (threadIdx.x < kWarp) {
      uint32_t drawn = 0;
      if (threadIdx.x == 0) {
        const uint32_t mine = overflow ? kOne + kOverflow : kOne;
        const uint32_t all = ptx::ordered_add(tickets_, mine) + mine;
        if (all % kOverflow == 1u << blocks_log2_) {
          drawn = kFinishes | (all / kOverflow != 0 ? kWithOverflow : 0);
          *tickets_ = 0;  // for the next launch
        }
      }
      drawn = __shfl_sync(kAllLanes, drawn, 0);
      if (threadIdx.x < 1u << cluster_log2_) {
        const uint32_t rank = block() & ((1u << cluster_log2_) - 1);
        ptx::store_async(ptx::cluster_address(&state_.drawn[rank], threadIdx.x), drawn,
                         ptx::cluster_address(&state_.all_drew, threadIdx.x));
      }
    }
    ptx::await_barrier(&state_.all_drew);
    const uint32_t lane = threadIdx.x % kWarp;
    const uint32_t drawn =
        __reduce_max_sync(kAllLanes, lane < 1u << cluster_log2_ ? state_.drawn[lane] : 0);
    return {(drawn & kFinishes) != 0, (drawn & kWithOverflow) != 0};
  }

 private:
  // What a ticket counts: blocks, and above them those whose lists overflowed.
  static constexpr uint32_t kOne = 1;
  static constexpr uint32_t kOverflow = 1 << 16;
  // What a block tells the others.
  static constexpr uint32_t kFinishes = 1;
  static constexpr uint32_t kWithOverflow = 2;

  GridState& state_;
  uint32_t cluster_log2_;
  uint32_t blocks_log2_;
  uint32_t* tickets_;  // drawn for this row; zero between launches
  unsigned char* heads_;
};

}  // namespace tl_topk
