#include "launch_config.h"

#include <tvm/ffi/reflection/registry.h>

#include "errors.h"
#include "parse.h"

namespace tl_topk {

namespace ffi = tvm::ffi;

LaunchConfigRef::LaunchConfigRef(const LaunchConfig& config) {
  auto object = ffi::make_object<LaunchConfigObj>();
  object->scope = scope_name(config.scope);
  object->large_k = config.large_k;
  object->blocks_per_row = config.blocks_per_row;
  object->cluster_blocks = config.cluster_blocks;
  object->threads = config.threads;
  object->vectors_per_thread = config.vectors_per_thread;
  object->grid_blocks = config.grid_blocks;
  object->shared_bytes = config.shared_bytes;
  object->page_words = config.page_words;
  object->workspace_bytes = config.workspace_bytes;
  object->reason = config.reason;
  data_ = std::move(object);
}

void LaunchConfigObj::reflect() {
  namespace refl = ffi::reflection;
  refl::ObjectDef<LaunchConfigObj>()
      .def_ro("scope", &LaunchConfigObj::scope, "what works on a row: block, cluster or grid")
      .def_ro("large_k", &LaunchConfigObj::large_k, "the slower path for very large k")
      .def_ro("blocks_per_row", &LaunchConfigObj::blocks_per_row)
      .def_ro("cluster_blocks", &LaunchConfigObj::cluster_blocks, "of a cluster")
      .def_ro("threads", &LaunchConfigObj::threads, "per block")
      .def_ro("vectors_per_thread", &LaunchConfigObj::vectors_per_thread,
              "16-byte loads in flight per thread")
      .def_ro("grid_blocks", &LaunchConfigObj::grid_blocks)
      .def_ro("shared_bytes", &LaunchConfigObj::shared_bytes, "dynamic shared memory per block")
      .def_ro("page_words", &LaunchConfigObj::page_words,
              "page numbers of a row that a mapped launch has room for besides")
      .def_ro("workspace_bytes", &LaunchConfigObj::workspace_bytes,
              "device memory, zeroed once; launches leave its counters zeroed")
      .def_ro("reason", &LaunchConfigObj::reason, "one sentence");
}

LaunchConfigRef launch_config(int64_t rows, int64_t width, int64_t k, const ffi::String& dtype,
                              const ffi::String& order, bool largest, bool values,
                              const DeviceInfo& device, int64_t blocks_per_row) {
  const Problem problem = parse_problem(rows, width, k, dtype, order, largest, values);
  return with_ffi_errors(
      [&] { return LaunchConfigRef(choose_launch(problem, device->facts(), blocks_per_row)); });
}

}  // namespace tl_topk
