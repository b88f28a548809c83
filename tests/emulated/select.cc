// The kernels of csrc/cuda that select, run thread by thread; built for one dtype by its test, with
// EMULATED_MAPPED those that map as well.
#include "cluster.h"
//
#include "config.h"
#include "cuda/grid_kernel.cuh"
#include "cuda/large_k_kernel.cuh"
#include "cuda/select_kernel.cuh"

namespace tl_topk {
namespace {

constexpr Dtype kDtype = static_cast<Dtype>(EMULATED_DTYPE);
constexpr int kMostLoads = kDtype == Dtype::kFloat32 ? 2 : 1;
#ifdef EMULATED_MAPPED
constexpr bool kMapped = true;
#else
constexpr bool kMapped = false;
#endif

// By a kernel of its own, where nothing is mapped: see find_resident_kernel.
bool is_counted_whole(const LaunchConfig& c) {
  return c.scope == Scope::kBlock && !c.large_k && c.entries_per_thread == kResident &&
         c.sort_entries == 0;
}

template <Scope S, bool kRagged>
void run(const LaunchConfig& c, const Params<kMapped>& params) {
  if (c.large_k) return large_k_kernel<kDtype, S, kMapped>(params);
  if (c.scope == Scope::kGrid) {
    return grid_kernel<kDtype, kMostLoads, kSomeEntries, kMapped>(params);
  }
  const bool two = c.vectors_per_thread > 1;
  switch (c.entries_per_thread) {
    case kResident:
      if constexpr (!kMapped && S == Scope::kBlock) {
        if (is_counted_whole(c)) {
          return kDtype == Dtype::kFloat32 && two ? short_kernel<kDtype, kMostLoads - 1>(params)
                                                  : short_kernel<kDtype, 0>(params);
        }
      }
      if (kDtype == Dtype::kFloat32 && two) {
        return select_rows<kDtype, S, kMostLoads - 1, kResident, false, kMapped, kRagged>(params);
      }
      return select_rows<kDtype, S, 0, kResident, false, kMapped, kRagged>(params);
    case kFewEntries:
      if (c.queue_bytes > 0) {
        return select_rows<kDtype, S, kMostLoads, kFewEntries, true, kMapped, kRagged>(params);
      }
      return select_rows<kDtype, S, kMostLoads, kFewEntries, false, kMapped, kRagged>(params);
    case kSomeEntries:
      if (c.queue_bytes > 0) {
        return select_rows<kDtype, Scope::kCluster, kMostLoads, kSomeEntries, true, kMapped,
                           kRagged>(params);
      }
      return select_rows<kDtype, S, kMostLoads, kSomeEntries, false, kMapped, kRagged>(params);
    default:
      return select_rows<kDtype, S, kMostLoads, kManyEntries, false, kMapped, kRagged>(params);
  }
}

template <Scope S>
void run_either(const LaunchConfig& c, const Params<kMapped>& params) {
  params.whole_rows ? run<S, false>(c, params) : run<S, true>(c, params);
}

Problem problem_of(int rows, int width, int k, int order) {
  Problem problem;
  problem.rows = rows;
  problem.width = width;
  problem.k = k;
  problem.dtype = kDtype;
  problem.order = static_cast<Order>(order);
  return problem;
}

// As launched on an H200; with so many blocks per row, or 0: as many as are chosen.
LaunchConfig configure(const Problem& problem, int blocks_per_row) {
  DeviceFacts device;
  device.compute_capability = 90;
  device.sms = 132;
  device.shared_memory_per_block = 232448;
  device.coresident_clusters = {132, 66, 32, 15, 8};
  return choose_launch(problem, device, blocks_per_row);
}

Params<kMapped> params_of(const Problem& problem, const LaunchConfig& c) {
  Params<kMapped> params{};
  params.width = problem.width;
  params.k = problem.k;
  params.set_sort_entries(c.sort_entries);
  params.full_plan = c.sample;
  params.order = problem.order;
  while (1 << params.blocks_log2 < c.cluster_blocks) ++params.blocks_log2;
  while (c.cluster_blocks << params.clusters_log2 < c.blocks_per_row) ++params.clusters_log2;
  return params;
}

void launch(const LaunchConfig& c, Params<kMapped> params, unsigned blocks) {
  std::vector<uint64_t> workspace(c.workspace_bytes / 8, 0x5a5a5a5a5a5a5a5a);
  const size_t counters = std::min<size_t>(workspace.size(), kCounterBytes / 8);
  std::fill_n(workspace.begin(), counters, 0);
  params.workspace = workspace.data();
  for (unsigned first = 0; first < blocks; first += c.cluster_blocks) {
    emulated::run_cluster(first, c.cluster_blocks, c.threads, c.shared_bytes, [&] {
      c.scope == Scope::kBlock ? run_either<Scope::kBlock>(c, params)
                               : run_either<Scope::kCluster>(c, params);
    });
  }
  for (size_t i = 0; i < counters; ++i) {
    if (workspace[i] != 0) emulated::give_up("leaves a counter behind");
  }
}

}  // namespace
}  // namespace tl_topk

