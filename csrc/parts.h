// Parts of the algorithm that the benchmark leaves out, one at a time, to measure what each gains.
// The product has them all; a build without one is exact as well.
#pragma once

namespace tl_topk {

enum class Part {
  kNothing,
  kFloor,      // without: all elements are counted, as far as the tables hold them
  kLinearMap,  // without: bins by a float's leading bits, four an octave
  kPush,       // without: blocks load one another's tables, between barriers of the cluster
  kAtomics,    // without: lanes vote for their places, and one takes them for its warp
  kPairs,      // without: the cut's bin goes by exact digits
};

#ifndef TL_TOPK_WITHOUT
#define TL_TOPK_WITHOUT kNothing
#endif

template <Part kPart>
constexpr bool kWith = kPart != Part::TL_TOPK_WITHOUT;

}  // namespace tl_topk
