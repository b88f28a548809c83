// The blocks that share one row, and how they meet: the only code that knows the scope.
//
// What blocks exchange on the way is asynchronous stores that an mbarrier of the receiver counts
// in: the count tables (all to all), and at the end the few entries of the cut's bin (to the
// leader; for order of index to all, and bits to the blocks that have them). No block fences, and
// none waits for another's progress beyond the message it needs.
#pragma once

#include <cstdint>

#include "cuda/prefix_sum.cuh"
#include "cuda/ptx.cuh"
#include "cuda/shared_state.cuh"
#include "parts.h"

namespace tl_topk {

template <Scope S>
class Team;

// One block: everything is at hand.
template <>
class Team<Scope::kBlock> {
 public:
  __device__ Team(SharedState& state, void* sort_buffer, const KernelParams&)
      : state_(state), sort_buffer_(sort_buffer) {}
  __device__ uint32_t row() const { return blockIdx.x; }
  __device__ uint32_t rank() const { return 0; }
  __device__ uint32_t size_log2() const { return 0; }
  __device__ bool leads() const { return true; }
  __device__ void open() const { __syncthreads(); }
  __device__ void await_open() const {}

  // The block's own table can be read after the next barrier.
  __device__ void send_table() const {
    if (threadIdx.x < kWarp) keep_table(state_.own, sum_from_top(state_.own), 0, state_.tables[0]);
  }
  __device__ void await_tables() const {}  // it is here since the barrier after it was sent
  __device__ void exchange_tables() const {
    send_table();
    __syncthreads();
  }
  __device__ void expect_residual(uint32_t) const {}
  template <typename T>
  __device__ void send_residual(T* place, T x, uint32_t = 0) const {
    *place = x;
  }
  __device__ void await_residual() const { __syncthreads(); }
  __device__ void expect_keys(uint32_t) const {}
  template <typename T>
  __device__ void send_key(uint32_t, uint32_t at, T key) const {
    static_cast<T*>(sort_buffer_)[at] = key;
  }
  __device__ void await_keys() const { __syncthreads(); }
  __device__ void mark_element(uint32_t, uint32_t at) const {
    atomicOr(static_cast<uint32_t*>(sort_buffer_) + at / 32, 1u << at % 32);
  }
  __device__ void open_marks() const {}
  __device__ void send_mark(uint32_t block, uint32_t at) const { mark_element(block, at); }
  __device__ void announce_marks() const {}
  __device__ void await_marks() const {}  // it follows a barrier, and another does

  __device__ void meet() const { __syncthreads(); }
  __device__ void sum(uint32_t*, uint32_t) const {}
  __device__ uint32_t sum_before(uint32_t) const { return 0; }

 private:
  SharedState& state_;
  void* sort_buffer_;
};

// One cluster; block 0 leads.
template <>
class Team<Scope::kCluster> {
 public:
  __device__ Team(SharedState& state, void* sort_buffer, const KernelParams& params)
      : state_(state),
        sort_buffer_(sort_buffer),
        rank_(ptx::cluster_rank()),
        size_log2_(params.blocks_log2) {}
  __device__ uint32_t row() const { return blockIdx.x >> size_log2_; }  // with a cluster each
  __device__ uint32_t rank() const { return rank_; }
  __device__ uint32_t size_log2() const { return size_log2_; }
  __device__ bool leads() const { return rank_ == 0; }

  // No block may touch another's shared memory before that block runs and has set it up.
  __device__ void open() const {
    if (threadIdx.x < kWarp && ptx::elect()) {
      ptx::init_barrier(&state_.tallied, 1);
      ptx::init_barrier(&state_.settled, 1);
      ptx::init_barrier(&state_.sorted, 1);
      ptx::fence_barrier_init();
    }
    __syncthreads();
    ptx::cluster_arrive_relaxed();
    // Whether tables come before this or after it: the barrier waits for its arrival.
    if (threadIdx.x == 0) {
      ptx::arrive_and_expect(&state_.tallied, kTableMessageBytes * ((1u << size_log2_) - 1));
    }
  }
  __device__ void await_open() const { ptx::cluster_wait(); }

  // One warp sends it to one block, or keeps it: the block's own table can be read after the next
  // barrier.
  __device__ void send_table() const {
    if constexpr (!kWith<Part::kPush>) return exchange_tables();
    const uint32_t to = threadIdx.x / kWarp;
    if (to >= 1u << size_log2_) return;
    const uint32_t lane = threadIdx.x % kWarp;
    const uint2 sums = sum_from_top(state_.own);
    if (to == rank_) return keep_table(state_.own, sums, size_log2_, state_.tables[rank_]);
    const auto table = ptx::cluster_address(&state_.tables[rank_], to);
    const auto barrier = ptx::cluster_address(&state_.tallied, to);
    ptx::store_async(table + lane * static_cast<uint32_t>(sizeof(uint2)), sums.x, sums.y, barrier);
    if (lane == 0) {
      ptx::store_async(table + static_cast<uint32_t>(sizeof(CountTable::words)),
                       overflow_of(state_.own, sums, size_log2_), barrier);
    }
  }
  __device__ void await_tables() const {
    if constexpr (kWith<Part::kPush>) ptx::await_barrier(&state_.tallied);
  }

