#ifndef PLANISH_SRC_NORM_SETS_H_
#define PLANISH_SRC_NORM_SETS_H_

#include <cstdint>

#include "src/norm/arguments.h"
#include "src/norm/recipe.h"

// Calls with several parameter sets, divided into calls with one.
namespace planish::internal {

/// Returns whether neighbouring rows use different parameter sets.
template <class Args>
bool IsInterleaved(const Args& args) {
  return args.sets > 1 && args.set_rows == 1;
}

/// Returns the call for the rows that use parameter set `set`, which then is its only set. `args`
/// is a checked call; Args can derive from NormForwardArgs or NormBackwardArgs.
template <class Args>
Args SetOf(const Args& args, const Recipe& recipe, int64_t set) {
  if (args.sets == 1) return args;
  const bool interleaved = IsInterleaved(args);  // the next row of a set is `sets` rows away
  Args one = args;
  one.rows = args.rows / args.sets;
  one.sets = 1;
  one.set_rows = 0;
  VisitArguments(one, recipe, [&](const auto& argument) {
    auto& array = one.*argument.member;
    if (argument.stride == nullptr) {
      if (array != nullptr) array += set * argument.extent.rows * argument.extent.cols;
      return;
    }
    int64_t& stride = one.*argument.stride;
    if (array != nullptr) array += set * (interleaved ? stride : one.rows * stride);
    if (interleaved) stride *= args.sets;
  });
  return one;
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_SETS_H_
