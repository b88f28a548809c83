// Exact selection among ranks (rank_key in key.h). Ranks of a row are distinct.
#pragma once

#include <cstdint>

namespace tl_topk {

// The k-th largest of `count` distinct ranks, 1 <= k <= count < 2^32. `scratch` holds `count` too
// and may be `ranks` itself, which is then destroyed. Linear whatever the ranks are: a pass divides
// the span still in question by half their number at least, up to 1024, so that at most 7 passes
// see 1024 ranks or more.
uint64_t kth_rank(const uint64_t* ranks, int64_t count, int64_t k, uint64_t* scratch);

// Moves the ranks >= threshold to the front, in the order they had; returns how many they are.
int64_t keep_from(uint64_t* ranks, int64_t count, uint64_t threshold);

// Ranks in ascending order of index become descending. `scratch` holds `count` too.
void sort_by_value(uint64_t* ranks, int64_t count, uint64_t* scratch);

}  // namespace tl_topk
