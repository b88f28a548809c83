#include "bfloat16.h"

#include <tvm/ffi/dtype.h>
#include <tvm/ffi/error.h>

#include "parse.h"

namespace tl_topk {

namespace ffi = tvm::ffi;

ffi::Tensor as_bfloat16(const ffi::Tensor& bits) {
  if (bits.dtype() != DLDataType{kDLUInt, 16, 1}) {
    TVM_FFI_THROW(TypeError) << "bits: expected uint16, got "
                             << ffi::DLDataTypeToString(bits.dtype());
  }
  DLManagedTensorVersioned* alias = bits.ToDLPackVersioned();  // shares what it describes
  alias->dl_tensor.dtype = dl_dtype(Dtype::kBFloat16);
  return ffi::Tensor::FromDLPackVersioned(alias);
}

}  // namespace tl_topk
