#include "topk.h"

#include <tvm/ffi/error.h>

#include <list>
#include <mutex>
#include <optional>
#include <tuple>

#include "parse.h"

namespace tl_topk {
namespace {

namespace ffi = tvm::ffi;

//                      rows     width    k        dtype  order  largest values device
using Key = std::tuple<int64_t, int64_t, int64_t, Dtype, Order, bool, bool, int32_t, int32_t>;

// The most recent problems, newest first. Callers cycle through few, so a list beats a map.
class PlanCache {
 public:
  template <typename Make>
  TopKPlan find_or_make(const Key& key, Make&& make) {
    if (std::optional<TopKPlan> found = find(key)) return *found;
    TopKPlan plan = make();  // without the lock: it may ask the GPU
    const std::lock_guard<std::mutex> lock(mutex_);
    entries_.push_front({key, plan});
    if (entries_.size() > kCapacity) entries_.pop_back();
    return plan;
  }

 private:
  static constexpr size_t kCapacity = 64;
  struct Entry {
    Key key;
    TopKPlan plan;
  };

  std::optional<TopKPlan> find(const Key& key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (entry->key == key) {
        entries_.splice(entries_.begin(), entries_, entry);
        return entry->plan;
      }
    }
    return std::nullopt;
  }

  std::mutex mutex_;
  std::list<Entry> entries_;
};

const char* device_name_of(const DLTensor& scores) {
  if (scores.device.device_type == kDLCPU) return "cpu";
  if (scores.device.device_type == kDLCUDA) return "cuda";
  TVM_FFI_THROW(ValueError) << "scores: expected on the CPU or a CUDA device, got DLPack type "
                            << scores.device.device_type;
  TVM_FFI_UNREACHABLE();
}

}  // namespace

void topk(DLTensor* scores, int64_t k, DLTensor* indices, OptionalTensor values,
          OptionalTensor lengths, OptionalTensor row_starts, bool largest,
          const ffi::String& order) {
  if (scores->ndim != 1 && scores->ndim != 2) {
    TVM_FFI_THROW(ValueError) << "scores: expected shape (length,) or (rows, length), got "
                              << scores->ndim << " dimensions";
  }
  const int64_t rows = scores->ndim == 1 ? 1 : scores->shape[0];
  const int64_t width = scores->shape[scores->ndim - 1];
  const Dtype dtype = parse_dtype(scores->dtype);
  const char* device = device_name_of(*scores);
  const Key key{rows,
                width,
                k,
                dtype,
                parse_order(order),
                largest,
                values.has_value(),
                scores->device.device_type,
                scores->device.device_id};
  // Never destroyed: when a process ends, the driver may be gone before its plans.
  static PlanCache& cache = *new PlanCache;
  const TopKPlan plan = cache.find_or_make(key, [&] {
    return TopKPlan(ffi::make_object<TopKPlanObj>(rows, width, k, dtype_name(dtype), order, largest,
                                                  values.has_value(), device,
                                                  scores->device.device_id, /*threads=*/0,
                                                  /*blocks_per_row=*/0));
  });
  plan->run_stateless({scores, indices, values.value_or(nullptr), lengths.value_or(nullptr),
                       row_starts.value_or(nullptr), nullptr});
}

}  // namespace tl_topk
