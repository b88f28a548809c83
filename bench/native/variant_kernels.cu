// The library's float32 kernels again, compiled with this variant's definitions: the phase clock,
// or parts switched off. The clocks lie in this translation unit, so they are read here.
#include "variant_kernels.h"

#include "cuda/phase_clock.cuh"
#include "cuda/runtime.h"
#include "cuda/select_float32.cu"

namespace tl_topk_bench {

using tl_topk::check_cuda;

#ifdef TL_TOPK_PHASE_CLOCK

static_assert(tl_topk::kPhases == 7, "name them all");
const char* phase_names() { return "start,read,floor,filter,deliver,cut,select"; }

void take_phase_clocks(int64_t* clocks, int64_t blocks) {
  static_assert(sizeof(long long) == sizeof(int64_t), "what the clocks are");
  const size_t bytes = static_cast<size_t>(blocks) * tl_topk::kPhases * sizeof(int64_t);
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  check_cuda(cudaMemcpyFromSymbol(clocks, tl_topk::phase_clocks, bytes), "cudaMemcpyFromSymbol");
  void* all = nullptr;
  check_cuda(cudaGetSymbolAddress(&all, tl_topk::phase_clocks), "cudaGetSymbolAddress");
  check_cuda(cudaMemset(all, 0, sizeof(tl_topk::phase_clocks)), "cudaMemset");
}

#else

const char* phase_names() { return ""; }
void take_phase_clocks(int64_t*, int64_t) {
  throw std::runtime_error("this variant is compiled without the phase clock");
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
