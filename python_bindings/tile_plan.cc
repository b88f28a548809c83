#include "tile_plan.h"

#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/reflection/registry.h>

#include <utility>

#include "cuda/memory.h"
#include "errors.h"

namespace tl_topk {
namespace {

namespace ffi = tvm::ffi;

constexpr int64_t kVectorBytes = 16;
constexpr int64_t kEntryBytes = 8;

// Two 32-bit counters a row, then the lists.
int64_t counter_bytes(int64_t rows) { return (8 * rows + kVectorBytes - 1) / kVectorBytes * 16; }

int64_t kind_of(const IntVector& vector) {
  return vector.data == nullptr ? 0 : vector.is_int64 ? 2 : 1;
}

}  // namespace

TilePlanObj::TilePlanObj(int64_t rows, int64_t width, int64_t k, ffi::String dtype,
                         ffi::String order, bool largest, bool values, int64_t device_id,
                         ffi::Function launch_kernel, int64_t blocks_per_row, int64_t room,
                         ffi::String why)
    : TopKPlanObj(rows, width, k, std::move(dtype), std::move(order), largest, values, "cuda",
                  device_id, 0),
      launch_kernel(std::move(launch_kernel)),
      blocks_per_row(blocks_per_row),
      room(room) {
  if (blocks_per_row < 1 || rows * blocks_per_row > kMaxWidth) {
    TVM_FFI_THROW(ValueError) << "blocks_per_row: expected at least 1 and at most " << kMaxWidth
                              << " blocks in all, got " << blocks_per_row << " for " << rows
                              << " rows";
  }
  backend = "pipelined";
  config = std::nullopt;
  reason = std::move(why);
  workspace_bytes = room > 0 ? counter_bytes(rows) + rows * room * kEntryBytes : int64_t{0};
}

void TilePlanObj::launch(const TopKArgs& args, void* workspace) const {
  if (rows == 0 || k == 0) return;
  const int64_t size = element_size(args.problem.dtype);
  const auto first = reinterpret_cast<uintptr_t>(args.scores);
  const int64_t span = (rows - 1) * args.scores_stride;  // from the first row to the last
  const uintptr_t lowest = first + static_cast<uintptr_t>((span < 0 ? span : 0) * size);
  const uintptr_t boundary = lowest - lowest % kVectorBytes;
  const auto skew = static_cast<int64_t>(first - boundary) / size;
  const int64_t end = (skew + (span > 0 ? span : 0) + width) * size;
  with_ffi_errors([&] {
    const DeviceGuard guard(device().device_id);
    launch_kernel(reinterpret_cast<void*>(boundary), (end + kVectorBytes - 1) / kVectorBytes, skew,
                  args.scores_stride, width, const_cast<void*>(args.lengths.data),
                  kind_of(args.lengths), const_cast<void*>(args.row_starts.data),
                  kind_of(args.row_starts), static_cast<void*>(args.indices), args.indices_stride,
                  args.values, args.values_stride, int64_t{args.values != nullptr}, workspace,
                  static_cast<void*>(static_cast<char*>(workspace) + counter_bytes(rows)), room, k,
                  blocks_per_row, static_cast<int64_t>(args.problem.order),
                  int64_t{args.problem.largest}, rows * blocks_per_row,
                  TVMFFIEnvGetStream(kDLCUDA, device().device_id));
  });
}

void TilePlanObj::reflect() {
  namespace refl = ffi::reflection;
  using Self = TilePlanObj;
  refl::ObjectDef<Self>()
      .def(refl::init<int64_t, int64_t, int64_t, ffi::String, ffi::String, bool, bool, int64_t,
                      ffi::Function, int64_t, int64_t, ffi::String>())
      .def_ro("launch_kernel", &Self::launch_kernel)
      .def_ro("blocks_per_row", &Self::blocks_per_row, "thread blocks that share a row")
      .def_ro("room", &Self::room, "entries of a row's list in the workspace");
}

}  // namespace tl_topk
