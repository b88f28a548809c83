// Stands in for bare_launch.cu and floors.cu where there is no CUDA compiler.
#include <stdexcept>

#include "bare_launch.h"
#include "floors.h"

namespace tl_topk_bench {
namespace {

[[noreturn]] void no_cuda() { throw std::runtime_error("bench/native was built without CUDA"); }

}  // namespace

void time_bare_launch(const tl_topk::TopKArgs&, void*, int64_t*, int64_t) { no_cuda(); }
void time_driver_launch(const tl_topk::TopKArgs&, void*, int64_t*, int64_t) { no_cuda(); }
void time_library_launch(const tl_topk::TopKArgs&, void*, int64_t*, int64_t) { no_cuda(); }
void time_nothing(int64_t*, int64_t) { no_cuda(); }
void prepare_bare_launch(const tl_topk::TopKArgs&, void*) { no_cuda(); }
void bare_launch() { no_cuda(); }
void bare_driver_launch() { no_cuda(); }
void launch(const tl_topk::TopKArgs&, void*) { no_cuda(); }
void launch_floor(Floor, const tl_topk::TopKArgs&, void*) { no_cuda(); }

}  // namespace tl_topk_bench
