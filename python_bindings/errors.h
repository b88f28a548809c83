// csrc knows no FFI and throws standard exceptions; callers get the FFI's kinds.
#pragma once

#include <tvm/ffi/error.h>

#include <new>
#include <stdexcept>

namespace tl_topk {

template <typename Body>
decltype(auto) with_ffi_errors(Body&& body) {
  try {
    return body();
  } catch (const std::invalid_argument& error) {
    TVM_FFI_THROW(ValueError) << error.what();
  } catch (const std::bad_alloc&) {
    TVM_FFI_THROW(MemoryError) << "no memory left for the scratch space of this selection";
  } catch (const std::runtime_error& error) {
    TVM_FFI_THROW(RuntimeError) << error.what();
  }
  TVM_FFI_UNREACHABLE();
}

}  // namespace tl_topk
