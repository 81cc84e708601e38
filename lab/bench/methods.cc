#include "lab/bench/methods.h"

#include <algorithm>
#include <numeric>
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
      {.name = "rms-cast",
       .over = Over::kRow,
       .norm = Norm::kRms,
       .gain = true,
       .bias = false,
       .cast = true},
      {.name = "layer-gated",
       .over = Over::kRow,
       .norm = Norm::kLayer,
       .gain = true,
       .bias = true,
       .gate = Gate::kAfter},
      {.name = "layer-of-gated",
       .over = Over::kRow,
       .norm = Norm::kLayer,
       .gain = true,
       .bias = true,
       .gate = Gate::kBefore},
      {.name = "rms-gated",
       .over = Over::kRow,
       .norm = Norm::kRms,
       .gain = true,
       .bias = false,
       .gate = Gate::kAfter},
      {.name = "rms-of-gated",
       .over = Over::kRow,
       .norm = Norm::kRms,
       .gain = true,
       .bias = false,
       .gate = Gate::kBefore},
      {.name = "layer-heads",
       .over = Over::kHead,
       .norm = Norm::kLayer,
       .gain = true,
       .bias = true,
       .max_groups = 8},
      {.name = "rms-heads",
       .over = Over::kHead,
       .norm = Norm::kRms,
       .gain = true,
       .bias = false,
       .max_groups = 8},
      {.name = "dyt", .over = Over::kElement, .norm = Norm::kLayer, .gain = true, .bias = true},
      {.name = "derf",
       .over = Over::kElement,
       .norm = Norm::kLayer,
       .gain = true,
       .bias = true,
       .function = Pointwise::kErf},
      {.name = "online", .over = Over::kRows, .norm = Norm::kLayer, .gain = true, .bias = true},
      {.name = "batch", .over = Over::kChannel, .norm = Norm::kLayer, .gain = true, .bias = true},
      {.name = "layer-channels",
       .over = Over::kPosition,
       .norm = Norm::kLayer,
       .gain = true,
       .bias = true},
      {.name = "group",
       .over = Over::kGroup,
       .norm = Norm::kLayer,
       .gain = true,
       .bias = true,
       .max_groups = 32},
      {.name = "group-channels-last",
       .over = Over::kGroup,
       .norm = Norm::kLayer,
       .gain = true,
       .bias = true,
       .channels_last = true,
       .max_groups = 32},
      {.name = "instance", .over = Over::kGroup, .norm = Norm::kLayer, .gain = true, .bias = true},
      {.name = "instance-channels-last",
       .over = Over::kGroup,
       .norm = Norm::kLayer,
       .gain = true,
       .bias = true,
       .channels_last = true},
  };
  return methods;
}

}  // namespace

int64_t GroupsOf(const Method& method, const Case& c) {
  if (method.over != Over::kHead && method.over != Over::kGroup) return 1;
  return method.max_groups == 0 ? c.cols : std::gcd(method.max_groups, c.cols);
}

int64_t ArrayCount(const Method& method, Direction direction) {
  const bool gated = method.gate != Gate::kNone;
  return direction == Direction::kForward ? (gated ? 3 : 2) : (gated ? 5 : 3);
}

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
