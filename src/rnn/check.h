#ifndef PLANISH_SRC_RNN_CHECK_H_
#define PLANISH_SRC_RNN_CHECK_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "planish/rnn.h"
#include "planish/types.h"
#include "src/base/check.h"
#include "src/rnn/arguments.h"
#include "src/rnn/cell.h"

// Argument checks of recurrent layers, for CPU and GPU.
namespace planish::internal {

/// Checks the type of packed weights.
template <class T>
void CheckWeightType(const char* function, WeightType type, bool backward) {
  if (type == WeightType::kFull) return;
  const auto i = static_cast<size_t>(type);
  if (i >= kWeightTypes.size()) {
    Fail(function, "weight_type", "be a WeightType", std::to_string(i));
  }
  const char* const name = kWeightTypes[i].name;
  if (!std::is_same_v<T, float>) {
    Fail(function, "weight_type", "be full for a layer in double", name);
  }
  if (backward) Fail(function, "weight_type", "be full with backward", name);
}

/// Checks that each size is in its range, and that the byte size of every array fits a
/// pointer. Arguments and workspace each have at most the size of `arrays` arrays. Such an array
/// has T * B * max(I, P) or P * max(I, P) elements, where P is H rounded up to a multiple of
/// `units`.
template <class T>
void CheckRnnShape(const char* function, const CellRecipe& recipe, const RnnShape& shape,
                   int64_t arrays, int64_t units) {
  const auto at_least = [&](const char* name, int64_t size, int64_t minimum) {
    if (size < minimum) {
      Fail(function, name, "be at least " + std::to_string(minimum), std::to_string(size));
    }
  };
  at_least("time", shape.time, 0);
  at_least("batch", shape.batch, 0);
  at_least("inputs", shape.inputs, 1);
  at_least("hidden", shape.hidden, 1);
  at_least("projected", shape.projected, 0);
  if (shape.projected > 0 && !recipe.is_lstm()) {
    Fail(function, "projected", "be 0 for a cell without c", std::to_string(shape.projected));
  }
  at_least("heads", shape.heads, 1);
  if (shape.hidden % shape.heads != 0) {
    Fail(function, "heads", "divide hidden, " + std::to_string(shape.hidden),
         std::to_string(shape.heads));
  }
  if (shape.projected > 0 && shape.heads > 1) {
    Fail(function, "heads", "be 1 with projected", std::to_string(shape.heads));
  }
  if (shape.projected >= shape.hidden) {
    Fail(function, "projected", "be less than hidden, " + std::to_string(shape.hidden),
         std::to_string(shape.projected));
  }
  const int64_t max_count =
      std::numeric_limits<int64_t>::max() / static_cast<int64_t>(sizeof(T)) / arrays;
  const int64_t width = std::max(shape.inputs, shape.hidden);
  const int64_t padded =
      shape.hidden > max_count ? max_count : (shape.hidden + units - 1) / units * units;
  const int64_t padded_width = std::max(width, padded);
  const int64_t steps = std::max<int64_t>(1, shape.time), batch = std::max<int64_t>(1, shape.batch);
  if (padded_width > max_count / steps / batch) {
    Fail(function, "time * batch * max(inputs, hidden)", "be at most " + std::to_string(max_count),
         std::to_string(shape.time) + " * " + std::to_string(shape.batch) + " * " +
             std::to_string(width));
  }
  if (padded_width > max_count / padded) {
    Fail(function, "hidden * max(inputs, hidden)", "be at most " + std::to_string(max_count),
         std::to_string(shape.hidden) + " * " + std::to_string(width));
  }
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_RNN_CHECK_H_
