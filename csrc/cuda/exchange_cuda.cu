#include "cuda/exchange_cuda.h"

#include <cuda_runtime.h>

#include <atomic>

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

template <auto kKernel, typename... Params>
void launch(const LaunchConfig& config, cudaStream_t stream, const Params&... params) {
  static std::atomic<bool> allowed[kMaxDevices];  // doing it twice is harmless: no lock
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  if (device >= kMaxDevices || !allowed[device].load(std::memory_order_relaxed)) {
    allow_large_launches(reinterpret_cast<KernelSymbol>(kKernel), device);
    if (device < kMaxDevices) allowed[device].store(true, std::memory_order_relaxed);
  }
  cudaLaunchAttribute cluster;
  const cudaLaunchConfig_t settings = runtime_launch(config, stream, cluster);
  check_cuda(cudaLaunchKernelEx(&settings, kKernel, params...), "cudaLaunchKernelEx");
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

void contribute_cuda(const ContributeArgs& args, const Shards& shards, void* stream) {
  if (args.selected.rows == 0) return;
  const bool held = shards.ranks * args.samples <= kMostSamplesHeld;
  with_dtype(args.dtype, [&](auto dtype) {
    const auto s = static_cast<cudaStream_t>(stream);
    const LaunchConfig config = blocks_of(args.selected.rows, sizeof(ContributeScratch));
    held ? launch<contribute_kernel<dtype, true>>(config, s, args, shards)
         : launch<contribute_kernel<dtype, false>>(config, s, args, shards);
  });
}

// How many quads of candidates each thread of a merge keeps in registers.
uint32_t quads_to_hold(bool words, int64_t candidates) {
  if (candidates <= most_held(kFewQuads)) return kFewQuads;
  return !words && candidates <= most_held(kManyQuads) ? kManyQuads : 0;
}

template <Dtype D, bool kWords>
void launch_merge(uint32_t held, const LaunchConfig& config, void* stream,
                  const MergeParams& params) {
  const auto s = static_cast<cudaStream_t>(stream);
  if (held == kFewQuads) {
    launch<merge_kernel<D, kWords, kFewQuads>>(config, s, params);
  } else if (held == 0) {
    launch<merge_kernel<D, kWords, 0>>(config, s, params);
  } else if constexpr (!kWords) {
    launch<merge_kernel<D, false, kManyQuads>>(config, s, params);
  }
}

void merge_cuda(const MergeArgs& args, const Shards& shards, int64_t shared_bytes, void* stream) {
  const int64_t least =
      sizeof(MergeScratch) + (sorts_in_shared(args) ? 2 * pairs_bytes(args.k) : 0);
  const int64_t candidates = args.candidates(shards);
  const uint32_t held = quads_to_hold(args.parts == nullptr, candidates);
  const bool staged = held == 0 && least + staged_bytes(candidates) <= shared_bytes;
  const LaunchConfig config = blocks_of(args.rows, least + (staged ? staged_bytes(candidates) : 0));
  const MergeParams params{args, shards, staged};
  with_dtype(args.dtype, [&](auto dtype) {
    if (args.parts == nullptr) {
      launch_merge<dtype, true>(held, config, stream, params);
    } else {
      launch_merge<dtype, false>(held, config, stream, params);
    }
  });
}

}  // namespace tl_topk
