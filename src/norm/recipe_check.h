#ifndef PLANISH_SRC_NORM_RECIPE_CHECK_H_
#define PLANISH_SRC_NORM_RECIPE_CHECK_H_

#include <cstdint>
#include <initializer_list>

#include "src/base/check.h"
#include "src/norm/recipe.h"

// Argument checks that depend on the recipe, for rows and channels.
namespace planish::internal {

/// Checks the options. `length_name` is the size that is normalized over, `length` its value, and
/// `count` the number of such groups.
template <class Options>
void CheckOptions(const char* function, const Recipe& recipe, const Options& options,
                  const char* length_name, int64_t length, int64_t count) {
  CheckEps(function, options.eps);
  CheckFinite(function, "scale", options.scale);
  CheckFinite(function, "slope", options.slope);
  if (recipe.deviation == Deviation::kUnbiasedPlusEps && length == 1 && count > 0) {
    Fail(function, length_name, "be at least 2 for a norm with the unbiased deviation", "1");
  }
}

/// Throws unless the norm has gain and bias or all `arrays` are null.
inline void CheckAffine(const char* function, const Recipe& recipe,
                        std::initializer_list<Array> arrays) {
  if (recipe.output == Output::kAffine) return;
  for (const Array& array : arrays) {
    if (array.data != nullptr) {
      Fail(function, array.name, "be null for a norm without gain and bias", "an address");
    }
  }
}

/// Throws unless the saved arrays that backward reads are given.
inline void CheckSaved(const char* function, const Recipe& recipe, const Array& x,
                       const Array& mean, const Array& mean_lo, const Array& rstd) {
  CheckNotNull(function, {rstd});
  if (recipe.output == Output::kIdentity && !recipe.via_scale) return;
  CheckNotNull(function, {x});
  if (recipe.centre) CheckNotNull(function, {mean, mean_lo});
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_RECIPE_CHECK_H_
