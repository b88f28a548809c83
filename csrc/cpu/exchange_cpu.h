// The steps of exchange.h on the CPU, on the calling thread: what they handle is short.
#pragma once

#include "exchange.h"

namespace tl_topk {

void local_lengths_cpu(const LengthsArgs& args, const Shards& shards);
void sample_cpu(const SampleArgs& args, const Shards& shards);
void contribute_cpu(const ContributeArgs& args, const Shards& shards);
void merge_cpu(const MergeArgs& args, const Shards& shards);

}  // namespace tl_topk
