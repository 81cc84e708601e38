#ifndef PLANISH_LAB_BENCH_METHODS_H_
#define PLANISH_LAB_BENCH_METHODS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "planish/norm.h"

namespace planish::bench {

/// The numbers that a norm normalises together.
enum class Over : uint8_t {
  kRow,       ///< a row's; there is one number of a channel in a sample
  kRows,      ///< a row's, and, less and less, those of all rows before it
  kChannel,   ///< a channel's, of all samples
  kPosition,  ///< those of all channels at one position of one sample
};

/// A norm that is measured. A new one is a line in methods.cc, one over other numbers a value of
/// Over, which Groups in reference.cc and MakePlanish know.
struct Method {
  const char* name;
  Over over;
  Norm norm;  ///< of Over::kRow, or the one over a row with the same equations
  bool gain;  ///< whether it has a gain and its gradient
  bool bias;  ///< whether it has a bias and its gradient
};

/// Whether x is a matrix to it, and not samples of channels of numbers.
inline bool IsOfRows(const Method& method) {
  return method.over == Over::kRow || method.over == Over::kRows;
}

/// Those of rows, or the others.
std::vector<std::string> MethodNames(bool rows);

/// Throws std::invalid_argument for a name that is none of MethodNames().
const Method& FindMethod(const std::string& name);

}  // namespace planish::bench

#endif  // PLANISH_LAB_BENCH_METHODS_H_
