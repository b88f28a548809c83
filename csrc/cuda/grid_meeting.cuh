// How the blocks of several clusters that share a row meet: in L2, and none waits for another
// cluster, so nothing needs to be co-resident.
//
// Every block writes its survivors into its segment of the row's list and draws a ticket. Who draws
// the last one finds all lists there and finishes the row. The others of its cluster, which runs as
// a whole in any case, stay until they hear whether the slow path needs them.
#pragma once

#include <cstdint>

#include "config.h"
#include "cuda/params.h"
#include "cuda/shared_state.cuh"
#include "cuda/survivors.cuh"

namespace tl_topk {

class GridMeeting {
 public:
  __device__ GridMeeting(const KernelParams& params, GridState& state)
      : state_(state),
        cluster_log2_(params.blocks_log2),
        blocks_log2_(params.blocks_log2 + params.clusters_log2) {
    auto* const at = static_cast<unsigned char*>(params.workspace);
    constexpr uint32_t kRowBytes = kMaxGridBlocks * kGridHeadBytes + kGridEntries * sizeof(Entry);
    tickets_ = reinterpret_cast<uint32_t*>(at) + row();
    counts_ = reinterpret_cast<uint32_t*>(at + kCounterBytes + size_t{row()} * kRowBytes);
  }

  __device__ uint32_t row() const { return blockIdx.x >> blocks_log2_; }
  __device__ uint32_t blocks_log2() const { return blocks_log2_; }
  // Of the blocks that share the row.
  __device__ uint32_t block() const { return blockIdx.x & ((1u << blocks_log2_) - 1); }
  __device__ bool in_first_cluster() const { return block() >> cluster_log2_ == 0; }

  __device__ uint32_t room() const { return kGridEntries >> blocks_log2_; }  // of a segment
  __device__ Entry* segment(uint32_t block) const {
    return reinterpret_cast<Entry*>(counts_ + kMaxGridBlocks) + block * room();
  }

  // Before any other block may write here. A barrier of the cluster must follow.
  __device__ void open() const {
    if (threadIdx.x != 0) return;
    ptx::init_barrier(&state_.all_drew, 1);
    ptx::init_barrier(&state_.verdict_here, 1);
    ptx::fence_barrier_init();
    ptx::arrive_and_expect(&state_.all_drew, sizeof(uint32_t) << cluster_log2_);
    ptx::arrive_and_expect(&state_.verdict_here, sizeof(state_.misled));
  }

  // Called by the whole block once its segment is written. Is it the row's last?
  __device__ bool draw(uint32_t count) const {
    __syncthreads();
    if (threadIdx.x == 0) {
      counts_[block()] = count;
      state_.ticket = ptx::ordered_add(tickets_, 1);
    }
    __syncthreads();
    const bool last = state_.ticket == (1u << blocks_log2_) - 1;
    if (last && threadIdx.x == 0) *tickets_ = 0;  // for the next launch
    if (threadIdx.x < 1u << cluster_log2_) {
      const uint32_t mine = block() & ((1u << cluster_log2_) - 1);
      ptx::store_async(ptx::cluster_address(&state_.drew_last[mine], threadIdx.x),
                       static_cast<uint32_t>(last),
                       ptx::cluster_address(&state_.all_drew, threadIdx.x));
    }
    return last;
  }
  // Whether a block of this cluster drew the row's last ticket. No block may end before it knows:
  // the others tell it.
  __device__ bool cluster_drew_last() const {
    ptx::await_barrier(&state_.all_drew);
    const uint32_t lane = threadIdx.x % kWarp;
    return __any_sync(kAllLanes, lane < 1u << cluster_log2_ && state_.drew_last[lane] != 0);
  }

  // From the last block to those of its cluster, itself included.
  __device__ void send_verdict(bool misled) const {
    if (threadIdx.x >= 1u << cluster_log2_) return;
    ptx::store_async(ptx::cluster_address(&state_.misled, threadIdx.x),
                     static_cast<uint32_t>(misled),
                     ptx::cluster_address(&state_.verdict_here, threadIdx.x));
  }
  __device__ bool await_misled() const {
    ptx::await_barrier(&state_.verdict_here);
    return state_.misled != 0;
  }

  // In the last block: survivors of another; more than a segment holds: some are missing. Read past
  // L1, where a launch before may have left another count.
  __device__ uint32_t count(uint32_t block) const { return __ldcg(counts_ + block); }

 private:
  GridState& state_;
  uint32_t cluster_log2_;
  uint32_t blocks_log2_;
  uint32_t* tickets_;  // drawn for this row; zero between launches
  uint32_t* counts_;
};

}  // namespace tl_topk
