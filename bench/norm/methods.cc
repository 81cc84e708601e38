#include "bench/norm/methods.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/norm/contestants.h"

namespace planish::bench {

namespace {

const std::vector<Method>& Methods() {
  static const std::vector<Method> methods = {
      {.name = "layer", .norm = Norm::kLayer, .gain = true, .bias = true},
      {.name = "layer-simple", .norm = Norm::kLayerSimple, .gain = false, .bias = false},
      {.name = "detach", .norm = Norm::kDetach, .gain = false, .bias = false},
      {.name = "detach-mean", .norm = Norm::kDetachMean, .gain = false, .bias = false},
      {.name = "detach-deviation", .norm = Norm::kDetachDeviation, .gain = false, .bias = false},
      {.name = "ada", .norm = Norm::kAda, .gain = false, .bias = false},
      {.name = "ada-as-coded", .norm = Norm::kAdaAsCoded, .gain = false, .bias = false},
      {.name = "rms", .norm = Norm::kRms, .gain = true, .bias = false},
  };
  return methods;
}

}  // namespace

std::vector<std::string> MethodNames() {
  std::vector<std::string> names;
  for (const Method& method : Methods()) names.emplace_back(method.name);
  return names;
}

const Method& FindMethod(const std::string& name) {
  const auto method =
      std::ranges::find_if(Methods(), [&](const Method& m) { return m.name == name; });
  if (method != Methods().end()) return *method;
  std::string names;
  for (const Method& m : Methods()) names += (names.empty() ? "" : ", ") + std::string(m.name);
  throw std::invalid_argument("[FindMethod] method must be one of " + names + " but has \"" + name +
                              "\"");
}

}  // namespace planish::bench
