// The blocks that share one row, and how they meet: the only code that knows the scope.
//
// Every block delivers its survivors to the leader, which alone selects. What crosses the network
// is a few thousand entries once, no more than the count tables of an all-to-all exchange would be,
// and no block but the leader waits for anything on the way. Deliveries are asynchronous stores
// that an mbarrier of the leader counts in, so no block fences either.
#pragma once

#include <cstdint>

#include "cuda/ptx.cuh"
#include "cuda/shared_state.cuh"

namespace tl_topk {

template <Scope S>
class Team;

// One block: everything is at hand.
template <>
class Team<Scope::kBlock> {
 public:
  __device__ Team(SharedState& state, Entry* entries, const KernelParams&)
      : state_(state), entries_(entries) {}
  __device__ uint32_t row() const { return blockIdx.x; }
  __device__ uint32_t rank() const { return 0; }
  __device__ uint32_t size_log2() const { return 0; }
  __device__ bool leads() const { return true; }
  __device__ void open() const { __syncthreads(); }
  __device__ void await_open() const {}

  __device__ void send(uint32_t at, Entry e, bool enabled) const {
    if (enabled) entries_[at] = e;
  }
  __device__ void send_delivery(Delivery d, uint32_t) const { state_.deliveries[0] = d; }
  __device__ void await_deliveries() const { __syncthreads(); }
  __device__ void send_verdict(VerdictMessage) const {}
  __device__ VerdictMessage await_verdict() const { return {}; }  // there is nobody else

  __device__ void meet() const { __syncthreads(); }
  __device__ void store(uint32_t at, Entry e) const { entries_[at] = e; }
  __device__ uint32_t add_survivors(uint32_t n) const {
    return ptx::lane0_add(&state_.survivors, n);
  }
  __device__ void sum(uint32_t*, uint32_t) const {}
  __device__ uint32_t sum_before(uint32_t) const { return 0; }

 private:
  SharedState& state_;
  Entry* entries_;
};

// One cluster: block 0 leads, and the others write into its shared memory.
template <>
class Team<Scope::kCluster> {
 public:
  __device__ Team(SharedState& state, Entry* entries, const KernelParams& params)
      : state_(state),
        entries_(ptx::cluster_address(entries, 0)),
        delivered_(ptx::cluster_address(&state.delivered, 0)),
        rank_(ptx::cluster_rank()),
        size_log2_(params.blocks_log2) {}
  __device__ uint32_t row() const { return blockIdx.x >> size_log2_; }
  __device__ uint32_t rank() const { return rank_; }
  __device__ uint32_t size_log2() const { return size_log2_; }
  __device__ bool leads() const { return rank_ == 0; }

  // No block may touch another's shared memory before that block runs and has set it up.
  __device__ void open() const {
    if (threadIdx.x == 0) {
      ptx::init_barrier(&state_.delivered, 1u << size_log2_);
      ptx::init_barrier(&state_.decided, 1);
      ptx::arrive_and_expect(ptx::cluster_address(&state_.decided, rank_), sizeof(Entry));
    }
    __syncthreads();
    ptx::cluster_arrive_relaxed();
  }
  __device__ void await_open() const { ptx::cluster_wait(); }

  // To entry `at` of the leader's list.
  __device__ void send(uint32_t at, Entry e, bool enabled) const {
    ptx::store_async(entries_ + at * static_cast<uint32_t>(sizeof(Entry)), __float_as_uint(e.score),
                     e.index, delivered_, enabled);
  }
  // By one thread, once its block has sent `sent` entries.
  __device__ void send_delivery(Delivery d, uint32_t sent) const {
    ptx::arrive_and_expect(delivered_, (sent + 1) * static_cast<uint32_t>(sizeof(Entry)));
    ptx::store_async(ptx::cluster_address(&state_.deliveries[rank_], 0), d.survivors,
                     __float_as_uint(d.floor), delivered_);
  }
  __device__ void await_deliveries() const { ptx::await_barrier(&state_.delivered); }
  // From the leader to all others: it may end before a message to itself would arrive.
  __device__ void send_verdict(VerdictMessage m) const {
    const uint32_t to = threadIdx.x;
    if (to == 0 || to >= 1u << size_log2_) return;
    ptx::store_async(ptx::cluster_address(&state_.verdict, to), m.verdict, __float_as_uint(m.floor),
                     ptx::cluster_address(&state_.decided, to));
  }
  __device__ VerdictMessage await_verdict() const {
    ptx::await_barrier(&state_.decided);
    return state_.verdict;
  }

  // The slow path: ordinary stores between barriers of the whole cluster.
  __device__ void meet() const { ptx::cluster_sync(); }
  __device__ void store(uint32_t at, Entry e) const {
    ptx::remote_store(entries_ + at * static_cast<uint32_t>(sizeof(Entry)),
                      __float_as_uint(e.score), e.index);
  }
  // Adds to the leader's survivor counter and returns what it held.
  __device__ uint32_t add_survivors(uint32_t n) const {
    return ptx::remote_add(ptx::cluster_address(&state_.survivors, 0), n);
  }
  // Replaces the first n of every block's counters by their sums over all blocks; n is a multiple
  // of the team's size. Block b alone reads and writes slice b of each block's counters, so no copy
  // is needed.
  __device__ void sum(uint32_t* counters, uint32_t n) const {
    meet();
    const uint32_t slice = n >> size_log2_;
    for (uint32_t i = threadIdx.x; i < slice; i += kThreads) {
      uint32_t* const counter = counters + rank_ * slice + i;
      uint32_t part[kMaxClusterBlocks];
#pragma unroll
      for (uint32_t b = 0; b < kMaxClusterBlocks; ++b) {  // all under way before the first is used
        part[b] = b >> size_log2_ == 0 ? ptx::remote_load(ptx::cluster_address(counter, b)) : 0;
      }
      uint32_t total = 0;
#pragma unroll
      for (uint32_t b = 0; b < kMaxClusterBlocks; ++b) total += part[b];
      for (uint32_t b = 0; b < 1u << size_log2_; ++b) {
        ptx::remote_store(ptx::cluster_address(counter, b), total);
      }
    }
    meet();
  }
  // The sum of what the blocks before this one pass.
  __device__ uint32_t sum_before(uint32_t x) const {
    if (threadIdx.x < 1u << size_log2_) {
      ptx::remote_store(ptx::cluster_address(&state_.deliveries[rank_], threadIdx.x), x);
    }
    meet();
    uint32_t before = 0;
    for (uint32_t b = 0; b < rank_; ++b) before += state_.deliveries[b].survivors;
    return before;
  }

 private:
  SharedState& state_;
  ptx::ClusterAddress entries_;
  ptx::ClusterAddress delivered_;
  uint32_t rank_;
  uint32_t size_log2_;
};

}  // namespace tl_topk
