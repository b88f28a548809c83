#include "tile_kernel.h"

#include <tvm/ffi/extra/c_env_api.h>

#include <algorithm>

#include "config.h"
#include "cuda/memory.h"

namespace tl_topk {
namespace {

constexpr int64_t kVectorBytes = 16;
constexpr int64_t kEntryBytes = 8;

// Two 32-bit counters a row, ahead of the lists: where every workspace has its counters, and at
// least as many bytes of them.
int64_t counter_bytes(int64_t rows) {
  return std::max(kCounterBytes, (8 * rows + kVectorBytes - 1) / kVectorBytes * kVectorBytes);
}

int64_t kind_of(const IntVector& vector) {
  return vector.data == nullptr ? 0 : vector.is_int64 ? 2 : 1;
}

}  // namespace

int64_t TileKernel::workspace_bytes(int64_t rows) const {
  return room > 0 ? counter_bytes(rows) + rows * room * kEntryBytes : 0;
}

void TileKernel::operator()(const Problem& problem, const TopKArgs& args, void* workspace,
                            int device) const {
  const int64_t rows = problem.rows;
  if (rows == 0 || problem.k == 0) return;
  // The kernel loads whole vectors from the 16-byte boundary below the lowest score on; what the
  // last scores fill only in part is read score by score, for behind it there may be nothing.
  const int64_t size = element_size(problem.dtype);
  const auto first = reinterpret_cast<uintptr_t>(args.scores);
  const int64_t span = (rows - 1) * args.scores_stride;  // from the first row to the last
  const uintptr_t lowest = first + static_cast<uintptr_t>((span < 0 ? span : 0) * size);
  const uintptr_t boundary = lowest - lowest % kVectorBytes;
  const auto skew = static_cast<int64_t>(first - boundary) / size;
  const int64_t end = (skew + (span > 0 ? span : 0) + problem.width) * size;
  void* const lists = room > 0 ? static_cast<char*>(workspace) + counter_bytes(rows) : nullptr;
  const DeviceGuard guard(device);
  launch(reinterpret_cast<void*>(boundary), end / kVectorBytes, skew, args.scores_stride,
         problem.width, const_cast<void*>(args.lengths.data), kind_of(args.lengths),
         const_cast<void*>(args.row_starts.data), kind_of(args.row_starts),
         static_cast<void*>(args.indices), args.indices_stride, args.values, args.values_stride,
         int64_t{args.values != nullptr}, workspace, lists, room, problem.k, blocks_per_row,
         static_cast<int64_t>(problem.order), int64_t{problem.largest}, rows * blocks_per_row,
         TVMFFIEnvGetStream(kDLCUDA, device));
}

}  // namespace tl_topk