  // The same off the usual path: each warp loads one block's table, between barriers of all. What a
  // block offers lies where it counted.
  __device__ void exchange_tables() const {
    const uint32_t lane = threadIdx.x % kWarp;
    auto* const offered = reinterpret_cast<uint2*>(state_.own.bins);
    uint2 sums{};
    if (threadIdx.x < kWarp) sums = sum_from_top(state_.own);
    __syncthreads();
    if (threadIdx.x < kWarp) offered[lane] = sums;
    if (threadIdx.x == 0) state_.own.overflow = overflow_of(state_.own, sums, size_log2_);
    meet();
    const uint32_t from = threadIdx.x / kWarp;
    if (from < 1u << size_log2_) {
      CountTable& table = state_.tables[from];
      for (uint32_t i = lane; i < kTableWords; i += kWarp) {
        table.words[i] = ptx::remote_load(ptx::cluster_address(&state_.own.bins[i], from));
      }
      if (lane == 0) {
        table.overflow = ptx::remote_load(ptx::cluster_address(&state_.own.overflow, from));
      }
    }
    meet();
  }

  // At a block that is sent the residual, by one thread.
  __device__ void expect_residual(uint32_t bytes) const {
    ptx::arrive_and_expect(&state_.settled, bytes);
  }
  // To the place in a block's state, the leader's if none is named, that is `place` in this
  // block's.
  template <typename T>
  __device__ void send_residual(T* place, T x, uint32_t to = 0) const {
    ptx::store_async(ptx::cluster_address(place, to), x, ptx::cluster_address(&state_.settled, to));
  }
  __device__ void await_residual() const { ptx::await_barrier(&state_.settled); }

  // What `send_key` brings to this block altogether; by one thread, before or after some have come.
  __device__ void expect_keys(uint32_t bytes) const {
    ptx::arrive_and_expect(&state_.sorted, bytes);
  }
  // To the sort buffer of a block.
  template <typename T>
  __device__ void send_key(uint32_t block, uint32_t at, T key) const {
    ptx::store_async(ptx::cluster_address(static_cast<T*>(sort_buffer_) + at, block), key,
                     ptx::cluster_address(&state_.sorted, block));
  }
  __device__ void await_keys() const { ptx::await_barrier(&state_.sorted); }
  // Sets a bit of a block's sort buffer, which it sees once all have met.
  __device__ void mark_element(uint32_t block, uint32_t at) const {
    const uint32_t* const word = static_cast<uint32_t*>(sort_buffer_) + at / 32;
    ptx::remote_or(ptx::cluster_address(word, block), 1u << at % 32);
  }

  // The same with no meeting: all blocks announce how many bits they send to which, and a block has
  // all of its own once all have. By one thread, before the team opens.
  __device__ void open_marks() const {
    ptx::init_barrier(&state_.marks.here, 1u << size_log2_);
    ptx::fence_barrier_init();
  }
  // A block's own bits do not go through the network: it sees them after its next barrier.
  __device__ void send_mark(uint32_t block, uint32_t at) const {
    uint32_t* const word = static_cast<uint32_t*>(sort_buffer_) + at / 32;
    if (block == rank_) {
      atomicOr(word, 1u << at % 32);
    } else {
      ptx::or_async(ptx::cluster_address(word, block), 1u << at % 32,
                    ptx::cluster_address(&state_.marks.here, block));
    }
  }
  // By one warp, when all of this block's are counted: to every block also how many there are in
  // the parts before its own.
  __device__ void announce_marks() const {
    const uint32_t to = threadIdx.x % kWarp;
    const bool is_block = to < 1u << size_log2_;
    const uint32_t in_part = is_block ? state_.marks.in_part[to] : 0;
    const uint32_t before = warp_inclusive_sum(in_part) - in_part;
    if (!is_block) return;
    const uint32_t sent = to == rank_ ? 0 : in_part;
    const auto barrier = ptx::cluster_address(&state_.marks.here, to);
    ptx::add_async(ptx::cluster_address(&state_.marks.before, to), before, barrier);
    ptx::arrive_and_expect_at(barrier, (sent + 1) * static_cast<uint32_t>(sizeof(uint32_t)));
  }
  __device__ void await_marks() const { ptx::await_barrier(&state_.marks.here); }

  // The slow path: ordinary stores between barriers of the whole cluster.
  __device__ void meet() const { ptx::cluster_sync(); }
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
      ptx::remote_store(ptx::cluster_address(&state_.before[rank_], threadIdx.x), x);
    }
    meet();
    uint32_t before = 0;
    for (uint32_t b = 0; b < rank_; ++b) before += state_.before[b];
    return before;
  }

 private:
  static constexpr uint32_t kTableMessageBytes =
      sizeof(CountTable::words) + sizeof(CountTable::overflow);

  SharedState& state_;
  void* sort_buffer_;
  uint32_t rank_;
  uint32_t size_log2_;
};

// The cluster that finishes a row which several have read: it finds all tables in L2.
template <>
class Team<Scope::kGrid> : public Team<Scope::kCluster> {
 public:
  using Team<Scope::kCluster>::Team;
  __device__ void await_tables() const {}
};

}  // namespace tl_topk
