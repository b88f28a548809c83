// shards.h by enumeration, and the steps of exchange.h on the CPU, with every rank played here,
// against a sort of the whole row.
#include "exchange.h"

#include <algorithm>
#include <random>
#include <vector>

#include "check.h"
#include "cpu/exchange_cpu.h"

namespace {

using namespace tl_topk;

// `owner[g]` says which rank has element g of the row.
std::vector<uint32_t> deal(uint32_t width, uint32_t ranks, uint32_t block, std::mt19937& random) {
  std::vector<uint32_t> owner(width);
  for (uint32_t g = 0; g < width; ++g) owner[g] = block == 0 ? random() % ranks : g / block % ranks;
  if (block == 0) std::sort(owner.begin(), owner.end());
  return owner;
}

Shards shards_of(const std::vector<uint32_t>& owner, uint32_t ranks, uint32_t rank,
                 uint32_t block) {
  Shards shards{};
  shards.ranks = ranks;
  shards.rank = rank;
  shards.block = block;
  shards.width = static_cast<uint32_t>(owner.size());
  for (uint32_t r = 0; r < ranks; ++r) {
    const auto own = std::count(owner.begin(), owner.end(), r);
    shards.starts[r + 1] = shards.starts[r] + static_cast<uint32_t>(own);
  }
  return shards;
}

void places_agree(uint32_t width, uint32_t ranks, uint32_t block, std::mt19937& random) {
  const std::vector<uint32_t> owner = deal(width, ranks, block, random);
  for (uint32_t r = 0; r < ranks; ++r) {
    const Shards shards = shards_of(owner, ranks, r, block);
    uint32_t local = 0;
    for (uint32_t g = 0; g < width; ++g) {
      CHECK(shards.local_length(r, g) == local);
      CHECK(shards.is_mine(g) == (owner[g] == r));
      if (owner[g] != r) continue;
      CHECK(shards.global_index(r, local) == g);
      CHECK(shards.local_index(g) == local);
      ++local;
    }
    for (const int64_t all : {int64_t{width}, int64_t{width} + 1, INT64_MAX}) {
      CHECK(shards.local_length(r, all) == local);
    }
    CHECK(shards.local_length(r, -1) == 0 && shards.local_length(r, INT64_MIN) == 0);
  }
}

// What one rank has selected of its own, best first.
struct Own {
  std::vector<int32_t> indices;
  std::vector<uint32_t> bits;
};

struct World {
  uint32_t ranks;
  uint32_t block;
  std::vector<uint32_t> owner;
  std::vector<uint32_t> row;  // float32 bits
  bool largest;

  uint64_t rank_at(uint32_t g) const { return rank_key(order_key(orient(row[g], largest)), g); }
  Shards shards(uint32_t r) const { return shards_of(owner, ranks, r, block); }

