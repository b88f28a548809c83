#include "plan.h"

#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/reflection/registry.h>

#include <optional>
#include <sstream>
#include <utility>

#include "checks.h"
#include "cpu/topk_cpu.h"
#include "errors.h"
#include "parse.h"

namespace tl_topk {
namespace {

namespace ffi = tvm::ffi;

constexpr int64_t kWorkspaceAlignment = 16;
constexpr int64_t kMaxThreads = 1024;

DLDevice parse_device(const ffi::String& type, int64_t id, int64_t threads) {
  const bool cpu = type == "cpu";
  if (!cpu && type != "cuda") {
    TVM_FFI_THROW(ValueError) << "device_type: expected \"cpu\" or \"cuda\", got \"" << type << '"';
  }
  if (cpu && id != 0) TVM_FFI_THROW(ValueError) << "device_id: expected 0 for the CPU, got " << id;
  const int64_t most = cpu ? kMaxThreads : 0;
  if (threads < 0 || threads > most) {
    TVM_FFI_THROW(ValueError) << "threads: expected 0 to " << most << " for " << type << ", got "
                              << threads;
  }
  return {cpu ? kDLCPU : kDLCUDA, static_cast<int32_t>(id)};
}

// Held while a launch uses the plan's own workspace.
class ExclusiveUse {
 public:
  explicit ExclusiveUse(std::atomic_flag& in_use) : in_use_(in_use) {
    if (in_use_.test_and_set(std::memory_order_acquire)) {
      TVM_FFI_THROW(RuntimeError)
          << "this TopKPlan is being run by another thread, and its own workspace serves one at a "
             "time: pass a workspace for each thread, or make a plan for each";
    }
  }
  ~ExclusiveUse() { in_use_.clear(std::memory_order_release); }
  ExclusiveUse(const ExclusiveUse&) = delete;
  ExclusiveUse& operator=(const ExclusiveUse&) = delete;

