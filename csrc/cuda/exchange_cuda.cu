#include "cuda/exchange_cuda.h"

#include <cuda_runtime.h>

#include <type_traits>

#include "cuda/block_rank.cuh"
#include "cuda/merge_kernel.cuh"
#include "cuda/runtime.h"

namespace tl_topk {
namespace {

struct ContributeParams {
  ContributeArgs args;
  Shards shards;
  bool staged;  // the samples are kept in shared memory
};

struct ContributeScratch {
  RankScratch rank;
  uint32_t above[kMaxRanks];  // samples of each rank that reach the bound
  uint32_t begin;             // of this rank's slots
};

__global__ void __launch_bounds__(kThreads)
    local_lengths_kernel(const LengthsArgs args, const __grid_constant__ Shards shards) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (row >= args.rows) return;
  args.local[row] =
      static_cast<int32_t>(shards.local_length(shards.rank, load_int(args.whole, row)));
}

template <Dtype D>
__global__ void __launch_bounds__(kThreads)
    sample_kernel(const SampleArgs args, const __grid_constant__ Shards shards) {
  const int64_t row = blockIdx.x;
  for (uint32_t i = threadIdx.x; i < args.samples; i += kThreads) {
    const Candidate c = args.selected.at<D>(shards, shards.rank, row, (i + 1) * args.stride - 1);
    args.ranks[row * args.samples + i] = rank_of_candidate<D>(c, args.largest);
  }
}

template <Dtype D>
__global__ void __launch_bounds__(kThreads, 1)
    contribute_kernel(const __grid_constant__ ContributeParams params) {
  extern __shared__ __align__(16) unsigned char shared_memory[];
  auto& scratch = *reinterpret_cast<ContributeScratch*>(shared_memory);
  auto* const staged = reinterpret_cast<uint64_t*>(shared_memory + sizeof(ContributeScratch));
  const ContributeArgs& args = params.args;
  const Shards& shards = params.shards;
  const int64_t row = blockIdx.x;
  const uint32_t n = shards.ranks * args.samples;
  const auto sample_at = [&](uint32_t i) {
    const int64_t list = i / args.samples * args.selected.rows + row;
    return args.ranks[list * args.samples + i % args.samples];
  };
  const auto rank_at = [&](uint32_t i) { return params.staged ? staged[i] : sample_at(i); };

  clear(scratch.rank);
  static_assert(kMaxRanks <= kThreads, "one thread a rank");
  if (threadIdx.x < kMaxRanks) scratch.above[threadIdx.x] = 0;
  RankRange seen;
#pragma unroll 8
  for (uint32_t i = threadIdx.x; i < n; i += kThreads) {
    const uint64_t rank = sample_at(i);
    seen.see(rank);
    if (params.staged) staged[i] = rank;
  }
  __syncthreads();
  const uint64_t bound = block_rank(n, bound_of(args.k, args.stride), seen, scratch.rank, rank_at);
  for (uint32_t i = threadIdx.x; i < n; i += kThreads) {
    if (rank_at(i) >= bound) atomicAdd(&scratch.above[i / args.samples], 1u);
  }
  __syncthreads();
  const uint32_t room =
      threadIdx.x < shards.ranks ? args.stride * (scratch.above[threadIdx.x] + 1) : 0;
  uint32_t total = 0;
  const uint32_t begin = block_exclusive_sum(room, scratch.rank.warp_sums, &total);
  if (threadIdx.x == shards.rank) scratch.begin = begin;
  __syncthreads();
  const uint32_t own = min(args.stride * (scratch.above[shards.rank] + 1), args.selected.count);
  for (uint32_t slot = threadIdx.x; slot < args.slots; slot += kThreads) {
    const uint32_t i = slot - scratch.begin;  // wraps for slots before
    args.words[row * args.slots + slot] =
        i < own ? word_of(args.selected.at<D>(shards, shards.rank, row, i)) : 0;
  }
}

LaunchConfig blocks_of(int64_t blocks, int64_t shared_bytes) {
  LaunchConfig config;
  config.threads = kThreads;
  config.grid_blocks = blocks;
  config.shared_bytes = shared_bytes;
  return config;
}

// Calls f with the dtype as a constant.
template <typename F>
void with_dtype(Dtype dtype, const F& f) {
  switch (dtype) {
    case Dtype::kFloat32:
      return f(std::integral_constant<Dtype, Dtype::kFloat32>{});
    case Dtype::kFloat16:
      return f(std::integral_constant<Dtype, Dtype::kFloat16>{});
    case Dtype::kBFloat16:
      return f(std::integral_constant<Dtype, Dtype::kBFloat16>{});
  }
}

}  // namespace

void local_lengths_cuda(const LengthsArgs& args, const Shards& shards, void* stream) {
  if (args.rows == 0) return;
  launch<local_lengths_kernel>(blocks_of((args.rows - 1) / kThreads + 1, 0),
                               static_cast<cudaStream_t>(stream), args, shards);
}

void sample_cuda(const SampleArgs& args, const Shards& shards, void* stream) {
  if (args.selected.rows == 0 || args.samples == 0) return;
  with_dtype(args.dtype, [&](auto dtype) {
    launch<sample_kernel<dtype>>(blocks_of(args.selected.rows, 0),
                                 static_cast<cudaStream_t>(stream), args, shards);
  });
}

void contribute_cuda(const ContributeArgs& args, const Shards& shards, int64_t shared_bytes,
                     void* stream) {
  if (args.selected.rows == 0) return;
  const int64_t whole =
      sizeof(ContributeScratch) + staged_bytes(static_cast<int64_t>(shards.ranks) * args.samples);
  const bool staged = whole <= shared_bytes;
  const auto shared = staged ? whole : static_cast<int64_t>(sizeof(ContributeScratch));
  with_dtype(args.dtype, [&](auto dtype) {
    launch<contribute_kernel<dtype>>(blocks_of(args.selected.rows, shared),
                                     static_cast<cudaStream_t>(stream),
                                     ContributeParams{args, shards, staged});
  });
}

void merge_cuda(const MergeArgs& args, const Shards& shards, int64_t shared_bytes, void* stream) {
  const int64_t least =
      sizeof(MergeScratch) + (sorts_in_shared(args) ? 2 * pairs_bytes(args.k) : 0);
  const int64_t whole = least + staged_bytes(args.candidates(shards));
  const bool staged = whole <= shared_bytes;
  with_dtype(args.dtype, [&](auto dtype) {
    launch<merge_kernel<dtype>>(blocks_of(args.rows, staged ? whole : least),
                                static_cast<cudaStream_t>(stream),
                                MergeParams{args, shards, staged});
  });
}

}  // namespace tl_topk
