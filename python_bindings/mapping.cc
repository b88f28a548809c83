#include "mapping.h"

#include <tvm/ffi/error.h>

#include <string>

namespace tl_topk {
namespace {

constexpr int64_t kMostInt32 = 0x7fffffff;
constexpr int64_t kMostPage = int64_t{1} << 30;
constexpr int64_t kMostCachePages = int64_t{1} << 31;  // of which an int32 numbers none beyond

void check_number(const char* name, int64_t value, int64_t most) {
  if (value < 1 || value > most) {
    TVM_FFI_THROW(ValueError) << name << ": expected 1 to " << most << ", got " << value;
  }
}

// `other` is what decides; its name stands in the message.
void check_given(const char* name, const OptionalTensor& given, bool wanted, const char* other) {
  if (given.has_value() == wanted) return;
  TVM_FFI_THROW(ValueError) << name << ": expected " << (wanted ? "a tensor, as " : "None, as ")
                            << other << ", got " << (wanted ? "None" : "a tensor");
}

void check_absent(const char* name, const OptionalTensor& given, bool allowed, const char* why) {
  if (!allowed) check_given(name, given, false, why);
}

IntVector checked_vector(const char* name, const OptionalTensor& given, int64_t length,
                         const MappedOutputs& outputs, DLDevice device) {
  if (!given.has_value()) return {};
  const TensorArg vector = TensorArg::integers(name, *given, device, length);
  outputs.keep_apart_from(vector);
  return {vector.data(), vector.is_int64()};
}

}  // namespace

MappedOutputs::MappedOutputs(const MappingArgs& given, const TensorArg& scores, DLDevice device,
                             int ndim, int64_t rows, int64_t k) {
  const auto add = [&](int at, const char* name, const OptionalTensor& tensor) {
    if (!tensor.has_value()) return;
    const TensorArg out(name, *tensor, {device, ndim, kInt32, ndim == 1 ? 1 : rows, k});
    out.rows_apart().apart_from(scores);
    keep_apart_from(out);
    all_[at].emplace(out);
  };
  add(0, "out indices", given.indices);
  add(1, "out slots", given.slots);
  add(2, "out ragged", given.ragged);
  if (!indices() && !slots() && !ragged()) {
    TVM_FFI_THROW(ValueError) << "out: expected indices, slots or ragged, got none of them";
  }
}

void MappedOutputs::keep_apart_from(const TensorArg& input) const {
  for (const auto& out : all_) {
    if (out) out->apart_from(input);
  }
}

Mapping checked_mapping(const MappingArgs& given, const MappedOutputs& outputs, DLDevice device,
                        int64_t rows) {
  if (rows > kMostInt32) {
    TVM_FFI_THROW(ValueError) << "rows: expected at most " << kMostInt32 << ", got " << rows;
  }
  check_number("next_n", given.next_n, kMostInt32);
  check_number("compress_ratio", given.compress_ratio, kMostInt32);
  check_number("page_size", given.page_size, kMostPage);
  check_number("cache_pages", given.cache_pages, kMostCachePages);
  if ((given.page_size & (given.page_size - 1)) != 0) {
    TVM_FFI_THROW(ValueError) << "page_size: expected a power of two, got " << given.page_size;
  }
  if (rows % given.next_n != 0) {
    TVM_FFI_THROW(ValueError) << "next_n: expected a divisor of the " << rows
                              << " rows of scores, got " << given.next_n;
  }
  const bool paged = outputs.slots().has_value();
  check_given("page_table", given.page_table, paged,
              paged ? "slots are wanted" : "no slots are wanted");
  check_given("offsets", given.offsets, outputs.ragged().has_value(),
              outputs.ragged() ? "ragged indices are wanted" : "no ragged indices are wanted");
  check_absent("page_starts", given.page_starts, paged, "no page table is given");
  check_absent("row_to_request", given.row_to_request, paged, "no page table is given");
  check_absent("query_starts", given.query_starts, paged, "no page table is given");
  check_absent("row_to_request", given.row_to_request, given.next_n == 1, "next_n is not 1");
  check_absent("query_starts", given.query_starts, given.next_n == 1, "next_n is not 1");
  check_absent("query_starts", given.query_starts, !given.row_to_request.has_value(),
               "row_to_request is given");

  const auto vector = [&](const char* name, const OptionalTensor& tensor, int64_t length) {
    return checked_vector(name, tensor, length, outputs, device);
  };
  Mapping mapping;
  mapping.next_n = static_cast<int32_t>(given.next_n);
  if (outputs.ragged()) {
    mapping.ragged = static_cast<int32_t*>(outputs.ragged()->data());
    mapping.ragged_stride = outputs.ragged()->row_stride();
    mapping.offsets = vector("offsets", given.offsets, rows);
  }
  if (!paged) return mapping;

  const bool any_requests = given.row_to_request.has_value() || given.query_starts.has_value();
  const DLTensor* const table = *given.page_table;
  const int64_t requests = any_requests && table->ndim == 2 ? table->shape[0] : rows / given.next_n;
  const int64_t columns = table->ndim == 0 ? 0 : table->shape[table->ndim - 1];
  const TensorArg pages("page_table", table, {device, 2, kInt32, requests, columns});
  outputs.keep_apart_from(pages);
  if (requests > kMostInt32 || pages.columns() > kMostInt32) {
    TVM_FFI_THROW(ValueError) << "page_table: expected at most " << kMostInt32
                              << " rows and columns, got " << requests << " and "
                              << pages.columns();
  }
  mapping.slots = static_cast<int32_t*>(outputs.slots()->data());
  mapping.slots_stride = outputs.slots()->row_stride();
  mapping.page_table = static_cast<const int32_t*>(pages.data());
  mapping.page_table_stride = pages.row_stride();
  mapping.requests = static_cast<int32_t>(requests);
  mapping.pages = static_cast<int32_t>(pages.columns());
  mapping.cache_pages = static_cast<uint32_t>(given.cache_pages);
  while (int64_t{1} << mapping.page_log2 < given.page_size) ++mapping.page_log2;
  mapping.page_starts = vector("page_starts", given.page_starts, rows);
  mapping.row_to_request = vector("row_to_request", given.row_to_request, rows);
  mapping.query_starts = vector("query_starts", given.query_starts, requests + 1);
  mapping.note_plainness();
  return mapping;
}

IntVector checked_lengths(const MappingArgs& given, const MappedOutputs& outputs, DLDevice device,
                          int64_t rows, Mapping* mapping) {
  if (given.row_ends.has_value()) {
    check_given("lengths", given.lengths, false, "row_ends is given");
    mapping->lengths_are_ends = true;
    return checked_vector("row_ends", given.row_ends, rows, outputs, device);
  }
  if (!given.lengths.has_value()) {
    const bool own = given.next_n == 1 && given.compress_ratio == 1;
    if (!own) check_given("lengths", given.lengths, true, "next_n or compress_ratio is not 1");
    return {};
  }
  mapping->compress_ratio = static_cast<int32_t>(given.compress_ratio);
  const int64_t requests = rows / given.next_n;
  const DLTensor* const lengths = *given.lengths;
  if (lengths->ndim != 2) {
    mapping->length_rows = mapping->next_n;
    return checked_vector("lengths", given.lengths, requests, outputs, device);
  }
  const DLDataType dtype = lengths->dtype == kInt64 ? kInt64 : kInt32;
  const TensorArg of_rows("lengths", lengths, {device, 2, dtype, requests, given.next_n});
  if (requests > 1 && of_rows.row_stride() != given.next_n) {
    TVM_FFI_THROW(ValueError) << "lengths: expected contiguous memory, got a row stride of "
                              << of_rows.row_stride() << " for " << given.next_n << " columns";
  }
  outputs.keep_apart_from(of_rows);
  return {of_rows.data(), of_rows.is_int64()};
}

}  // namespace tl_topk
