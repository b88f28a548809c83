#include "floors.h"

#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include "config.h"
#include "cuda/launch.h"
#include "cuda/runtime.h"

namespace tl_topk_bench {
namespace {

constexpr int kThreads = 512;
constexpr uint32_t kAtOnce = 16;  // vectors under way in each thread

// What the same thread of the cluster's next block passes; of a block alone, the one in its place.
__device__ uint32_t of_next_block(uint32_t x) {
  __shared__ uint32_t passed[kThreads];
#if __CUDA_ARCH__ >= 900
  const auto cluster = cooperative_groups::this_cluster();
  const unsigned next = (cluster.block_rank() + 1) % cluster.num_blocks();
  cluster.map_shared_rank(passed, next)[threadIdx.x] = x;
  cluster.sync();
#else
  passed[threadIdx.x] = x;
  __syncthreads();
#endif
  return passed[threadIdx.x];
}

template <Floor kFloor>
__global__ void __launch_bounds__(kThreads, 1)
    floor_kernel(const uint4* row, uint32_t vectors, int32_t* indices, uint32_t k) {
  if constexpr (kFloor != Floor::kLaunch) {
    const uint32_t thread = blockIdx.x * kThreads + threadIdx.x;
    const uint32_t threads = gridDim.x * kThreads;
    uint32_t bits = 0;
    for (uint32_t first = thread; first < vectors; first += kAtOnce * threads) {
      uint4 loaded[kAtOnce];
#pragma unroll
      for (uint32_t u = 0; u < kAtOnce; ++u) {
        const uint32_t v = first + u * threads;
        loaded[u] = v < vectors ? __ldcs(row + v) : uint4{};
      }
#pragma unroll
      for (uint32_t u = 0; u < kAtOnce; ++u) {
        bits ^= loaded[u].x ^ loaded[u].y ^ loaded[u].z ^ loaded[u].w;
      }
    }
    if constexpr (kFloor == Floor::kMeeting) bits = of_next_block(bits);
    for (uint32_t i = thread; i < k; i += threads) indices[i] = static_cast<int32_t>(bits);
  }
}

template <Floor kFloor>
void launch(const tl_topk::TopKArgs& args, cudaStream_t stream) {
  int device = 0;
  tl_topk::check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  const auto config = choose_launch(args.problem, tl_topk::query_device(device));
  const auto kernel = reinterpret_cast<tl_topk::KernelSymbol>(&floor_kernel<kFloor>);
  tl_topk::allow_large_launches(kernel, device);
  cudaLaunchAttribute cluster{};
  const cudaLaunchConfig_t launch = tl_topk::runtime_launch(config, stream, cluster);
  const auto* row = static_cast<const uint4*>(args.scores);
  auto vectors = static_cast<uint32_t>(args.problem.width / 4);
  int32_t* indices = args.indices;
  auto k = static_cast<uint32_t>(args.problem.k);
  void* arguments[] = {&row, &vectors, &indices, &k};
  tl_topk::check_cuda(cudaLaunchKernelExC(&launch, kernel, arguments), "cudaLaunchKernelEx");
}

}  // namespace

void launch_floor(Floor floor, const tl_topk::TopKArgs& args, void* stream) {
  auto* const on = static_cast<cudaStream_t>(stream);
  switch (floor) {
    case Floor::kLaunch:
      return launch<Floor::kLaunch>(args, on);
    case Floor::kMemory:
      return launch<Floor::kMemory>(args, on);
    case Floor::kMeeting:
      return launch<Floor::kMeeting>(args, on);
  }
}

}  // namespace tl_topk_bench
