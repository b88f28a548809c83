// Selection for callers with no Python and no plan of their own.
#pragma once

#include <tvm/ffi/string.h>

#include "plan.h"

namespace tl_topk {

// The plan of the problem that the tensors pose is found in a small cache or made, then run. Safe
// from any thread; plans are kept for the 64 problems met last.
void topk(DLTensor* scores, int64_t k, DLTensor* indices, OptionalTensor values,
          OptionalTensor lengths, OptionalTensor row_starts, bool largest,
          const tvm::ffi::String& order);

}  // namespace tl_topk
