#ifndef PLANISH_LAB_BENCH_METHODS_H_
#define PLANISH_LAB_BENCH_METHODS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "planish/norm.h"

namespace planish::bench {

/// Elements that a norm normalizes together.
enum class Over : uint8_t {
  kRow,       ///< the elements of one row
  kRows,      ///< one row and, with falling weights, all rows before it (online norms)
  kChannel,   ///< one channel of all samples
  kPosition,  ///< all channels at one position of one sample
};

/// Norm to measure. A new norm is a line in methods.cc; a new kind of statistics is a value of
/// Over, handled by Groups in reference.cc and MakePlanish.
struct Method {
  const char* name;
  Over over;
  Norm norm;  ///< of Over::kRow, or the norm over a row with the same equations
  bool gain;  ///< set if it has a gain and its gradient
  bool bias;  ///< set if it has a bias and its gradient
};

/// Returns true if the norm's x is a matrix, not samples of channels.
inline bool IsOfRows(const Method& method) {
  return method.over == Over::kRow || method.over == Over::kRows;
}

/// Returns the names of norms of rows, or of the others.
std::vector<std::string> MethodNames(bool rows);

/// Returns the norm called `name`. Throws std::invalid_argument if it is none of MethodNames().
const Method& FindMethod(const std::string& name);

}  // namespace planish::bench

#endif  // PLANISH_LAB_BENCH_METHODS_H_
