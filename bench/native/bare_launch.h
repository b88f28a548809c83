// The library's own kernel launched with nothing around it: what every other way is compared with.
// Free of CUDA headers; bare_launch.cu implements it.
#pragma once

#include <cstdint>

#include "problem.h"

namespace tl_topk_bench {

// Each fills times_ns[0 .. calls): what one call cost the CPU, clock included. Waits for the GPU
// before and after.

// cudaLaunchKernelEx alone. The kernel, its configuration and its parameters are those of the
// library's launch for `args`, which is captured in a graph and read back from it.
void time_bare_launch(const tl_topk::TopKArgs& args, void* stream, int64_t* times_ns,
                      int64_t calls);

// The same by the driver's cuLaunchKernelEx, without the runtime in between.
void time_driver_launch(const tl_topk::TopKArgs& args, void* stream, int64_t* times_ns,
                        int64_t calls);

// The library's C++ launch of a prepared problem.
void time_library_launch(const tl_topk::TopKArgs& args, void* stream, int64_t* times_ns,
                         int64_t calls);

// Nothing at all: what the clock costs.
void time_nothing(int64_t* times_ns, int64_t calls);

// The bare launch of the problem prepared last, by the runtime or the driver, for a caller that
// does nothing else.
void prepare_bare_launch(const tl_topk::TopKArgs& args, void* stream);
void bare_launch();
void bare_driver_launch();

// One launch of the library's on `stream`; for callers that bring raw pointers.
void launch(const tl_topk::TopKArgs& args, void* stream);

}  // namespace tl_topk_bench
