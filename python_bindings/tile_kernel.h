// A kernel written in TileLang, as a plan launches it.
#pragma once

#include <tvm/ffi/function.h>

#include <cstdint>

#include "problem.h"

namespace tl_topk {

struct TileKernel {
  // Takes what tl_topk/tile/pipelined.py lists as ARGUMENTS, then the number of blocks and the
  // stream.
  tvm::ffi::Function launch;
  int64_t blocks_per_row;
  int64_t room;  // entries of a row's list in the workspace; 0 where blocks do not meet there

  int64_t workspace_bytes(int64_t rows) const;
  void operator()(const Problem& problem, const TopKArgs& args, void* workspace, int device) const;
};

}  // namespace tl_topk
