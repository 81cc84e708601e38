#include "lab/bench/methods.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "lab/bench/contestants.h"

namespace planish::bench {

namespace {

const std::vector<Method>& Methods() {
  static const std::vector<Method> methods = {
      {.name = "layer", .over = Over::kRow, .norm = Norm::kLayer, .gain = true, .bias = true},
      {.name = "layer-simple",
       .over = Over::kRow,
       .norm = Norm::kLayerSimple,
       .gain = false,
       .bias = false},
      {.name = "detach", .over = Over::kRow, .norm = Norm::kDetach, .gain = false, .bias = false},
      {.name = "detach-mean",
       .over = Over::kRow,
       .norm = Norm::kDetachMean,
       .gain = false,
       .bias = false},
      {.name = "detach-deviation",
       .over = Over::kRow,
       .norm = Norm::kDetachDeviation,
       .gain = false,
       .bias = false},
      {.name = "ada", .over = Over::kRow, .norm = Norm::kAda, .gain = false, .bias = false},
      {.name = "ada-as-coded",
       .over = Over::kRow,
       .norm = Norm::kAdaAsCoded,
       .gain = false,
       .bias = false},
      {.name = "rms", .over = Over::kRow, .norm = Norm::kRms, .gain = true, .bias = false},
      {.name = "online", .over = Over::kRows, .norm = Norm::kLayer, .gain = true, .bias = true},
      {.name = "batch", .over = Over::kChannel, .norm = Norm::kLayer, .gain = true, .bias = true},
      {.name = "layer-channels",
       .over = Over::kPosition,
       .norm = Norm::kLayer,
       .gain = true,
       .bias = true},
  };
  return methods;
}

}  // namespace

std::vector<std::string> MethodNames() {
  std::vector<std::string> names;
  for (const Method& method : Methods()) names.emplace_back(method.name);
  return names;
}

std::vector<std::string> MethodNames(bool rows) {
  std::vector<std::string> names;
  for (const Method& method : Methods()) {
    if (IsOfRows(method) == rows) names.emplace_back(method.name);
  }
  return names;
}

const Method& FindMethod(const std::string& name) {
  const auto method =
      std::ranges::find_if(Methods(), [&](const Method& m) { return m.name == name; });
  if (method != Methods().end()) return *method;
  std::string names;
  for (const Method& m : Methods()) names += (names.empty() ? "" : ", ") + std::string(m.name);
  throw std::invalid_argument("[FindMethod] method must be one of " + names + ", got \"" + name +
                              "\"");
}

}  // namespace planish::bench
