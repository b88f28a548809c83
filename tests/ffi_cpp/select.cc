// Selection from C++ through TVM FFI alone: no Python, no torch, no header of tl_topk.
//
//   select LIBRARY   (the path of libtl_topk.so)
//
// Loads the library, makes a plan, selects from an array in host memory and, where there is a GPU,
// from one in device memory, and compares both with std::partial_sort.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/accessor.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iostream>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "gpu_memory.h"

namespace ffi = tvm::ffi;

namespace {

constexpr int64_t kRows = 3;
constexpr int64_t kWidth = 50000;
constexpr int64_t kBest = 2048;

// A row-major matrix in memory that somebody else owns.
class Matrix {
 public:
  Matrix(void* data, DLDataType dtype, DLDevice device, int64_t columns) : shape_{kRows, columns} {
    tensor_ = {data, device, 2, dtype, shape_, nullptr, 0};
  }
  operator DLTensor*() { return &tensor_; }

 private:
  int64_t shape_[2];
  DLTensor tensor_;
};

struct Problem {
  std::vector<float> scores = std::vector<float>(kRows * kWidth);
  std::vector<int32_t> expected = std::vector<int32_t>(kRows * kBest);
};

// The best `kBest` of each row, best first, equal scores by lower index.
Problem make_problem() {
  Problem p;
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (float& x : p.scores) x = normal(random);
  std::vector<int32_t> order(kWidth);
  for (int64_t row = 0; row < kRows; ++row) {
    const float* x = p.scores.data() + row * kWidth;
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + kBest, order.end(),
                      [x](int32_t a, int32_t b) { return x[a] > x[b] || (x[a] == x[b] && a < b); });
    std::copy_n(order.begin(), kBest, p.expected.begin() + row * kBest);
  }
  return p;
}

bool report(const std::string& what, const Problem& problem, const std::vector<int32_t>& found) {
  const bool right = found == problem.expected;
  std::cout << what << ": " << (right ? "right" : "WRONG") << '\n';
  return right;
}

// Once with a plan of our own, once through the library's cache of plans.
bool select(ffi::Module& library, const std::string& device_type, DLDevice device,
            const Problem& problem, float* scores, int32_t* indices,
            const std::function<std::vector<int32_t>()>& fetch) {
  Matrix in(scores, {kDLFloat, 32, 1}, device, kWidth);
  Matrix out(indices, {kDLInt, 32, 1}, device, kBest);

  const ffi::Any plan = library->GetFunction("plan").value()(
      kRows, kWidth, kBest, "float32", "value", /*largest=*/true, /*values=*/false, device_type,
      device.device_id, /*threads=*/0, /*blocks_per_row=*/0);
  const auto method = [](const char* name) {
    return ffi::reflection::GetMethod("tl_topk.TopKPlan", name);
  };
  std::cout << method("explain")(plan).cast<std::string>() << '\n';
  method("run")(plan, static_cast<DLTensor*>(in), static_cast<DLTensor*>(out), nullptr, nullptr,
                nullptr, nullptr);
  const bool planned = report("plan.run, " + device_type, problem, fetch());

  const ffi::Function topk = ffi::Function::GetGlobalRequired("tl_topk.topk");
  topk(static_cast<DLTensor*>(in), kBest, static_cast<DLTensor*>(out), nullptr, nullptr, nullptr,
       /*largest=*/true, "value");
  return report("tl_topk.topk, " + device_type, problem, fetch()) && planned;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: select LIBRARY\n";
    return 2;
  }
  ffi::Module library = ffi::Module::LoadFromFile(argv[1]);
  Problem problem = make_problem();
  std::vector<int32_t> indices(kRows * kBest);

  bool right = select(library, "cpu", {kDLCPU, 0}, problem, problem.scores.data(), indices.data(),
                      [&] { return indices; });
  if (library->GetFunction("device_count").value()().cast<int64_t>() > 0) {
    Driver driver(0);
    int32_t* on_gpu = driver.upload(std::vector<int32_t>(kRows * kBest, -7));
    right &=
        select(library, "cuda", {kDLCUDA, 0}, problem, driver.upload(problem.scores), on_gpu, [&] {
          driver.download(indices, on_gpu);
          return indices;
        });
  }
  return right ? 0 : 1;
}
