// The steps of exchange.h on the GPU, one small kernel each, enqueued on `stream` of the current
// device; none synchronises or allocates. exchange_cuda_stub.cc stands in where there is no CUDA.
#pragma once

#include "exchange.h"

namespace tl_topk {

void local_lengths_cuda(const LengthsArgs& args, const Shards& shards, void* stream);
void sample_cuda(const SampleArgs& args, const Shards& shards, void* stream);

void contribute_cuda(const ContributeArgs& args, const Shards& shards, void* stream);
// `shared_bytes` is what a block may have of shared memory on this device. What does not fit there
// is read again and again.
void merge_cuda(const MergeArgs& args, const Shards& shards, int64_t shared_bytes, void* stream);

}  // namespace tl_topk
