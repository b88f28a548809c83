// bfloat16 for callers whose arrays have no name for it.
#pragma once

#include <tvm/ffi/container/tensor.h>

namespace tl_topk {

// The same memory, with the elements of a uint16 tensor taken for bfloat16. NumPy's DLPack exports
// the first and not the second.
tvm::ffi::Tensor as_bfloat16(const tvm::ffi::Tensor& bits);

}  // namespace tl_topk