  std::vector<uint32_t> best(const std::vector<uint32_t>& among, uint32_t k) const {
    std::vector<uint32_t> sorted = among;
    std::sort(sorted.begin(), sorted.end(),
              [&](uint32_t a, uint32_t b) { return rank_at(a) > rank_at(b); });
    sorted.resize(std::min<size_t>(k, sorted.size()));
    return sorted;
  }
  Own own(uint32_t r, uint32_t count) const {
    std::vector<uint32_t> among;
    for (uint32_t g = 0; g < row.size(); ++g) {
      if (owner[g] == r) among.push_back(g);
    }
    Own own{std::vector<int32_t>(count, -1), std::vector<uint32_t>(count, 0xff800000u)};
    size_t i = 0;
    for (const uint32_t g : best(among, count)) {
      own.indices[i] = static_cast<int32_t>(shards(r).local_index(g));
      own.bits[i++] = row[g];
    }
    return own;
  }
};

void check_merge(const World& world, MergeArgs args, uint32_t k, Order order) {
  std::vector<int32_t> indices(k, 7), local(k, 7);
  std::vector<uint32_t> values(k, 7);
  args.rows = 1;
  args.k = k;
  args.dtype = Dtype::kFloat32;
  args.order = order;
  args.largest = world.largest;
  args.indices = indices.data();
  args.values = values.data();
  args.local_indices = local.data();
  const Shards shards = world.shards(world.ranks - 1);
  merge_cpu(args, shards);

  std::vector<uint32_t> all(world.row.size());
  for (uint32_t g = 0; g < all.size(); ++g) all[g] = g;
  std::vector<uint32_t> expected = world.best(all, k);
  std::vector<uint32_t> found;
  for (const int32_t index : indices) {
    if (index >= 0) found.push_back(static_cast<uint32_t>(index));
  }
  if (order != Order::kValue) std::sort(expected.begin(), expected.end());
  if (order == Order::kAny) std::sort(found.begin(), found.end());
  CHECK(found == expected);
  size_t own = 0;
  for (uint32_t slot = 0; slot < k; ++slot) {
    const int32_t index = indices[slot];
    CHECK((index >= 0) == (slot < expected.size()));
    CHECK(values[slot] == (index >= 0 ? world.row[index] : world.largest ? 0xff800000u : kInfBits));
    if (index >= 0 && shards.is_mine(index)) {
      CHECK(local[own++] == static_cast<int32_t>(shards.local_index(index)));
    }
  }
  for (; own < k; ++own) CHECK(local[own] == -1);
}

void methods_agree(const World& world, uint32_t k, uint32_t stride, Order order) {
  uint32_t count = 0;
  for (uint32_t r = 0; r < world.ranks; ++r) {
    const auto own = std::count(world.owner.begin(), world.owner.end(), r);
    count = std::max(count, std::min(k, static_cast<uint32_t>(own)));
  }
  std::vector<Own> all;
  for (uint32_t r = 0; r < world.ranks; ++r) all.push_back(world.own(r, count));

  const auto part = static_cast<size_t>(part_bytes(1, count, Dtype::kFloat32));
  std::vector<uint64_t> parts(world.ranks * part / 8, 0x5a5a5a5a5a5a5a5aull);
  const uint32_t samples = count / stride;
  std::vector<uint64_t> ranks(world.ranks * samples);
  const auto selected = [&](uint32_t r) {
    return Selected{all[r].indices.data(), all[r].bits.data(), 1, count};
  };
  for (uint32_t r = 0; r < world.ranks; ++r) {
    char* const own = reinterpret_cast<char*>(parts.data()) + r * part;
    std::copy_n(reinterpret_cast<const char*>(all[r].indices.data()), 4 * count, own);
    std::copy_n(reinterpret_cast<const char*>(all[r].bits.data()), 4 * count, own + 4 * count);
    sample_cpu(
        {selected(r), Dtype::kFloat32, world.largest, stride, samples, ranks.data() + r * samples},
        world.shards(r));
  }
  MergeArgs gathered{};
  gathered.parts = parts.data();
  gathered.per_rank = count;
  check_merge(world, gathered, k, order);

  const uint32_t slots = stride * (bound_of(k, stride) + world.ranks);
  std::vector<uint64_t> sum(slots, 0);
  for (uint32_t r = 0; r < world.ranks; ++r) {
    std::vector<uint64_t> words(slots, ~0ull);
    contribute_cpu({selected(r), Dtype::kFloat32, world.largest, k, stride, samples, ranks.data(),
                    slots, words.data()},
                   world.shards(r));
    for (uint32_t i = 0; i < slots; ++i) {
      CHECK(sum[i] == 0 || words[i] == 0);  // no two ranks use one slot
      sum[i] += words[i];
    }
  }
  MergeArgs words{};
  words.words = sum.data();
  words.slots = slots;
  check_merge(world, words, k, order);
}

// Other ranks may send anything: here one candidate, again and again, more often than there is
// room.
void too_many_words_stay_inside() {
  std::mt19937 random(12);
  World world{1, 0, std::vector<uint32_t>(40, 0), {}, true};
  for (uint32_t g = 0; g < 40; ++g) world.row.push_back(static_cast<uint32_t>(random()) >> 2);
  const Own own = world.own(0, 20);
  const Selected selected{own.indices.data(), own.bits.data(), 1, 20};
  constexpr uint32_t kWanted = 6;
  const uint32_t slots = bound_of(kWanted, 1) + 1;
  std::vector<uint64_t> ranks(20), words(slots);
  sample_cpu({selected, Dtype::kFloat32, true, 1, 20, ranks.data()}, world.shards(0));
  contribute_cpu(
      {selected, Dtype::kFloat32, true, kWanted, 1, 20, ranks.data(), slots, words.data()},
      world.shards(0));
  std::vector<uint64_t> same(50, words[0]);
  for (const Order order : {Order::kAny, Order::kIndex, Order::kValue}) {
    std::vector<int32_t> indices(kWanted + 1, 7), local(kWanted + 1, 7);
    std::vector<uint32_t> values(kWanted + 1, 7);
    MergeArgs args{};
    args.words = same.data();
    args.slots = static_cast<uint32_t>(same.size());
    args.rows = 1;
    args.k = kWanted;
    args.dtype = Dtype::kFloat32;
    args.order = order;
    args.largest = true;
    args.indices = indices.data();
    args.values = values.data();
    args.local_indices = local.data();
    merge_cpu(args, world.shards(0));
    for (uint32_t slot = 0; slot < kWanted; ++slot) CHECK(indices[slot] == own.indices[0]);
    CHECK(indices[kWanted] == 7 && local[kWanted] == 7 && values[kWanted] == 7);
  }
}

}  // namespace

int main() {
  too_many_words_stay_inside();
  std::mt19937 random(11);
  for (const uint32_t width : {0u, 1u, 5u, 64u, 97u}) {
    for (const uint32_t ranks : {1u, 2u, 3u, 8u, kMaxRanks}) {
      for (const uint32_t block : {0u, 1u, 3u, 16u, 1000u}) {
        places_agree(width, ranks, block, random);
      }
    }
  }
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  for (int trial = 0; trial < 300; ++trial) {
    const uint32_t width = below(300);
    World world{1 + below(9), below(3) == 0 ? 0 : 1 + below(20), {}, {}, trial % 2 == 0};
    world.owner = deal(width, world.ranks, world.block, random);
    const uint32_t values = trial % 3 == 0 ? 3 : 1u << 30;  // with many ties
    for (uint32_t g = 0; g < width; ++g) {
      const auto bits = static_cast<uint32_t>(random());
      world.row.push_back(trial % 5 == 0 ? bits : bits % values * 0x9e3779b1u);
    }
    methods_agree(world, 1 + below(200), 1 + below(12), static_cast<Order>(trial % 3));
  }
  return check::status();
}
