// What the indexer's scoring programs leave to CUDA: sums over heads in a fixed order, and finding
// a block's share of the work without a loop over all groups of queries.
#pragma once

#include <cstdint>

#include "cuda/indexer_clock.cuh"

namespace tl_topk::indexer {

constexpr uint32_t kLanes = 32;
constexpr uint32_t kEveryLane = 0xffffffffu;
constexpr int kPageKeys = 64;

// A thread's share of a tile of products, one value at a time: TileLang deals it, but lets no
// function look at all of it.
__device__ __forceinline__ void keep(float* mine, int index, float value) { mine[index] = value; }

// The weighted sum over heads of what is positive of two keys' products with each query: of the
// keys in rows lane / 4 and lane / 4 + 8 of the warp's 16. The sums are dealt to the four lanes
// that share the keys: sums[v] is of key i and query n with i * kQueries + n == 4 v + lane % 4,
// where there are so many; with one query lanes 2 and 3 repeat 0 and 1.
//
// `products` and `weights` are a thread's share as the tensor core deals them: columns 8 j + 2
// (lane % 4) + {0, 1}, of each j first those of the one key, then of the other.
//
// Every multiplication and addition is written out, in an order that is the same for every number
// of queries: a compiler that contracted them as it likes would do so otherwise in each program.
template <int kQueries, int kHeads, bool kOwnWeights>
__device__ __forceinline__ void weigh(const float* products, const float* weights, float* sums) {
  constexpr int kEights = kHeads / 8;
  const int pair = static_cast<int>(threadIdx.x % 4) * 2;
  constexpr int kFours = (2 * kQueries + 3) / 4;
  float mine[4 * kFours] = {};
#pragma unroll
  for (int n = 0; n < kQueries; ++n) {
    float even[2] = {0.0f, 0.0f};
    float odd[2] = {0.0f, 0.0f};
#pragma unroll
    for (int j = n * kEights; j < (n + 1) * kEights; ++j) {
      const float2 weight = kOwnWeights ? make_float2(weights[2 * j], weights[2 * j + 1])
                                        : *reinterpret_cast<const float2*>(weights + 8 * j + pair);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        even[i] = __fmaf_rn(fmaxf(products[4 * j + 2 * i], 0.0f), weight.x, even[i]);
        odd[i] = __fmaf_rn(fmaxf(products[4 * j + 2 * i + 1], 0.0f), weight.y, odd[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) mine[i * kQueries + n] = __fadd_rn(even[i], odd[i]);
  }
  // Each lane gives away what another is to keep: half as many shuffles as sums.
  const bool upper = (threadIdx.x & 1) != 0;
  const bool top = (threadIdx.x & 2) != 0;
#pragma unroll
  for (int v = 0; v < kFours; ++v) {
    float pair[2];
#pragma unroll
    for (int u = 0; u < (kQueries == 1 ? 1 : 2); ++u) {
      const float low = mine[4 * v + 2 * u];
      const float high = mine[4 * v + 2 * u + 1];
      pair[u] = __fadd_rn(upper ? high : low, __shfl_xor_sync(kEveryLane, upper ? low : high, 1));
    }
    if constexpr (kQueries == 1) pair[1] = pair[0];
    sums[v] =
        __fadd_rn(top ? pair[1] : pair[0], __shfl_xor_sync(kEveryLane, top ? pair[0] : pair[1], 2));
  }
}

// How many keys query `query` of sequence `group` sees.
template <int kQueries, int kRatio, bool kLensPerQuery>
__device__ __forceinline__ int row_length(const int* lens, int group, int query, int table_width) {
  const int tokens =
      kLensPerQuery ? lens[group * kQueries + query] : lens[group] - (kQueries - 1) + query;
  return min(max(tokens, 0) / kRatio, table_width * kPageKeys);
}

// How many keys of a group of queries are seen by any of them, and from which on.
struct Extent {
  int origin;
  int keys;
};

// Of sequence `group` on pages, `lens` (groups, kQueries or 1) tokens long.
template <int kQueries, int kRatio, bool kLensPerQuery>
__device__ __forceinline__ Extent extent_on_pages(const int* lens, int group, int table_width) {
  int tokens = 0;
#pragma unroll
  for (int n = 0; n < (kLensPerQuery ? kQueries : 1); ++n) {
    tokens = max(tokens, lens[group * (kLensPerQuery ? kQueries : 1) + n]);
  }
  return {0, min(tokens / kRatio, table_width * kPageKeys)};
}

// Of rows group * kQueries and following, among `rows` rows over `width` keys.
template <int kQueries>
__device__ __forceinline__ Extent extent_in_row(const int* starts, const int* lengths, int group,
                                                int rows, int width) {
  int first = width;
  int end = 0;
#pragma unroll
  for (int n = 0; n < kQueries; ++n) {
    const int row = group * kQueries + n;
    const int length = row < rows ? lengths[row] : 0;
    if (length <= 0) continue;
    first = min(first, starts[row]);
    end = max(end, starts[row] + length);
  }
  return {first, max(end - first, 0)};
}

// What a block works on, of tiles numbered through all groups: each stepth of [first, last), in
// groups [group, group_end), of which the first begins with tile `before`.
struct Work {
  int total;
  int first;
  int last;
  int group;
  int group_end;
  int before;
  int step;
  int keys;  // that the first of the groups sees, from its origin on
};

// Called by whole warps, each for itself. extent_of(group) says how many keys a group sees. Blocks
// take equal, contiguous shares; of one group alone, if they may go round it, every tile in turn:
// no division then stands between the length and the first keys.
template <int kTile, bool kMayGoRound, typename ExtentOf>
__device__ __forceinline__ Work find_work(int groups, int block, int blocks, ExtentOf extent_of) {
  const auto tiles_in = [](int keys) { return (keys + kTile - 1) / kTile; };
  if (kMayGoRound && groups == 1) {
    const int keys = extent_of(0).keys;
    const int tiles = tiles_in(keys);
    return {tiles, block, tiles, 0, block < tiles ? 1 : 0, 0, blocks, keys};
  }
  const int lane = static_cast<int>(threadIdx.x % kLanes);
  const auto tiles_of = [&](int group) {
    return group < groups ? tiles_in(extent_of(group).keys) : 0;
  };
  int total = 0;
  for (int g = 0; g < groups; g += kLanes) total += tiles_of(g + lane);
  total = __reduce_add_sync(kEveryLane, total);
  const int share = total / blocks;
  const int longer = total % blocks;  // blocks with one tile more
  const int first = block * share + min(block, longer);
  Work work{total, first, first + share + (block < longer), 0, groups, 0, 1, 0};
  if (work.first == work.last) work.group_end = 0;
  if (work.first == work.last) return work;
  if (groups == 1) {
    work.keys = extent_of(0).keys;
    return work;
  }
  int before = 0;
  bool begun = false;
  for (int g = 0; g < groups; g += kLanes) {
    const int mine = tiles_of(g + lane);
    int upto = mine;
#pragma unroll
    for (int d = 1; d < static_cast<int>(kLanes); d *= 2) {
      const int below = __shfl_up_sync(kEveryLane, upto, d);
      if (lane >= d) upto += below;
    }
    upto += before;
    const uint32_t reaching = __ballot_sync(kEveryLane, upto > first);
    if (!begun && reaching != 0) {
      const int leader = __ffs(reaching) - 1;
      work.group = g + leader;
      work.before = __shfl_sync(kEveryLane, upto - mine, leader);
      work.keys = extent_of(work.group).keys;
      begun = true;
    }
    const uint32_t ending = __ballot_sync(kEveryLane, upto >= work.last);
    if (ending != 0) {
      work.group_end = min(groups, g + __ffs(ending));
      break;
    }
    before = __shfl_sync(kEveryLane, upto, kLanes - 1);
  }
  return work;
}

__device__ __forceinline__ void store_work(const Work& work, int* out) {
  out[0] = work.total;
  out[1] = work.first;
  out[2] = work.last;
  out[3] = work.group;
  out[4] = work.group_end;
  out[5] = work.before;
  out[6] = work.step;
  out[7] = work.keys;
}

// The page that this lane brings of tiles from `tile` on, each stepth: as many as fit a warp. Of
// the sequence's pages `pages` are there; behind them it is -1, for which TMA brings zeros.
template <int kTile>
__device__ __forceinline__ int page_of_lane(const int* table, int table_width, int group, int tile,
                                            int step, int pages) {
  constexpr int kTilePages = kTile / kPageKeys;
  const int lane = static_cast<int>(threadIdx.x % kLanes);
  const int number = (tile + lane / kTilePages * step) * kTilePages + lane % kTilePages;
  int page = -1;
  if (number < pages) {
    const int* from = table + static_cast<int64_t>(group) * table_width + number;
    asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(page) : "l"(from));
  }
  return page;
}

// The pages that come first for this block, one a lane, asked for before the lengths are known, for
// either comes from far away: those of the one sequence whose tiles the blocks take in turn, or of
// sequences as long as their block tables. To memory[0] goes the sequence, to memory[1] the first
// tile and to memory[2] the page.
template <int kTile, bool kMayGoRound>
__device__ __forceinline__ void guess_pages(const int* table, int groups, int table_width,
                                            int block, int blocks, int* memory) {
  int group = 0;
  int tile = block;
  int step = blocks;
  if (!kMayGoRound || groups != 1) {
    constexpr int kTilePages = kTile / kPageKeys;
    const int tiles = (table_width + kTilePages - 1) / kTilePages;
    const int total = groups * tiles;
    const int share = total / blocks;
    const int first = block * share + min(block, total % blocks);
    group = tiles > 0 ? min(first / tiles, groups - 1) : 0;
    tile = first - group * tiles;
    step = 1;
  }
  memory[0] = group;
  memory[1] = tile;
  memory[2] = page_of_lane<kTile>(table, table_width, group, tile, step, table_width);
}

// What TileLang programs call: numbers and pointers only.

// The kernel behind this one on the stream may be launched, if it was asked to overlap.
__device__ __forceinline__ void allow_next_kernel() {
  asm volatile("griddepcontrol.launch_dependents;");
}

// TileLang would work the address out anew each time.
__device__ __forceinline__ void put_score(float* scores, int row, int width, int position,
                                          float score) {
  scores[static_cast<int64_t>(row) * width + position] = score;
}

// A block's next tile. Opaque, for nvcc makes four copies of a loop whose turns it can count: code
// that lies between the start and the first keys.
__device__ __forceinline__ int next_tile(int tile, int step) {
  asm volatile("add.s32 %0, %0, %1;" : "+r"(tile) : "r"(step));
  return tile;
}

// A thread's share of a group's weights, as weigh() takes them, from the group's first on.
template <int kColumns>
__device__ __forceinline__ void load_weights(const float* weights, float* mine) {
  const float* from = weights + threadIdx.x % 4 * 2;
#pragma unroll
  for (int j = 0; j < kColumns / 8; ++j) {
    mine[2 * j] = from[8 * j];
    mine[2 * j + 1] = from[8 * j + 1];
  }
}

// How many keys any query of sequence `group` sees.
template <int kQueries, int kRatio, bool kLensPerQuery>
__device__ __forceinline__ int keys_on_pages(const int* lens, int group, int table_width) {
  return extent_on_pages<kQueries, kRatio, kLensPerQuery>(lens, group, table_width).keys;
}

template <int kTile, int kQueries, int kRatio, bool kLensPerQuery, bool kMayGoRound>
__device__ __forceinline__ void work_on_pages(const int* lens, int groups, int table_width,
                                              int block, int blocks, int* work) {
  store_work(
      find_work<kTile, kMayGoRound>(groups, block, blocks,
                                    [&](int group) {
                                      return extent_on_pages<kQueries, kRatio, kLensPerQuery>(
                                          lens, group, table_width);
                                    }),
      work);
}

template <int kTile, int kQueries>
__device__ __forceinline__ void work_in_row(const int* starts, const int* lengths, int groups,
                                            int rows, int width, int block, int blocks, int* work) {
  store_work(
      find_work<kTile, false>(
          groups, block, blocks,
          [&](int group) { return extent_in_row<kQueries>(starts, lengths, group, rows, width); }),
      work);
}

}  // namespace tl_topk::indexer
