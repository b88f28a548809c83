// From a problem to a launch configuration: a pure function, tested without a GPU.
#pragma once

#include <cstdint>
#include <string>

#include "device_facts.h"
#include "problem.h"
#include "sampling.h"

namespace tl_topk {

// Which thread blocks work on one row, and how they meet.
enum class Scope : uint8_t {
  kBlock = 0,    // one block: shared memory
  kCluster = 1,  // one cluster: distributed shared memory
  kGrid = 2,     // several clusters: L2
};

// Rows wider in k than this take the exact but slower large-k kernel.
constexpr int64_t kMaxFastK = 4096;

// Vectors a thread of the sample that all blocks of a row take: one, or where their shares are
// `queued` those of 4096 elements.
TL_TOPK_HD constexpr uint32_t sample_loads(uint32_t per_vector, bool queued) {
  return queued ? 8 / per_vector : 1;
}

// Where a block's share of a row takes several steps, it has room for this many survivors in each
// thread's registers: where many blocks share a row, where one or two do, and for k near kMaxFastK.
// A share of one step stays in registers as it is.
constexpr int kResident = 0;
constexpr int kMostResident = 8;  // elements a thread; more are better listed
constexpr int kFewEntries = 6;
constexpr int kSomeEntries = 10;
constexpr int kManyEntries = 24;

// Groups of the sample of a kernel whose threads have room for that many survivors: more where few
// blocks share a row and each has many, for then fewer are counted.
TL_TOPK_HD constexpr uint32_t sample_groups(Scope scope, int entries, bool queued) {
  return scope != Scope::kGrid && entries == kSomeEntries && queued ? kMostGroups : kGroups;
}

// Bytes of a share of several steps that a block keeps under way in shared memory, on GPUs that
// have enough of it (given as compute capabilities). Not where a block alone has many survivors:
// two of them on a multiprocessor have as much under way in registers.
constexpr int64_t kQueueBytes = 128 * 1024;
constexpr bool has_deep_queue(int capability) {
  return capability == 90 || capability == 100 || capability == 103;
}

// Blocks of a grid put their survivors into segments of one list a row, in the workspace. A
// workspace begins with counters, which every launch leaves zeroed, as many bytes as any needs:
// launches of several problems may take turns with one. Behind them lies what nobody reads before
// it is written.
constexpr int kMaxGridBlocks = 128;      // that share a row
constexpr int kGridEntries = 63 * 1024;  // of a list; fewer than half a word can count
constexpr int64_t kCounterBytes = 4096;
constexpr int64_t kGridHeadBytes = 256;  // how many of its survivors a block has in which bin
// Entries of a segment, where so many blocks share a row.
TL_TOPK_HD constexpr uint32_t grid_room(uint32_t blocks_log2) {
  const uint32_t share = static_cast<uint32_t>(kGridEntries) >> blocks_log2;
  constexpr uint32_t kMost = 1024;  // of which a thread holds two
  return share < kMost ? share : kMost;
}

constexpr int64_t kElementsPerStep = 512 * 16;  // that a block reads at once
// Where so many clusters would share a row, one alone reads it in up to so many steps, whatever
// shares the widest: meeting in L2 takes its time. Rows of 1M are in
// bench/results/regret_ready.json.
TL_TOPK_HD constexpr uint32_t steps_of_cluster(uint32_t clusters) { return clusters > 2 ? 6 : 8; }

struct LaunchConfig {
  Scope scope = Scope::kBlock;
  bool large_k = false;
  int blocks_per_row = 1;
  int cluster_blocks = 1;      // of a cluster
  int threads = 0;             // per block
  int vectors_per_thread = 0;  // 16-byte loads in flight per thread
  int entries_per_thread = 0;  // survivors that a block has room for, or kResident
  int sort_entries = 0;        // keys the leader sorts; 0 when the order of slots is free
  int64_t grid_blocks = 0;
  int64_t shared_bytes = 0;  // dynamic shared memory per block
  int64_t queue_bytes = 0;   // of that, for steps under way; 0: they are in registers
  // Page numbers of a row for which a mapped launch has room besides: 0 where that would cost a
  // multiprocessor a block.
  int page_words = 0;
  int64_t workspace_bytes = 0;  // its counters zeroed once; every launch leaves them zeroed
  SamplePlan sample{};          // of rows as long as the width
  bool overlaps = false;        // may begin before the kernel ahead on the stream has ended
  std::string reason;           // one sentence
};

// Page numbers of a row that each of its blocks keeps in shared memory, at the most: a quarter of
// what a block of a cluster of 16 reads of a row that has so many pages of 64 float32.
constexpr int kMostPageWords = 4096;

// Shared memory that every block of the selecting kernel needs besides entries and sort keys.
constexpr int64_t kFixedSharedBytes = 14 * 1024;

// `blocks_per_row`: that many blocks share a row, a size of kClusterSizes that the device has or,
// of few and long rows, more; 0 leaves the choice to this function. Throws std::invalid_argument
// where there cannot be so many, or the device cannot run the kernels at all.
LaunchConfig choose_launch(const Problem& problem, const DeviceFacts& device,
                           int64_t blocks_per_row = 0);

const char* scope_name(Scope scope);

}  // namespace tl_topk
