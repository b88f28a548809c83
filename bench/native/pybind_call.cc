// The same launch behind pybind11, as extensions without TVM FFI have it: raw pointers and a
// stream.
#include <pybind11/pybind11.h>

#include <cstdint>

namespace {

using Launch = void (*)(const void* scores, int64_t width, int32_t* indices, int64_t k,
                        void* values, void* stream);

Launch launch = nullptr;

void run(uintptr_t scores, int64_t width, uintptr_t indices, int64_t k, uintptr_t values,
         uintptr_t stream) {
  const pybind11::gil_scoped_release released;
  launch(reinterpret_cast<const void*>(scores), width, reinterpret_cast<int32_t*>(indices), k,
         reinterpret_cast<void*>(values), reinterpret_cast<void*>(stream));
}

}  // namespace

PYBIND11_MODULE(tl_topk_pybind_call, m) {
  m.def("use", [](uintptr_t address) { launch = reinterpret_cast<Launch>(address); });
  m.def("run", &run);
}
