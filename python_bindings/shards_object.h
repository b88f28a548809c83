// A row divided over ranks, and the steps by which the ranks agree on its best: csrc/exchange.h.
#pragma once

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/object.h>
#include <tvm/ffi/string.h>

#include "exchange.h"
#include "plan.h"

namespace tl_topk {

// Immutable, so any number of threads may use it. Every method checks its arguments, then works on
// the caller's current stream; all tensors lie on one device, without gaps.
class ShardsObj : public tvm::ffi::Object {
 public:
  int64_t rank;
  tvm::ffi::Array<int64_t> widths;
  int64_t block;

  // `widths` are the shards', of all ranks. Throws ValueError where they cannot be those of one
  // row, or there are too many.
  ShardsObj(int64_t rank, tvm::ffi::Array<int64_t> widths, int64_t block);

  // Of whole rows to of this rank's shard: (rows,) int32 or int64 to (rows,) int32.
  void local_lengths(DLTensor* lengths, DLTensor* local) const;

  // parts: uint8 (ranks, bytes) of `count` candidates a row, see part_bytes(); out: (rows, k).
  void merge_parts(DLTensor* parts, int64_t count, DLTensor* indices, DLTensor* values,
                   OptionalTensor local_indices, bool largest, const tvm::ffi::String& order) const;

  // indices, values: (rows, count), best first; samples: int64 (rows, count / stride), written.
  void sample(DLTensor* indices, DLTensor* values, bool largest, int64_t stride,
              DLTensor* samples) const;

  // samples: int64 (ranks, rows * (count / stride)); words: int64 (rows, slots), see
  // ContributeArgs, written.
  void contribute(DLTensor* indices, DLTensor* values, DLTensor* samples, bool largest, int64_t k,
                  int64_t stride, DLTensor* words) const;

  // words: int64 (rows, slots), the sum over all ranks; out: (rows, k).
  void merge_words(DLTensor* words, DLTensor* indices, DLTensor* values,
                   OptionalTensor local_indices, bool largest, const tvm::ffi::String& order) const;

  static void reflect();

  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tl_topk.Shards", ShardsObj, tvm::ffi::Object);

 private:
  void merge(MergeArgs args, DLTensor* indices, DLTensor* values, OptionalTensor local_indices,
             bool largest, const tvm::ffi::String& order) const;

  Shards shards_;
};

}  // namespace tl_topk
