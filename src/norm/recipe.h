#ifndef PLANISH_SRC_NORM_RECIPE_H_
#define PLANISH_SRC_NORM_RECIPE_H_

#include <cstdint>
#include <string>
#include <utility>

#include "planish/norm.h"

// The table of norms. A norm is data: kernels and reference take a Recipe as template parameter, so
// that nothing is decided inside a row, and this file holds the only switch over norms.
namespace planish::internal {

enum class Output : uint8_t {
  kAffine,    ///< y = gain * xhat + bias
  kIdentity,  ///< y = xhat
};

struct Recipe {
  bool centre;     ///< whether the mean is subtracted; if not, var is mean(x^2)
  bool via_mean;   ///< whether the gradient flows through the mean: a in docs/math.md
  bool via_scale;  ///< whether the gradient flows through rstd: b in docs/math.md
  Output output;
};

inline constexpr Recipe kLayerNorm{
    .centre = true, .via_mean = true, .via_scale = true, .output = Output::kAffine};
inline constexpr Recipe kLayerNormSimple{
    .centre = true, .via_mean = true, .via_scale = true, .output = Output::kIdentity};

/// Calls f.operator()<recipe>() for the norm's recipe. Throws Error for a value that is no norm.
template <class F>
decltype(auto) Visit(Norm norm, F&& f) {
  switch (norm) {
    case Norm::kLayer:
      return std::forward<F>(f).template operator()<kLayerNorm>();
    case Norm::kLayerSimple:
      return std::forward<F>(f).template operator()<kLayerNormSimple>();
  }
  throw Error("[Norm] norm must be a value of planish::Norm but has " +
              std::to_string(static_cast<int>(norm)));
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_RECIPE_H_
