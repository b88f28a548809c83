// A row whose elements are divided over ranks: which element lies where.
#pragma once

#include <cstdint>

#include "host_device.h"

namespace tl_topk {

constexpr uint32_t kMaxRanks = 256;  // so that every kernel can take the shards as a parameter

struct Shards {
  uint32_t ranks;
  uint32_t rank;   // whose process this is
  uint32_t block;  // elements dealt out at a time, to rank 0, 1, .. and again; 0: one shard each
  uint32_t width;  // of the whole row
  uint32_t starts[kMaxRanks + 1];  // of one shard each: where they begin in the row; then the width

  // The place in the row of element `local` of rank `r`.
  TL_TOPK_HD uint32_t global_index(uint32_t r, uint32_t local) const {
    if (block == 0) return starts[r] + local;
    return static_cast<uint32_t>((static_cast<uint64_t>(local / block) * ranks + r) * block +
                                 local % block);
  }

  TL_TOPK_HD bool is_mine(uint32_t global) const {
    if (block == 0) return starts[rank] <= global && global < starts[rank + 1];
    return global / block % ranks == rank;
  }
  // The inverse of global_index for elements of this rank.
  TL_TOPK_HD uint32_t local_index(uint32_t global) const {
    if (block == 0) return global - starts[rank];
    return static_cast<uint32_t>(global / (static_cast<uint64_t>(block) * ranks)) * block +
           global % block;
  }

  // How many of the row's first `length` elements rank `r` has; any length is clamped to the row.
  TL_TOPK_HD uint32_t local_length(uint32_t r, int64_t length) const {
    const int64_t whole = length < 0 ? 0 : length < width ? length : width;
    const int64_t round = static_cast<int64_t>(block) * ranks;
    const int64_t begin = block == 0 ? starts[r] : static_cast<int64_t>(r) * block;
    const int64_t most = block == 0 ? starts[r + 1] - starts[r] : block;
    const int64_t before = block == 0 ? 0 : whole / round * block;
    const int64_t rest = (block == 0 ? whole : whole % round) - begin;
    return static_cast<uint32_t>(before + (rest < 0 ? 0 : rest < most ? rest : most));
  }
};

}  // namespace tl_topk
