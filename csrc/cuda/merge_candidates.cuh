// The candidates of a row's merge, as all ranks have sent them, and a thread's share of them.
#pragma once

#include <cstdint>

#include "config.h"
#include "cuda/block_cut.cuh"
#include "cuda/block_order.cuh"
#include "cuda/row.cuh"
#include "exchange.h"

namespace tl_topk {

struct MergeParams {
  MergeArgs args;
  Shards shards;
  bool staged;  // ordinals of all candidates are kept in shared memory
};

// A thread's share of the candidates, if it stays in registers; 0: it does not, and is read in
// batches of kBatchQuads.
constexpr uint32_t kFewQuads = 2;
constexpr uint32_t kManyQuads = 4;
constexpr uint32_t kBatchQuads = 2;
TL_TOPK_HD int64_t most_held(uint32_t quads) { return quads * kQuad * kThreads; }

union alignas(16) MergeScratch {  // vectors follow
  CutScratch cut;
  OrderScratch order;
};

// Four candidates that lie side by side: ordinals, places in the whole row and bits.
struct CandidateQuad {
  uint32_t ordinal[kQuad];
  uint32_t index[kQuad];
  uint32_t bits[kQuad];
};

// Four raw values as one vector.
template <Dtype D>
struct RawQuad {
  uint2 words;
  __device__ __forceinline__ uint32_t operator[](uint32_t j) const {
    const uint32_t word = j < 2 ? words.x : words.y;
    return j % 2 == 0 ? word & 0xffffu : word >> 16;
  }
};
template <>
struct RawQuad<Dtype::kFloat32> {
  uint4 words;
  __device__ __forceinline__ uint32_t operator[](uint32_t j) const {
    return j == 0 ? words.x : j == 1 ? words.y : j == 2 ? words.z : words.w;
  }
};

// Where the candidates of a row come from. A quad is read by two vector loads without a branch, so
// that the loads of several can be in flight.
template <Dtype D, bool kWords>
struct CandidateSource {
  const MergeArgs& args;
  const Shards& shards;
  uint32_t row;

  struct Loaded {
    uint4 first;  // indices in the shard; of words, the first two
    uint4 second;
    RawQuad<D> values;
    uint32_t rank;
  };

  __device__ __forceinline__ Loaded load(uint32_t quad) const {
    Loaded loaded;
    if constexpr (kWords) {
      const auto* words = reinterpret_cast<const uint4*>(args.words);
      const uint4* const from =
          words + (static_cast<int64_t>(row) * (args.slots / kQuad) + quad) * 2;
      loaded.first = from[0];
      loaded.second = from[1];
    } else {
      const uint32_t each = args.per_rank / kQuad;
      loaded.rank = quad / each;
      const Selected part = part_at(args.parts, args.rows, args.per_rank, D, loaded.rank);
      const int64_t place = static_cast<int64_t>(row) * each + (quad - loaded.rank * each);
      loaded.first = reinterpret_cast<const uint4*>(part.indices)[place];
      loaded.values = static_cast<const RawQuad<D>*>(part.values)[place];
    }
    return loaded;
  }

  __device__ __forceinline__ CandidateQuad quad_of(const Loaded& loaded, bool present) const {
    CandidateQuad quad;
    uint32_t place[kQuad] = {loaded.first.x, loaded.first.y, loaded.first.z, loaded.first.w};
    if constexpr (kWords) {
      const uint32_t bits[kQuad] = {loaded.first.y, loaded.first.w, loaded.second.y,
                                    loaded.second.w};
      place[1] = loaded.first.z;
      place[2] = loaded.second.x;
      place[3] = loaded.second.z;
#pragma unroll
      for (uint32_t j = 0; j < kQuad; ++j) {
        quad.bits[j] = bits[j];
        quad.index[j] = place[j] - 1;
      }
    } else {
      const uint32_t start = shards.starts[loaded.rank];
#pragma unroll
      for (uint32_t j = 0; j < kQuad; ++j) {
        quad.bits[j] = loaded.values[j];
        quad.index[j] = place[j] + start;
        place[j] = ~place[j] >> 31;  // 0 for one that is not there
      }
      if (shards.block != 0) {
#pragma unroll
        for (uint32_t j = 0; j < kQuad; ++j) {
          quad.index[j] = shards.global_index(loaded.rank, quad.index[j] - start);
        }
      }
    }
#pragma unroll
    for (uint32_t j = 0; j < kQuad; ++j) {
      const uint32_t key = order_key(orient(widen<D>(quad.bits[j]), args.largest));
      quad.ordinal[j] = ordinal_of(key, present && place[j] != 0);
    }
    return quad;
  }

