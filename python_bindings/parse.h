// Problems as callers spell them: names and plain numbers, checked with errors that name the
// argument, what it got and what is allowed.
#pragma once

#include <dlpack/dlpack.h>
#include <tvm/ffi/string.h>

#include <cstdint>

#include "problem.h"

namespace tl_topk {

Problem parse_problem(int64_t rows, int64_t width, int64_t k, const tvm::ffi::String& dtype,
                      const tvm::ffi::String& order, bool largest, bool values);

Order parse_order(const tvm::ffi::String& name);

Dtype parse_dtype(DLDataType dtype);  // of the scores
DLDataType dl_dtype(Dtype dtype);

const char* dtype_name(Dtype dtype);
const char* order_name(Order order);

}  // namespace tl_topk
