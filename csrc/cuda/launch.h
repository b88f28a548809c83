// The GPU backend's host interface, free of CUDA headers: streams and workspaces are void*.
// launch.cu implements it; launch_stub.cc stands in where there is no CUDA compiler.
#pragma once

#include <memory>
#include <string>

#include "config.h"
#include "device_facts.h"
#include "problem.h"

namespace tl_topk {

bool built_with_cuda();

// The architectures in this library, such as "80,90a,100f,120f"; empty without CUDA.
const char* built_architectures();

// 0 where there is no driver or no GPU; never throws.
int cuda_device_count();

// Read once per device and kept. Throws std::runtime_error with a sentence that names the cause.
const DeviceFacts& query_device(int device);
std::string device_name(int device);

// One problem's kernel, loaded and configured on one device: all of a launch that does not depend
// on where the data lies. Immutable, so any number of threads may use it. Needs no synchronisation
// and may be made while a stream captures a graph. `mapped`: for calls with a mapping, which have
// kernels of their own.
class PreparedLaunch;
std::shared_ptr<const PreparedLaunch> prepare_cuda(const Problem& problem,
                                                   const LaunchConfig& config, int device,
                                                   bool mapped = false);

// Enqueues one call on `stream`, a stream of the prepared device whichever is current; neither
// synchronises nor allocates. `workspace` holds config.workspace_bytes zeroed bytes (null when that
// is 0). The problem in `args` is not looked at again. The second is for calls with a mapping.
void topk_cuda(const TopKArgs& args, const PreparedLaunch& launch, void* workspace, void* stream);
void topk_cuda_mapped(const TopKArgs& args, const PreparedLaunch& launch, void* workspace,
                      void* stream);

}  // namespace tl_topk
