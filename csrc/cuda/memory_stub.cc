// Stands in for memory.cu in a library built without CUDA, where no plan for a GPU can be made and
// none of this is ever reached.
#include "cuda/memory.h"

#include <cstdlib>

namespace tl_topk {

DeviceGuard::DeviceGuard(int) { std::abort(); }
DeviceGuard::~DeviceGuard() = default;
void wait_for_stream(int, void*) { std::abort(); }
void FreeDeviceMemory::operator()(void*) const { std::abort(); }
DeviceMemory allocate_zeroed(int64_t) { std::abort(); }
DeviceMemory allocate_zeroed_on(void*, int64_t) { std::abort(); }

}  // namespace tl_topk
