// What any selection of a row takes at the least, in the launch that the library would make for it.
// Free of CUDA headers; floors.cu implements it.
#pragma once

#include "problem.h"

namespace tl_topk_bench {

enum class Floor {
  kLaunch,  // nothing is done
  kMemory,  // every block reads its share of the row once, then writes its share of k indices
  kMeeting  // the same, and in between each block of the cluster tells the next what it has read
};

// On `stream`, for the problem of `args`: one row of float32 at a multiple of 16 bytes.
void launch_floor(Floor floor, const tl_topk::TopKArgs& args, void* stream);

}  // namespace tl_topk_bench
