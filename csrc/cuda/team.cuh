// The blocks that share one row, and how they meet: the only code that knows the scope.
//
// Every block delivers its survivors to the leader, which alone selects. What crosses the network
// is a few thousand entries once, no more than the count tables of an all-to-all exchange would be,
// and no block but the leader waits for anything on the way.
#pragma once

#include <cstdint>

#include "cuda/ptx.cuh"
#include "cuda/shared_state.cuh"

namespace tl_topk {

enum Verdict : uint32_t { kUndecided = 0, kSelected = 1, kMisled = 2 };

template <Scope S>
class Team;

// One block: everything is at hand.
template <>
class Team<Scope::kBlock> {
 public:
  __device__ Team(SharedState& state, Entry* entries) : state_(state), entries_(entries) {}
  __device__ uint32_t rank() const { return 0; }
  __device__ uint32_t size() const { return 1; }
  __device__ bool leads() const { return true; }
  __device__ void open() const {}
  __device__ void await_open() const {}

  __device__ void store_survivor(uint32_t, uint32_t at, Entry e) const { entries_[at] = e; }
  __device__ void deliver(uint32_t survivors, float floor) const {
    state_.counts[0] = survivors;
    state_.floors[0] = floor;
  }
  __device__ void meet() const { __syncthreads(); }
  __device__ void announce(Verdict) const {}
  __device__ void release() const {}
  __device__ uint32_t add_shared(uint32_t n) const { return atomicAdd(&state_.survivors, n); }
  __device__ void sum(uint32_t*) const {}

 private:
  SharedState& state_;
  Entry* entries_;
};

// One cluster: block 0 leads, and the others write into its shared memory.
template <>
class Team<Scope::kCluster> {
 public:
  __device__ Team(SharedState& state, Entry* entries)
      : state_(state), rank_(ptx::cluster_rank()), size_(ptx::cluster_size()) {
    entries_ = ptx::cluster_address(entries, 0);
  }
  __device__ uint32_t rank() const { return rank_; }
  __device__ uint32_t size() const { return size_; }
  __device__ bool leads() const { return rank_ == 0; }

  // No block may touch another's shared memory before that block runs and has set it up.
  __device__ void open() const { ptx::cluster_arrive(); }
  __device__ void await_open() const { ptx::cluster_wait(); }

  // Entry `at` of the leader's list, counted from entry `base`.
  __device__ void store_survivor(uint32_t base, uint32_t at, Entry e) const {
    ptx::remote_store(entries_ + (base + at) * static_cast<uint32_t>(sizeof(Entry)),
                      __float_as_uint(e.score), e.index);
  }
  // Called by one thread, before meet().
  __device__ void deliver(uint32_t survivors, float floor) const {
    ptx::remote_store(ptx::cluster_address(&state_.counts[rank_], 0), survivors);
    ptx::remote_store(ptx::cluster_address(&state_.floors[rank_], 0), __float_as_uint(floor));
  }
  __device__ void meet() const {
    ptx::cluster_arrive();
    ptx::cluster_wait();
  }
  // Lets the others pass their meet() without waiting for them.
  __device__ void release() const { ptx::cluster_arrive(); }
  // The leader tells every block; they read state.verdict after meet().
  __device__ void announce(Verdict verdict) const {
    if (threadIdx.x < size_) {
      ptx::remote_store(ptx::cluster_address(&state_.verdict, threadIdx.x), verdict);
    }
  }
  // Adds to the leader's survivor counter and returns what it held.
  __device__ uint32_t add_shared(uint32_t n) const {
    return ptx::remote_add(ptx::cluster_address(&state_.survivors, 0), n);
  }
  // Replaces every block's histogram by the sum of all. Block b alone reads and writes slice b of
  // each block's bins, so no copy is needed.
  __device__ void sum(uint32_t* bins) const {
    meet();
    const uint32_t slice = kDigitBins / size_;
    for (uint32_t i = rank_ * slice + threadIdx.x; i < (rank_ + 1) * slice; i += blockDim.x) {
      uint32_t total = 0;
      for (uint32_t b = 0; b < size_; ++b) total += ptx::remote_load(ptx::cluster_address(bins + i, b));
      for (uint32_t b = 0; b < size_; ++b) ptx::remote_store(ptx::cluster_address(bins + i, b), total);
    }
    meet();
  }

 private:
  SharedState& state_;
  ptx::ClusterAddress entries_;
  uint32_t rank_;
  uint32_t size_;
};

}  // namespace tl_topk
