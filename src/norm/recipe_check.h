#ifndef PLANISH_SRC_NORM_RECIPE_CHECK_H_
#define PLANISH_SRC_NORM_RECIPE_CHECK_H_

#include <cstdint>
#include <initializer_list>

#include "src/base/check.h"
#include "src/norm/recipe.h"

// Checks of what a recipe asks for, of rows and of channels alike.
namespace planish::internal {

/// `length_name` numbers are normalised together, `length` of them, in `count` places.
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

/// Throws unless `arrays`, which belong to an affine output, are null or the norm has one.
inline void CheckAffine(const char* function, const Recipe& recipe,
                        std::initializer_list<Array> arrays) {
  if (recipe.output == Output::kAffine) return;
  for (const Array& array : arrays) {
    if (array.data != nullptr) {
      Fail(function, array.name, "be null for a norm without gain and bias", "an address");
    }
  }
}

/// Throws unless there is what backward reads of forward.
inline void CheckSaved(const char* function, const Recipe& recipe, const Array& x,
                       const Array& mean, const Array& mean_lo, const Array& rstd) {
  CheckNotNull(function, {rstd});
  if (recipe.output == Output::kIdentity && !recipe.via_scale) return;
  CheckNotNull(function, {x});
  if (recipe.centre) CheckNotNull(function, {mean, mean_lo});
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_RECIPE_CHECK_H_
