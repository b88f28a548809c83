#include "shards_object.h"

#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/reflection/registry.h>

#include <utility>

#include "checks.h"
#include "cpu/exchange_cpu.h"
#include "cuda/exchange_cuda.h"
#include "cuda/memory.h"
#include "device_info.h"
#include "errors.h"
#include "parse.h"

namespace tl_topk {
namespace {

namespace ffi = tvm::ffi;

Shards make_shards(int64_t rank, const ffi::Array<int64_t>& widths, int64_t block) {
  const auto ranks = static_cast<int64_t>(widths.size());
  if (ranks < 1 || ranks > kMaxRanks) {
    TVM_FFI_THROW(ValueError) << "widths: expected 1 to " << kMaxRanks << " ranks, got " << ranks;
  }
  if (rank < 0 || rank >= ranks) {
    TVM_FFI_THROW(ValueError) << "rank: expected 0 to " << ranks - 1 << ", got " << rank;
  }
  if (block < 0 || block > kMaxWidth) {
    TVM_FFI_THROW(ValueError) << "block: expected 0 to " << kMaxWidth << ", got " << block;
  }
  Shards shards{};
  int64_t width = 0;
  for (int64_t r = 0; r < ranks; ++r) {
    const int64_t own = widths[r];
    if (own < 0 || own > kMaxWidth - width) {
      TVM_FFI_THROW(ValueError) << "local_scores: expected at most " << kMaxWidth
                                << " elements in all shards of a row, got " << width << " and "
                                << own << " more from rank " << r;
    }
    shards.starts[r] = static_cast<uint32_t>(width);
    width += own;
  }
  shards.starts[ranks] = static_cast<uint32_t>(width);
  shards.width = static_cast<uint32_t>(width);
  shards.ranks = static_cast<uint32_t>(ranks);
  shards.rank = static_cast<uint32_t>(rank);
  shards.block = static_cast<uint32_t>(block);
  for (int64_t r = 0; block > 0 && r < ranks; ++r) {
    const int64_t expected = shards.local_length(static_cast<uint32_t>(r), width);
    if (widths[r] != expected) {
      TVM_FFI_THROW(ValueError) << "local_scores: expected " << expected << " elements on rank "
                                << r << ", as a row of " << width << " interleaved in blocks of "
                                << block << " has, got " << widths[r];
    }
  }
  return shards;
}

// Runs one step where its tensors lie.
template <typename Cpu, typename Cuda>
void run_on(DLDevice device, const Cpu& cpu, const Cuda& cuda) {
  with_ffi_errors([&] {
    if (device.device_type == kDLCPU) return cpu();
    const DeviceGuard guard(device.device_id);
    cuda(TVMFFIEnvGetStream(kDLCUDA, device.device_id));
  });
}

int64_t shared_bytes(DLDevice device) {
  return device_facts(device.device_id).shared_memory_per_block;
}

// Rows that lie one behind the other.
void check_dense(const char* name, const TensorArg& arg) {
  if (arg.rows() > 1 && arg.columns() > 0 && arg.row_stride() != arg.columns()) {
    TVM_FFI_THROW(ValueError) << name << ": expected rows without gaps, got a stride of "
                              << arg.row_stride() << " for " << arg.columns() << " columns";
  }
}

template <typename T>
T* dense(const char* name, const DLTensor* tensor, DLDevice device, DLDataType dtype, int64_t rows,
         int64_t columns) {
  const TensorArg arg(name, tensor, {device, 2, dtype, rows, columns});
  check_dense(name, arg);
  return static_cast<T*>(arg.data());
}

void check_matrix(const char* name, const DLTensor& tensor) {
  if (tensor.ndim != 2) {
    TVM_FFI_THROW(ValueError) << name << ": expected shape (rows, columns), got " << tensor.ndim
                              << " dimensions";
  }
}

void check_vector(const char* name, const DLTensor& tensor) {
  if (tensor.ndim != 1) {
    TVM_FFI_THROW(ValueError) << name << ": expected shape (rows,), got " << tensor.ndim
                              << " dimensions";
  }
}

// Of candidates, which are read four at a time.
uint32_t checked_quads(const char* name, int64_t count) {
  if (count < 0 || count > kMaxWidth || count % kQuad != 0) {
    TVM_FFI_THROW(ValueError) << name << ": expected a multiple of " << kQuad << ", got " << count;
  }
  return static_cast<uint32_t>(count);
}

int64_t checked_stride(int64_t stride) {
  if (stride < 1 || stride > kMaxWidth) {
    TVM_FFI_THROW(ValueError) << "stride: expected 1 to " << kMaxWidth << ", got " << stride;
  }
  return stride;
}

Selected selected_of(const DLTensor* indices, const DLTensor* values) {
  check_matrix("indices", *indices);
  const int64_t rows = indices->shape[0], count = indices->shape[1];
  const DLDataType dtype = dl_dtype(parse_dtype(values->dtype));
  return {dense<int32_t>("indices", indices, indices->device, kInt32, rows, count),
          dense<void>("values", values, indices->device, dtype, rows, count), rows,
          static_cast<uint32_t>(count)};
}

}  // namespace

ShardsObj::ShardsObj(int64_t rank, ffi::Array<int64_t> widths, int64_t block)
    : rank(rank),
      widths(std::move(widths)),
      block(block),
      shards_(make_shards(rank, this->widths, block)) {}

void ShardsObj::local_lengths(DLTensor* lengths, DLTensor* local) const {
  check_vector("lengths", *lengths);
  const int64_t rows = lengths->shape[0];
  const TensorArg whole = TensorArg::integers("lengths", lengths, local->device, rows);
  const TensorArg own("local", local, {local->device, 1, kInt32, 1, rows});
  own.apart_from(whole);
  const LengthsArgs args{rows, {whole.data(), whole.is_int64()}, static_cast<int32_t*>(own.data())};
  run_on(
      local->device, [&] { local_lengths_cpu(args, shards_); },
      [&](void* stream) { local_lengths_cuda(args, shards_, stream); });
}

void ShardsObj::merge_parts(DLTensor* parts, int64_t count, DLTensor* indices, DLTensor* values,
                            OptionalTensor local_indices, bool largest,
                            const ffi::String& order) const {
  check_matrix("out indices", *indices);
  MergeArgs args{};
  args.per_rank = checked_quads("count", count);
  const int64_t bytes = part_bytes(indices->shape[0], count, parse_dtype(values->dtype));
  args.parts = dense<void>("parts", parts, indices->device, kUInt8, shards_.ranks, bytes);
  merge(args, indices, values, local_indices, largest, order);
}

void ShardsObj::merge_words(DLTensor* words, DLTensor* indices, DLTensor* values,
                            OptionalTensor local_indices, bool largest,
                            const ffi::String& order) const {
  check_matrix("out indices", *indices);
  check_matrix("words", *words);
  MergeArgs args{};
  args.words =
      dense<uint64_t>("words", words, indices->device, kInt64, indices->shape[0], words->shape[1]);
  args.slots = checked_quads("words: columns", words->shape[1]);
  merge(args, indices, values, local_indices, largest, order);
}

void ShardsObj::merge(MergeArgs args, DLTensor* indices, DLTensor* values,
                      OptionalTensor local_indices, bool largest, const ffi::String& order) const {
  const DLDevice device = indices->device;
  args.rows = indices->shape[0];
  args.k = indices->shape[1];
  args.dtype = parse_dtype(values->dtype);
  args.order = parse_order(order);
  args.largest = largest;
  args.indices = dense<int32_t>("out indices", indices, device, kInt32, args.rows, args.k);
  args.values = dense<void>("out values", values, device, dl_dtype(args.dtype), args.rows, args.k);
  if (local_indices.has_value()) {
    args.local_indices =
        dense<int32_t>("out local_indices", *local_indices, device, kInt32, args.rows, args.k);
  }
  if (args.rows == 0 || args.k == 0) return;
  run_on(
      device, [&] { merge_cpu(args, shards_); },
      [&](void* stream) { merge_cuda(args, shards_, shared_bytes(device), stream); });
}

void ShardsObj::sample(DLTensor* indices, DLTensor* values, bool largest, int64_t stride,
                       DLTensor* samples) const {
  const Selected selected = selected_of(indices, values);
  const int64_t count = selected.count / checked_stride(stride);
  SampleArgs args{selected,
                  parse_dtype(values->dtype),
                  largest,
                  static_cast<uint32_t>(stride),
                  static_cast<uint32_t>(count),
                  nullptr};
  args.ranks = dense<uint64_t>("samples", samples, indices->device, kInt64, selected.rows, count);
  run_on(
      indices->device, [&] { sample_cpu(args, shards_); },
      [&](void* stream) { sample_cuda(args, shards_, stream); });
}

void ShardsObj::contribute(DLTensor* indices, DLTensor* values, DLTensor* samples, bool largest,
                           int64_t k, int64_t stride, DLTensor* words) const {
  const Selected selected = selected_of(indices, values);
  const int64_t count = selected.count / checked_stride(stride);
  const DLDevice device = indices->device;
  ContributeArgs args{};
  args.selected = selected;
  args.dtype = parse_dtype(values->dtype);
  args.largest = largest;
  args.k = k;
  args.stride = static_cast<uint32_t>(stride);
  args.samples = static_cast<uint32_t>(count);
  args.slots = slots_of(k, args.stride, shards_.ranks);
  args.ranks =
      dense<uint64_t>("samples", samples, device, kInt64, shards_.ranks, selected.rows * count);
  args.words = dense<uint64_t>("words", words, device, kInt64, selected.rows, args.slots);
  run_on(
      device, [&] { contribute_cpu(args, shards_); },
      [&](void* stream) { contribute_cuda(args, shards_, stream); });
}

void ShardsObj::reflect() {
  namespace refl = ffi::reflection;
  using Self = ShardsObj;
  refl::ObjectDef<Self>()
      .def(refl::init<int64_t, ffi::Array<int64_t>, int64_t>())
      .def_ro("rank", &Self::rank)
      .def_ro("widths", &Self::widths, "of the shards of all ranks")
      .def_ro("block", &Self::block, "elements dealt out at a time; 0: one shard each")
      .def("local_lengths", &Self::local_lengths)
      .def("merge_parts", &Self::merge_parts)
      .def("sample", &Self::sample)
      .def("contribute", &Self::contribute)
      .def("merge_words", &Self::merge_words);
}

}  // namespace tl_topk
