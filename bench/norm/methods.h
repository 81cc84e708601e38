#ifndef PLANISH_BENCH_NORM_METHODS_H_
#define PLANISH_BENCH_NORM_METHODS_H_

#include <string>

#include "planish/norm.h"

namespace planish::bench {

/// A norm over rows that is measured. A new one is a line in methods.cc.
struct Method {
  const char* name;
  Norm norm;
  bool gain;  ///< whether it has a gain and its gradient
  bool bias;  ///< whether it has a bias and its gradient
};

/// Throws std::invalid_argument for a name that is none of MethodNames().
const Method& FindMethod(const std::string& name);

}  // namespace planish::bench

#endif  // PLANISH_BENCH_NORM_METHODS_H_
