// Computes regressions and correlations for tests/python/test_downstream.py.
//   downstream_tool FILE
// FILE has safetensors, F64: x [N, D], labels [N], targets [N, K], c [P]. Prints JSON: coefficients
// [D + 1][P] and [D + 1][P][K] of the regressions with each c, and the correlations of the first
// two columns of x.

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <vector>

#include "lab/downstream/correlation.h"
#include "lab/downstream/logistic.h"
#include "lab/run/safetensors.h"

namespace planish::lab {
namespace {

at::Tensor Find(const SafetensorsFile& file, const char* name) {
  const StoredTensor* stored = file.Find(name);
  if (!stored || stored->dtype != "F64") {
    throw std::runtime_error(fmt::format("[downstream_tool] {} must be there in F64", name));
  }
  at::Tensor tensor = at::empty(stored->shape, at::kDouble);
  std::copy(stored->data.begin(), stored->data.end(), static_cast<std::byte*>(tensor.data_ptr()));
  return tensor;
}

std::vector<double> Numbers(const at::Tensor& t) {
  const at::Tensor flat = t.contiguous();
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

// Prints the fits of the data in the file.
void Run(const char* path) {
  const SafetensorsFile file = SafetensorsFile::Read(path);
  const at::Tensor x = Find(file, "x"), c = Find(file, "c");
  const FitOptions options{.tolerance = 1e-9};
  const at::Tensor all = at::ones({x.size(0), c.size(0)}, x.options());
  const std::vector<double> a = Numbers(x.select(1, 0)), b = Numbers(x.select(1, 1));
  const nlohmann::json result = {
      {"logistic", Numbers(FitLogistic(x, Find(file, "labels"), all, c, {}, options))},
      {"softmax", Numbers(FitSoftmax(x, Find(file, "targets"), c, options))},
      {"pearson", Pearson(a, b)},
      {"spearman", Spearman(a, b)}};
  fmt::print("{}\n", result.dump());
}

}  // namespace
}  // namespace planish::lab

int main(int argc, char** argv) try {
  if (argc != 2) {
    fmt::print(stderr, "usage: downstream_tool FILE\n");
    return 2;
  }
  planish::lab::Run(argv[1]);
  return 0;
} catch (const std::exception& e) {
  fmt::print(stderr, "{}\n", e.what());
  return 1;
}