 private:
  std::atomic_flag& in_use_;
};

[[noreturn, gnu::cold]] void refuse_values(bool wanted) {
  TVM_FFI_THROW(ValueError) << "out values: expected "
                            << (wanted ? "a tensor, as the plan was made with values, got None"
                                       : "None, as the plan was made without values, got a tensor");
  TVM_FFI_UNREACHABLE();
}

std::string cpu_reason(int64_t threads) {
  std::ostringstream text;
  text << "native code with " << cpu_simd_name() << " instructions on ";
  if (threads == 0) {
    text << "all cores";
  } else {
    text << "at most " << threads << (threads == 1 ? " thread" : " threads");
  }
  return text.str();
}

}  // namespace

TopKPlanObj::TopKPlanObj(int64_t rows, int64_t width, int64_t k, ffi::String dtype,
                         ffi::String order, bool largest, bool values, ffi::String device_type,
                         int64_t device_id, int64_t threads, int64_t blocks_per_row)
    : rows(rows),
      width(width),
      k(k),
      dtype(std::move(dtype)),
      order(std::move(order)),
      largest(largest),
      values(values),
      device_type(std::move(device_type)),
      device_id(device_id),
      threads(threads),
      blocks_per_row(blocks_per_row),
      problem_(parse_problem(rows, width, k, this->dtype, this->order, largest, values)),
      device_(parse_device(this->device_type, device_id, threads)) {
  const DLDataType element = dl_dtype(problem_.dtype);
  matrices_ = {{device_, 2, element, rows, width},
               {device_, 2, kInt32, rows, k},
               {device_, 2, element, rows, k}};
  vectors_ = matrices_;
  vectors_.scores.ndim = vectors_.indices.ndim = vectors_.values.ndim = 1;
  if (device_.device_type == kDLCPU) {
    if (blocks_per_row != 0) {
      TVM_FFI_THROW(ValueError) << "blocks_per_row: expected 0 for the CPU, got " << blocks_per_row;
    }
    backend = "cpu";
    reason = cpu_reason(threads);
  } else {
    const DeviceFacts& facts = device_facts(device_id);
    launch_ = with_ffi_errors([&] { return choose_launch(problem_, facts, blocks_per_row); });
    backend = "dsmem";
    reason = launch_.reason;
    config = LaunchConfigRef(launch_);
    if (rows > 0 && k > 0) {
      prepared_ = with_ffi_errors(
          [&] { return prepare_cuda(problem_, launch_, static_cast<int>(device_id)); });
    }
  }
  workspace_bytes = launch_.workspace_bytes;
}

void TopKPlanObj::use(TileKernel kernel, ffi::String why) {
  if (device_.device_type != kDLCUDA || kernel.blocks_per_row < 1 ||
      rows * kernel.blocks_per_row > kMaxWidth) {
    TVM_FFI_THROW(ValueError) << "blocks_per_row: expected 1 to " << kMaxWidth
                              << " blocks in all on a CUDA device, got " << kernel.blocks_per_row
                              << " for each of " << rows << " rows on " << device_type;
  }
  backend = "pipelined";
  config = std::nullopt;
  reason = std::move(why);
  prepared_ = nullptr;
  workspace_bytes = kernel.workspace_bytes(rows);
  tile_ = std::move(kernel);
}

void TopKPlanObj::overlap() {
  if (prepared_ == nullptr) return;
  launch_.overlaps = true;
  prepared_ = with_ffi_errors(
      [&] { return prepare_cuda(problem_, launch_, static_cast<int>(device_.device_id)); });
}

void TopKPlanObj::run(DLTensor* scores, DLTensor* indices, OptionalTensor values,
                      OptionalTensor lengths, OptionalTensor row_starts, OptionalTensor workspace) {
  run_given({scores, indices, values.value_or(nullptr), lengths.value_or(nullptr),
             row_starts.value_or(nullptr), workspace.value_or(nullptr)});
}

void TopKPlanObj::run_given(const CallTensors& given) {
  Call call;
  check(given, &call);
  if (workspace_bytes == 0 || call.workspace != nullptr) return launch(&call);
  run_with_own_workspace(&call);
}

void TopKPlanObj::run_mapped(DLTensor* scores, OptionalTensor indices, OptionalTensor slots,
                             OptionalTensor ragged, OptionalTensor lengths,
                             OptionalTensor row_starts, OptionalTensor row_ends,
                             OptionalTensor page_table, OptionalTensor page_starts,
                             OptionalTensor row_to_request, OptionalTensor query_starts,
                             OptionalTensor offsets, int64_t page_size, int64_t next_n,
                             int64_t compress_ratio, int64_t cache_pages,
                             OptionalTensor workspace) {
  const MappingArgs given{indices,    slots,       ragged,         lengths,      row_ends,
                          page_table, page_starts, row_to_request, query_starts, offsets,
                          page_size,  next_n,      compress_ratio, cache_pages};
  Mapping mapping;
  Call call;
  check_mapped(scores, given, row_starts, workspace, &mapping, &call);
  if (workspace_bytes == 0 || call.workspace != nullptr) return launch(&call);
  run_with_own_workspace(&call);
}

void TopKPlanObj::run_with_own_workspace(Call* call) {
  const ExclusiveUse use(own_workspace_in_use_);
  if (own_workspace_ == nullptr) {
    with_ffi_errors([&] {
      const DeviceGuard guard(device_.device_id);
      own_workspace_ = allocate_zeroed(workspace_bytes);
    });
  }
  call->workspace = own_workspace_.get();
  launch(call);
}

void TopKPlanObj::run_stateless(const CallTensors& given) const {
  Call call;
  check(given, &call);
  if (workspace_bytes == 0) return launch(&call);
  with_ffi_errors([&] {
    const DeviceGuard guard(device_.device_id);
    void* stream = TVMFFIEnvGetStream(kDLCUDA, device_.device_id);
    const DeviceMemory workspace = allocate_zeroed_on(stream, workspace_bytes);
    call.workspace = workspace.get();
    launch(&call);
  });
}

void TopKPlanObj::check(const CallTensors& given, Call* call) const {
  if (given.scores->ndim == 1 && rows == 1) return check(given, vectors_, call);
  check(given, matrices_, call);
}

void TopKPlanObj::check(const CallTensors& given, const Forms& forms, Call* call) const {
  if ((given.values != nullptr) != problem_.values) refuse_values(problem_.values);
  TopKArgs& args = call->args;

  const TensorArg in("scores", given.scores, forms.scores);
  args.scores = in.data();
  args.scores_stride = in.row_stride();

  const TensorArg out("out indices", given.indices, forms.indices);
  out.rows_apart().apart_from(in);
  args.indices = static_cast<int32_t*>(out.data());
  args.indices_stride = out.row_stride();

  if (given.values == nullptr) return check_others(given, in, out, out, call);
  const TensorArg out_values("out values", given.values, forms.values);
  out_values.rows_apart().apart_from(in).apart_from(out);
  args.values = out_values.data();
  args.values_stride = out_values.row_stride();
  check_others(given, in, out, out_values, call);
}

// `out_values` is `out` once more where there are no values.
void TopKPlanObj::check_others(const CallTensors& given, const TensorArg& in, const TensorArg& out,
                               const TensorArg& out_values, Call* call) const {
  const auto bounds = [&](const char* name, const DLTensor* tensor) -> IntVector {
    if (tensor == nullptr) return {};
    const TensorArg vector = TensorArg::integers(name, tensor, device_, rows);
    out.apart_from(vector);
    out_values.apart_from(vector);
    return {vector.data(), vector.is_int64()};
  };
  call->args.lengths = bounds("lengths", given.lengths);
  call->args.row_starts = bounds("row_starts", given.row_starts);
  if (given.workspace != nullptr) check_workspace(given, in, out, out_values, call);
}

void TopKPlanObj::check_workspace(const CallTensors& given, const TensorArg& in,
                                  const TensorArg& out, const TensorArg& out_values,
                                  Call* call) const {
  const TensorArg own =
      TensorArg::bytes("workspace", given.workspace, device_, workspace_bytes, kWorkspaceAlignment);
  own.apart_from(in).apart_from(out).apart_from(out_values);
  if (given.lengths != nullptr) {
    own.apart_from(TensorArg::integers("lengths", given.lengths, device_, rows));
  }
  if (given.row_starts != nullptr) {
    own.apart_from(TensorArg::integers("row_starts", given.row_starts, device_, rows));
  }
  call->workspace = own.data();
}

void TopKPlanObj::check_mapped(const DLTensor* scores, const MappingArgs& given,
                               OptionalTensor row_starts, OptionalTensor workspace,
                               Mapping* mapping, Call* call) const {
  if (tile_.has_value()) {
    TVM_FFI_THROW(ValueError) << "backend: expected a plan of \"dsmem\" or \"cpu\", which map what "
                              << "they select, got one of \"" << backend << '"';
  }
  if (problem_.values) {
    TVM_FFI_THROW(ValueError) << "values: expected a plan made without them, got one with";
  }
  const bool vector = scores->ndim == 1 && rows == 1;
  const TensorArg in("scores", scores, vector ? vectors_.scores : matrices_.scores);
  const MappedOutputs out(given, in, device_, vector ? 1 : 2, rows, k);
  TopKArgs& args = call->args;
  args.scores = in.data();
  args.scores_stride = in.row_stride();
  if (out.indices()) {
    args.indices = static_cast<int32_t*>(out.indices()->data());
    args.indices_stride = out.indices()->row_stride();
  }
  *mapping = checked_mapping(given, out, device_, rows);
  args.mapping = mapping;
  args.lengths = checked_lengths(given, out, device_, rows, mapping);
  if (row_starts.has_value()) {
    const TensorArg starts = TensorArg::integers("row_starts", *row_starts, device_, rows);
    out.keep_apart_from(starts);
    args.row_starts = {starts.data(), starts.is_int64()};
  }
  if (workspace.has_value()) {
    const TensorArg own =
        TensorArg::bytes("workspace", *workspace, device_, workspace_bytes, kWorkspaceAlignment);
    own.apart_from(in);
    out.keep_apart_from(own);
    call->workspace = own.data();
  }
}

void TopKPlanObj::launch_mapped(Call* call) const {
  std::call_once(mapped_once_, [&] {
    mapped_prepared_ =
        prepare_cuda(problem_, launch_, static_cast<int>(device_id), /*mapped=*/true);
  });
  topk_cuda_mapped(call->args, *mapped_prepared_, call->workspace,
                   TVMFFIEnvGetStream(kDLCUDA, device_.device_id));
}

void TopKPlanObj::launch(Call* call) const {
  with_ffi_errors([&] {
    if (device_.device_type == kDLCPU) {
      call->args.problem = problem_;
      topk_cpu(call->args, static_cast<int>(threads));
    } else if (prepared_ != nullptr) {
      if (call->args.mapping != nullptr) return launch_mapped(call);
      topk_cuda(call->args, *prepared_, call->workspace,
                TVMFFIEnvGetStream(kDLCUDA, device_.device_id));
    } else if (tile_.has_value()) {
      (*tile_)(problem_, call->args, call->workspace, device_.device_id);
    }
  });
}

bool TopKPlanObj::is_for(const DLTensor& scores) const {
  const bool has_rows = scores.ndim == 2 ? scores.shape[0] == rows : scores.ndim == 1 && rows == 1;
  return has_rows && scores.shape[scores.ndim - 1] == width &&
         scores.dtype == matrices_.scores.dtype &&
         scores.device.device_type == device_.device_type &&
         scores.device.device_id == device_.device_id;
}

ffi::String TopKPlanObj::explain() const {
  std::ostringstream text;
  text << "TopKPlan: the " << k << (largest ? " largest" : " smallest") << " of " << rows
       << (rows == 1 ? " row" : " rows") << " of " << width << ' ' << dtype << ", indices"
       << (values ? " and values" : " only") << " in " << order << " order, on " << device_type;
  if (device_.device_type == kDLCUDA) text << ':' << device_id;
  text << "; backend " << backend << ": " << reason;
  if (config.has_value()) {
    text << " (" << launch_.grid_blocks << " blocks of " << launch_.threads << " threads, "
         << launch_.shared_bytes << " bytes of shared memory each, workspace "
         << launch_.workspace_bytes << " bytes)";
  }
  return text.str();
}

void TopKPlanObj::reflect() {
  namespace refl = ffi::reflection;
  using Self = TopKPlanObj;
  refl::ObjectDef<Self>()
      .def(refl::init<int64_t, int64_t, int64_t, ffi::String, ffi::String, bool, bool, ffi::String,
                      int64_t, int64_t, int64_t>())
      .def_ro("rows", &Self::rows)
      .def_ro("width", &Self::width, "elements a row can hold")
      .def_ro("k", &Self::k)
      .def_ro("dtype", &Self::dtype, "float32, float16 or bfloat16")
      .def_ro("order", &Self::order, "any, index or value")
      .def_ro("largest", &Self::largest)
      .def_ro("values", &Self::values, "are values returned as well as indices?")
      .def_ro("device_type", &Self::device_type, "cpu or cuda")
      .def_ro("device_id", &Self::device_id)
      .def_ro("threads", &Self::threads, "on the CPU; 0: all")
      .def_ro("blocks_per_row", &Self::blocks_per_row, "on a GPU; 0: as many as are best")
      .def_ro("backend", &Self::backend, refl::init(false), "cpu, dsmem or pipelined")
      .def_ro("config", &Self::config, refl::init(false), "None unless the backend is dsmem")
      .def_ro("reason", &Self::reason, refl::init(false), "one sentence")
      .def_ro("workspace_bytes", &Self::workspace_bytes, refl::init(false))
      .def("overlap", &Self::overlap)
      .def("run", &Self::run)
      .def("run_mapped", &Self::run_mapped)
      .def("explain", &Self::explain);
  // The hook that ReprPrint looks up; the constant for its name moves between versions of TVM FFI.
  refl::TypeAttrDef<Self>().def(
      "__ffi_repr__", [](const Self* self, const ffi::Function&) { return self->explain(); });
}

}  // namespace tl_topk
