// Stands in for exchange.cu in a library built without CUDA, where no tensor on a GPU gets this
// far.
#include "cuda/exchange_cuda.h"

#include <cstdlib>

namespace tl_topk {

void local_lengths_cuda(const LengthsArgs&, const Shards&, void*) { std::abort(); }
void sample_cuda(const SampleArgs&, const Shards&, void*) { std::abort(); }
void contribute_cuda(const ContributeArgs&, const Shards&, void*) { std::abort(); }
void merge_cuda(const MergeArgs&, const Shards&, int64_t, void*) { std::abort(); }

}  // namespace tl_topk
