// The library's float32 kernels again, compiled with this variant's definitions: the phase clock, a
// floor that is known beforehand, or parts switched off. What lies in this translation unit is read
// and written here.
#include "variant_kernels.h"

#include <stdexcept>
#include <string>

#include "cuda/phase_clock.cuh"
#include "cuda/runtime.h"

#ifdef TL_TOPK_KNOWN_FLOOR
#include "cuda/anchors.cuh"

namespace tl_topk {

__device__ Anchors known_floor;

// In the place of find_anchors(): what a hint at its best would tell, for nothing.
template <uint32_t kGroupCount, uint32_t kPerVector, uint32_t kElements>
__device__ __forceinline__ Anchors known_anchors(const float (&)[kElements], const SamplePlan&,
                                                 AnchorScratch&) {
  return known_floor;
}

}  // namespace tl_topk

#define find_anchors known_anchors
#endif

#include "cuda/select_float32.cu"

namespace tl_topk {

// The others are not compiled again.
template <>
KernelSymbol find_kernel<Dtype::kFloat16>(const LaunchConfig&, bool) {
  throw std::invalid_argument("dtype: expected float32 in a variant for benchmarks, got float16");
}
template <>
KernelSymbol find_kernel<Dtype::kBFloat16>(const LaunchConfig&, bool) {
  throw std::invalid_argument("dtype: expected float32 in a variant for benchmarks, got bfloat16");
}

}  // namespace tl_topk

namespace tl_topk_bench {

using tl_topk::check_cuda;

#ifdef TL_TOPK_PHASE_CLOCK

static_assert(tl_topk::kPhases == 11, "name them all");
const char* phase_names() {
  return "start,read,floor,filter,meet,gather,count,exchange,cut,emit,select";
}

void take_phase_clocks(int64_t* clocks, int64_t blocks) {
  static uint32_t sums[tl_topk::kPhaseBlocks][tl_topk::kPhases];
  if (blocks > tl_topk::kPhaseBlocks) {
    throw std::invalid_argument("phases: expected a launch of at most " +
                                std::to_string(tl_topk::kPhaseBlocks) + " blocks, got " +
                                std::to_string(blocks));
  }
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  check_cuda(cudaMemcpyFromSymbol(sums, tl_topk::phase_clocks, sizeof(sums)),
             "cudaMemcpyFromSymbol");
  for (int64_t i = 0; i < blocks * tl_topk::kPhases; ++i) clocks[i] = (&sums[0][0])[i];
  void* all = nullptr;
  check_cuda(cudaGetSymbolAddress(&all, tl_topk::phase_clocks), "cudaGetSymbolAddress");
  check_cuda(cudaMemset(all, 0, sizeof(sums)), "cudaMemset");
}

#else

const char* phase_names() { return ""; }
void take_phase_clocks(int64_t*, int64_t) {
  throw std::runtime_error("this variant is compiled without the phase clock");
}

#endif

#ifdef TL_TOPK_KNOWN_FLOOR

void set_known_floor(float floor, float ceiling) {
  const tl_topk::Anchors anchors{floor, floor, ceiling};
  check_cuda(cudaMemcpyToSymbol(tl_topk::known_floor, &anchors, sizeof(anchors)),
             "cudaMemcpyToSymbol");
}

#else

void set_known_floor(float, float) {
  throw std::runtime_error("this variant finds its floor itself");
}

#endif

namespace {

__global__ void count_cycles(long long* cycles_and_ns) {
  constexpr uint64_t kLongNs = 2'000'000;  // the global timer ticks seldom: about every microsecond
  uint64_t begin = 0;
  uint64_t now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  const long long cycles = clock64();
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begin < kLongNs);
  cycles_and_ns[0] = clock64() - cycles;
  cycles_and_ns[1] = static_cast<long long>(now - begin);
}

}  // namespace

double measure_clock_mhz() {
  long long* device = nullptr;
  long long measured[2] = {};
  check_cuda(cudaMalloc(&device, sizeof(measured)), "cudaMalloc");
  count_cycles<<<1, 1>>>(device);
  check_cuda(cudaMemcpy(measured, device, sizeof(measured), cudaMemcpyDeviceToHost), "cudaMemcpy");
  check_cuda(cudaFree(device), "cudaFree");
  return 1e3 * static_cast<double>(measured[0]) / static_cast<double>(measured[1]);
}

}  // namespace tl_topk_bench