  // Rarely wanted one by one: not inlined, as every copy would stretch the passes' code.
  __device__ __noinline__ Candidate read(uint32_t i) const {
    const CandidateQuad quad = quad_of(load(i / kQuad), true);
    Candidate c{quad.bits[0], quad.index[0], true};
#pragma unroll
    for (uint32_t j = 1; j < kQuad; ++j) {
      if (i % kQuad == j) c = {quad.bits[j], quad.index[j], true};
    }
    return c;
  }
};

// The candidates of one row, dealt out to the threads by quads. Those that do not stay in registers
// are read again at every pass, their ordinals from shared memory if there is room.
template <Dtype D, bool kWords, uint32_t kHeldQuads>
struct RowCandidates {
  static constexpr bool kHeld = kHeldQuads > 0;
  static constexpr uint32_t kQuads = kHeld ? kHeldQuads : kBatchQuads;

  CandidateSource<D, kWords> source;
  uint4* staged;   // ordinals; null: no room
  uint32_t quads;  // in the row
  CandidateQuad held[kQuads];

  __device__ __forceinline__ uint32_t place(uint32_t first, uint32_t u) const {
    return first + u * kThreads + threadIdx.x;
  }

  __device__ __forceinline__ void load(uint32_t first) {
    typename CandidateSource<D, kWords>::Loaded loaded[kQuads];
#pragma unroll
    for (uint32_t u = 0; u < kQuads; ++u) loaded[u] = source.load(min(place(first, u), quads - 1));
#pragma unroll
    for (uint32_t u = 0; u < kQuads; ++u) {
      held[u] = source.quad_of(loaded[u], place(first, u) < quads);
    }
  }

  __device__ __forceinline__ void load_ordinals(uint32_t first) {
#pragma unroll
    for (uint32_t u = 0; u < kQuads; ++u) {
      const bool there = place(first, u) < quads;
      const uint4 kept = there ? staged[place(first, u)] : uint4{0, 0, 0, 0};
      held[u].ordinal[0] = kept.x;
      held[u].ordinal[1] = kept.y;
      held[u].ordinal[2] = kept.z;
      held[u].ordinal[3] = kept.w;
    }
  }

  // Calls visit(first) for each batch, the quads from `first` on.
  template <typename Visit>
  __device__ __forceinline__ void in_batches(Visit&& visit) {
    if constexpr (kHeld) {
      visit(0);
    } else {
      for (uint32_t first = 0; first < quads; first += kQuads * kThreads) visit(first);
    }
  }

  // Sees all ordinals, and keeps what there is room for.
  __device__ __forceinline__ OrdinalRange load_all() {
    OrdinalRange seen;
    if (quads == 0) return seen;
    in_batches([&](uint32_t first) {
      load(first);
#pragma unroll
      for (uint32_t u = 0; u < kQuads; ++u) {
        const uint32_t (&ordinal)[kQuad] = held[u].ordinal;
#pragma unroll
        for (uint32_t j = 0; j < kQuad; ++j) seen.see(ordinal[j]);
        if (!kHeld && staged != nullptr && place(first, u) < quads) {
          staged[place(first, u)] = {ordinal[0], ordinal[1], ordinal[2], ordinal[3]};
        }
      }
    });
    return seen;
  }

  // Calls f(ordinal, candidate) for each, candidate() telling the rest of it; with kWhole all of it
  // is read beforehand.
  template <bool kWhole = false, typename F>
  __device__ __forceinline__ void for_each(F&& f) {
    if (quads == 0) return;
    in_batches([&](uint32_t first) {
      if constexpr (!kHeld) {
        if (kWhole || staged == nullptr) {
          load(first);
        } else {
          load_ordinals(first);
        }
      }
#pragma unroll
      for (uint32_t u = 0; u < kQuads; ++u) {
#pragma unroll
        for (uint32_t j = 0; j < kQuad; ++j) {
          f(held[u].ordinal[j], [&] {
            if constexpr (!kHeld && !kWhole) return source.read(place(first, u) * kQuad + j);
            return Candidate{held[u].bits[j], held[u].index[j], true};
          });
        }
      }
    });
  }
};

}  // namespace tl_topk
