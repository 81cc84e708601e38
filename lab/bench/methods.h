#ifndef PLANISH_LAB_BENCH_METHODS_H_
#define PLANISH_LAB_BENCH_METHODS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "lab/bench/case.h"
#include "planish/norm.h"
#include "planish/pointwise_norm.h"

namespace planish::bench {

/// Elements that a norm normalizes together.
enum class Over : uint8_t {
  kRow,       ///< the elements of one row
  kRows,      ///< one row and, with falling weights, all rows before it (online norms)
  kChannel,   ///< one channel of all samples
  kPosition,  ///< all channels at one position of one sample
  kHead,      ///< one of the equal parts of a row, which have their own gains and biases
  kGroup,     ///< adjacent channels of one sample
  kElement,   ///< nothing: a function of single elements in place of a norm
};

/// Where a norm is multiplied by silu(gate).
enum class Gate : uint8_t { kNone, kAfter, kBefore };

/// Norm to measure. A new norm is a line in methods.cc; a new kind of statistics is a value of
/// Over, handled by Groups in reference.cc, MakePlanish and, if PyTorch has it, MakeAten.
struct Method {
  const char* name;
  Over over;
  Norm norm;  ///< of Over::kRow, or the norm over a row with the same equations
  bool gain;  ///< set if it has a gain and its gradient
  bool bias;  ///< set if it has a bias and its gradient
  Gate gate = Gate::kNone;
  bool cast = false;           ///< set to round 16-bit types before the product with the gain
  bool channels_last = false;  ///< of Over::kGroup: x is [samples, spatial, channels]
  int64_t max_groups = 0;      ///< of Over::kHead and kGroup; 0: one for each channel
  Pointwise function = Pointwise::kTanh;  ///< of Over::kElement
};

/// Returns the heads of a row or the groups of a sample.
int64_t GroupsOf(const Method& method, const Case& c);

/// Returns how many arrays of the size of x a norm must read and write: x and y, or x, dy and dx,
/// and those of a gate.
int64_t ArrayCount(const Method& method, Direction direction);

/// Returns true if the norm's x is a matrix, not samples of channels.
inline bool IsOfRows(const Method& method) {
  return method.over == Over::kRow || method.over == Over::kRows || method.over == Over::kHead ||
         method.over == Over::kElement;
}

/// Returns the names of norms of rows, or of the others.
std::vector<std::string> MethodNames(bool rows);

/// Returns the norm called `name`. Throws std::invalid_argument if it is none of MethodNames().
const Method& FindMethod(const std::string& name);

}  // namespace planish::bench

#endif  // PLANISH_LAB_BENCH_METHODS_H_
