// Everything about one problem that can be settled before the scores are known.
#pragma once

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/object.h>
#include <tvm/ffi/optional.h>
#include <tvm/ffi/string.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>

#include "checks.h"
#include "config.h"
#include "cuda/launch.h"
#include "cuda/memory.h"
#include "launch_config.h"
#include "mapping.h"
#include "problem.h"
#include "tile_kernel.h"

namespace tl_topk {

// The arguments of one call, in the order of TopKPlanObj::run; null where not given.
struct CallTensors {
  const DLTensor* scores;
  const DLTensor* indices;
  const DLTensor* values;
  const DLTensor* lengths;
  const DLTensor* row_starts;
  const DLTensor* workspace;
};

class TopKPlanObj : public tvm::ffi::Object {
 public:
  // The arguments of the constructor, so that a plan can be rebuilt from its fields.
  int64_t rows, width, k;
  tvm::ffi::String dtype, order;
  bool largest, values;
  tvm::ffi::String device_type;
  int64_t device_id, threads, blocks_per_row;
  // What follows from them.
  tvm::ffi::String backend;
  tvm::ffi::Optional<LaunchConfigRef> config;
  tvm::ffi::String reason;
  int64_t workspace_bytes;

  TopKPlanObj(int64_t rows, int64_t width, int64_t k, tvm::ffi::String dtype,
              tvm::ffi::String order, bool largest, bool values, tvm::ffi::String device_type,
              int64_t device_id, int64_t threads, int64_t blocks_per_row);

  // From now on `kernel`, of the backend "pipelined", serves the plan.
  void use(TileKernel kernel, tvm::ffi::String why);

  // From now on launches may begin before the kernel ahead of them on the stream has ended: they
  // wait for it before they read anything, but are on the GPU by then. Nothing on a CPU.
  void overlap();

  // Checks every argument, then launches on the caller's current stream. Without a workspace the
  // plan uses its own, which one launch at a time may do: a second host thread is refused.
  void run(DLTensor* scores, DLTensor* indices, OptionalTensor values, OptionalTensor lengths,
           OptionalTensor row_starts, OptionalTensor workspace);
  [[gnu::hot, gnu::flatten]] void run_given(const CallTensors& given);

  // The same with memory for this one launch, taken from the stream, instead of a workspace: safe
  // from any thread.
  [[gnu::hot]] void run_stateless(const CallTensors& given) const;

  // run() for what engines want: any of the indices, cache slots and ragged indices of one
  // selection, in one launch; mapping.h says what belongs together. Of a plan without values.
  void run_mapped(DLTensor* scores, OptionalTensor indices, OptionalTensor slots,
                  OptionalTensor ragged, OptionalTensor lengths, OptionalTensor row_starts,
                  OptionalTensor row_ends, OptionalTensor page_table, OptionalTensor page_starts,
                  OptionalTensor row_to_request, OptionalTensor query_starts,
                  OptionalTensor offsets, int64_t page_size, int64_t next_n, int64_t compress_ratio,
                  int64_t cache_pages, OptionalTensor workspace);

  // Was the plan made for scores of this shape and dtype, on this device?
  bool is_for(const DLTensor& scores) const;

  tvm::ffi::String explain() const;
  static void reflect();

  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tl_topk.TopKPlan", TopKPlanObj, tvm::ffi::Object);

 private:
  struct Call {
    TopKArgs args;  // without the problem, which only the CPU backend asks for
    void* workspace = nullptr;
  };
  struct Forms {
    Form scores, indices, values;
  };
  // Each fills in what it has checked; the workspace is the caller's, null where none was given.
  void check(const CallTensors& given, Call* call) const;
  void check(const CallTensors& given, const Forms& forms, Call* call) const;
  void check_others(const CallTensors& given, const TensorArg& in, const TensorArg& out,
                    const TensorArg& out_values, Call* call) const;
  [[gnu::noinline]] void check_workspace(const CallTensors& given, const TensorArg& in,
                                         const TensorArg& out, const TensorArg& out_values,
                                         Call* call) const;
  [[gnu::cold]] void run_with_own_workspace(Call* call);
  void check_mapped(const DLTensor* scores, const MappingArgs& given, OptionalTensor row_starts,
                    OptionalTensor workspace, Mapping* mapping, Call* call) const;
  void launch(Call* call) const;
  void launch_mapped(Call* call) const;

  // What every call reads lies together: the launch before has emptied the cache.
  Problem problem_;
  DLDevice device_;
  Forms matrices_;                                  // 2-D
  std::shared_ptr<const PreparedLaunch> prepared_;  // null where there is nothing to launch
  Forms vectors_;                                   // 1-D, where there is one row
  LaunchConfig launch_;
  mutable std::once_flag mapped_once_;  // most plans never run mapped
  mutable std::shared_ptr<const PreparedLaunch> mapped_prepared_;
  std::optional<TileKernel> tile_;
  DeviceMemory own_workspace_;
  std::atomic_flag own_workspace_in_use_ = ATOMIC_FLAG_INIT;
};

class TopKPlan : public tvm::ffi::ObjectRef {
 public:
  explicit TopKPlan(tvm::ffi::ObjectPtr<TopKPlanObj> object)
      : tvm::ffi::ObjectRef(std::move(object)) {}
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(TopKPlan, tvm::ffi::ObjectRef, TopKPlanObj);
};

}  // namespace tl_topk
