#include "cuda/exchange_cuda.h"

#include <cuda_runtime.h>

#include <type_traits>

#include "cuda/merge_kernel.cuh"
#include "cuda/runtime.h"
#include "cuda/threshold_kernels.cuh"

namespace tl_topk {
namespace {

__global__ void __launch_bounds__(kThreads)
    local_lengths_kernel(const LengthsArgs args, const __grid_constant__ Shards shards) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (row >= args.rows) return;
  args.local[row] =
      static_cast<int32_t>(shards.local_length(shards.rank, load_int(args.whole, row)));
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
  const int64_t candidates = args.candidates(shards);
  const bool held = candidates <= kMostHeld;
  const bool staged = !held && least + staged_bytes(candidates) <= shared_bytes;
  const int64_t shared = least + (staged ? staged_bytes(candidates) : 0);
  MergeParams params{args, shards, -1, staged};
  for (int8_t log2 = 0; log2 < 32; ++log2) {
    if (args.per_rank == 1u << log2) params.per_rank_log2 = log2;
  }
  const LaunchConfig config = blocks_of(args.rows, shared);
  with_dtype(args.dtype, [&](auto dtype) {
    const auto s = static_cast<cudaStream_t>(stream);
    held ? launch<merge_kernel<dtype, true>>(config, s, params)
         : launch<merge_kernel<dtype, false>>(config, s, params);
  });
}

}  // namespace tl_topk
