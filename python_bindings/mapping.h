// What a mapped call is given besides scores and lengths, and the checks on it.
#pragma once

#include <dlpack/dlpack.h>
#include <tvm/ffi/optional.h>

#include <array>
#include <cstdint>
#include <optional>

#include "checks.h"
#include "problem.h"

namespace tl_topk {

using OptionalTensor = tvm::ffi::Optional<DLTensor*>;

// As callers pass it; which of the tensors belong together is said where they are checked.
struct MappingArgs {
  OptionalTensor indices, slots, ragged;  // outputs
  OptionalTensor lengths, row_ends;
  OptionalTensor page_table, page_starts, row_to_request, query_starts, offsets;
  int64_t page_size, next_n, compress_ratio, cache_pages;
};

// The int32 outputs of a mapped call, at least one: each in memory of its own.
class MappedOutputs {
 public:
  // `scores` have passed their checks; `ndim` is theirs.
  MappedOutputs(const MappingArgs& given, const TensorArg& scores, DLDevice device, int ndim,
                int64_t rows, int64_t k);

  const std::optional<TensorArg>& indices() const { return all_[0]; }
  const std::optional<TensorArg>& slots() const { return all_[1]; }
  const std::optional<TensorArg>& ragged() const { return all_[2]; }

  // Refuses an output that shares memory with `input`.
  void keep_apart_from(const TensorArg& input) const;

 private:
  std::array<std::optional<TensorArg>, 3> all_;
};

// Both throw like all checks: the argument, what is allowed and what it got.
Mapping checked_mapping(const MappingArgs& given, const MappedOutputs& outputs, DLDevice device,
                        int64_t rows);
IntVector checked_lengths(const MappingArgs& given, const MappedOutputs& outputs, DLDevice device,
                          int64_t rows, Mapping* mapping);  // which says what they are lengths of

}  // namespace tl_topk
