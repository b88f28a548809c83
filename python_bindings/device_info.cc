#include "device_info.h"

#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/reflection/registry.h>

#include <sstream>
#include <string>

#include "cuda/launch.h"
#include "cuda/memory.h"
#include "errors.h"

namespace tl_topk {

namespace ffi = tvm::ffi;

DeviceFacts DeviceInfoObj::facts() const {
  DeviceFacts facts;
  if (coresident_clusters.size() != facts.coresident_clusters.size()) {
    TVM_FFI_THROW(ValueError) << "device: expected coresident_clusters for sizes 1, 2, 4, 8 and 16"
                              << " (5 numbers), got " << coresident_clusters.size();
  }
  facts.compute_capability = static_cast<int>(compute_capability);
  facts.sms = static_cast<int>(sms);
  facts.shared_memory_per_block = shared_memory_per_block;
  facts.l2_bytes = l2_bytes;
  for (size_t i = 0; i < facts.coresident_clusters.size(); ++i) {
    facts.coresident_clusters[i] = static_cast<int>(coresident_clusters[i]);
  }
  return facts;
}

void DeviceInfoObj::reflect() {
  namespace refl = ffi::reflection;
  refl::ObjectDef<DeviceInfoObj>()
      .def_ro("device_id", &DeviceInfoObj::device_id, "CUDA's number of the device")
      .def_ro("name", &DeviceInfoObj::name)
      .def_ro("compute_capability", &DeviceInfoObj::compute_capability, "90 for a Hopper GPU")
      .def_ro("sms", &DeviceInfoObj::sms, "streaming multiprocessors")
      .def_ro("shared_memory_per_block", &DeviceInfoObj::shared_memory_per_block,
              "bytes, the opt-in limit")
      .def_ro("l2_bytes", &DeviceInfoObj::l2_bytes)
      .def_ro("max_cluster", &DeviceInfoObj::max_cluster, "blocks in the largest cluster")
      .def_ro("coresident_clusters", &DeviceInfoObj::coresident_clusters,
              "clusters of 1, 2, 4, 8, 16 blocks that fit on the GPU at once")
      .def_ro("built_architectures", &DeviceInfoObj::built_architectures,
              "what the library holds kernels for");
}

int64_t device_count() { return cuda_device_count(); }

const DeviceFacts& device_facts(int64_t device_id) {
  const int64_t count = device_count();
  if (built_with_cuda() && count == 0) {
    TVM_FFI_THROW(RuntimeError) << "no CUDA device or driver was found";
  }
  if (built_with_cuda() && (device_id < 0 || device_id >= count)) {
    TVM_FFI_THROW(ValueError) << "device_id: expected 0 to " << count - 1 << ", got " << device_id;
  }
  return with_ffi_errors(
      [&]() -> const DeviceFacts& { return query_device(static_cast<int>(device_id)); });
}

DeviceInfo device_info(int64_t device_id) {
  const DeviceFacts& facts = device_facts(device_id);
  auto info = ffi::make_object<DeviceInfoObj>();
  info->device_id = device_id;
  info->name = with_ffi_errors([&] { return device_name(static_cast<int>(device_id)); });
  info->compute_capability = facts.compute_capability;
  info->sms = facts.sms;
  info->shared_memory_per_block = facts.shared_memory_per_block;
  info->l2_bytes = facts.l2_bytes;
  for (size_t i = 0; i < kClusterSizes.size(); ++i) {
    info->coresident_clusters.push_back(facts.coresident_clusters[i]);
    if (facts.coresident_clusters[i] > 0) info->max_cluster = kClusterSizes[i];
  }
  info->built_architectures = architectures();
  return DeviceInfo(std::move(info));
}

void wait_for_device(int64_t device_id) {
  device_facts(device_id);
  with_ffi_errors([&] {
    wait_for_stream(static_cast<int>(device_id),
                    TVMFFIEnvGetStream(kDLCUDA, static_cast<int32_t>(device_id)));
  });
}

ffi::Array<ffi::String> architectures() {
  ffi::Array<ffi::String> names;
  std::istringstream stream(built_architectures());
  for (std::string name; std::getline(stream, name, ',');) names.push_back(name);
  return names;
}

}  // namespace tl_topk
