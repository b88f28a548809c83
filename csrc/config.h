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
};

// Rows wider in k than this take the exact but slower large-k kernel.
constexpr int64_t kMaxFastK = 4096;

// Where a block's share of a row takes several steps, it has room for this many survivors in each
// thread's registers: where many blocks share a row, where one or two do, and for k near kMaxFastK.
// A share of one step stays in registers as it is.
constexpr int kResident = 0;
constexpr int kFewEntries = 4;
constexpr int kSomeEntries = 10;
constexpr int kManyEntries = 24;

struct LaunchConfig {
  Scope scope = Scope::kBlock;
  bool large_k = false;
  int blocks_per_row = 1;
  int threads = 0;             // per block
  int vectors_per_thread = 0;  // 16-byte loads in flight per thread
  int entries_per_thread = 0;  // survivors that a block has room for, or kResident
  int sort_entries = 0;        // keys the leader sorts; 0 when the order of slots is free
  int64_t grid_blocks = 0;
  int64_t shared_bytes = 0;     // dynamic shared memory per block
  int64_t workspace_bytes = 0;  // zeroed once; every launch leaves it zeroed
  SamplePlan sample{};          // of rows as long as the width
  std::string reason;           // one sentence
};

// Shared memory that every block of the selecting kernel needs besides entries and sort keys.
constexpr int64_t kFixedSharedBytes = 14 * 1024;

// `blocks_per_row`: that many blocks share a row, a size of kClusterSizes that the device has; 0
// leaves the choice to this function. Throws std::invalid_argument where the device has no such
// clusters, or cannot run the kernels at all.
LaunchConfig choose_launch(const Problem& problem, const DeviceFacts& device,
                           int64_t blocks_per_row = 0);

const char* scope_name(Scope scope);

}  // namespace tl_topk