using namespace tl_topk;

extern "C" {

__attribute__((visibility("default"))) void emulated_topk(const void* scores, long long stride,
                                                          int rows, int width, int k, int order,
                                                          int largest, const int* lengths,
                                                          const int* starts, int* indices,
                                                          void* values, int blocks_per_row) {
  const Problem problem = problem_of(rows, width, k, order);
  const LaunchConfig c = configure(problem, blocks_per_row);
  auto params = params_of(problem, c);
  params.scores = scores;
  params.scores_stride = stride;
  params.indices = indices;
  params.indices_stride = k;
  params.values = values;
  params.values_stride = k;
  params.set_rows({lengths, false}, {starts, false});
  params.largest = largest != 0;
  launch(c, params, c.grid_blocks);
}

// What the blocks of the first of so many rows sample, and what they make of it: see Watch. Returns
// how many blocks share a row; of each there are so many places. 0: they sample nothing.
__attribute__((visibility("default"))) int emulated_sample(
    const void* scores, int rows, int width, int k, int order,
    float (*sample)[kThreads][Watch::kMostElements], float (*maxima)[kMostGroups], Anchors* anchors,
    SamplePlan* plan) {
  const Problem problem = problem_of(rows, width, k, order);
  const LaunchConfig c = configure(problem, 0);
  if (is_counted_whole(c)) return 0;
  auto params = params_of(problem, c);
  params.scores = scores;
  params.set_rows({nullptr, false}, {nullptr, false});
  params.largest = true;
  Watch watched{sample, maxima, anchors, plan};
  watch = &watched;
  launch(c, params, c.blocks_per_row);
  watch = nullptr;
  return c.blocks_per_row;
}

// What is left of vector `v`, as it lies in memory, of a row of so many elements.
__attribute__((visibility("default"))) void emulated_mask(unsigned length, unsigned misaligned,
                                                          unsigned v, uint4* vector) {
  Row<kDtype> row{};
  row.length = row.readable = length;
  row.misaligned = misaligned;
  row.mask_end(v, *vector);
}

#ifdef EMULATED_MAPPED
// Of whole rows, `next_n` for each request; what is null is not wanted.
__attribute__((visibility("default"))) void emulated_mapped(
    const void* scores, int rows, int width, int k, int order, const int* page_table, int requests,
    int pages, int page_log2, int next_n, int* slots, int* ragged, const void* offsets,
    bool offsets_are_int64, int* indices, int blocks_per_row) {
  const Problem problem = problem_of(rows, width, k, order);
  const LaunchConfig c = configure(problem, blocks_per_row);
  auto params = params_of(problem, c);
  params.scores = scores;
  params.scores_stride = width;
  params.indices = indices;
  params.indices_stride = indices != nullptr ? k : 0;
  params.set_rows({nullptr, false}, {nullptr, false});
  params.largest = true;
  Mapping& m = params.mapping;
  m.slots = slots;
  m.slots_stride = m.ragged_stride = k;
  m.page_table = page_table;
  m.page_table_stride = m.pages = pages;
  m.requests = requests;
  m.next_n = next_n;
  m.page_log2 = static_cast<uint8_t>(page_log2);
  m.ragged = ragged;
  m.offsets = {offsets, offsets_are_int64};
  m.note_plainness();
  params.note_only_output(rows, c.page_words);
  LaunchConfig with_pages = c;
  const bool copies = params.only == OnlyOutput::kSlots;
  with_pages.shared_bytes += copies ? params.mapping.pages * sizeof(int32_t) : 0;
  launch(with_pages, params, c.grid_blocks);
}
#endif
}
