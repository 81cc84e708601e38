#ifndef PLANISH_SRC_NORM_RECIPE_H_
#define PLANISH_SRC_NORM_RECIPE_H_

#include <cstdint>
#include <string>

#include "planish/norm.h"

// Table of norms. Kernels and the reference read a Recipe; this file contains the only switch over
// norms.
namespace planish::internal {

enum class Output : uint8_t {
  kAffine,    ///< y = gain * xhat + bias
  kIdentity,  ///< y = xhat
  kAdaptive,  ///< y = scale * (1 - slope * xhat) * xhat; its first two factors are constant in
              ///< backward
};

enum class Deviation : uint8_t {
  kBiased,           ///< rstd = 1 / sqrt(sum(d^2) / cols + eps)
  kUnbiasedPlusEps,  ///< rstd = 1 / (sqrt(sum(d^2) / (cols - 1)) + eps)
};

struct Recipe {
  bool centre;     ///< the mean is subtracted; otherwise var is mean(x^2)
  bool via_mean;   ///< the gradient flows through the mean: a in docs/math.md
  bool via_scale;  ///< the gradient flows through rstd: b in docs/math.md
  Output output;
  Deviation deviation = Deviation::kBiased;
};

/// Returns the norm's recipe. Throws ArgumentError for an invalid value.
inline Recipe RecipeOf(Norm norm) {
  switch (norm) {
    case Norm::kLayer:
      return {true, true, true, Output::kAffine};
    case Norm::kLayerSimple:
      return {true, true, true, Output::kIdentity};
    case Norm::kDetach:
      return {true, false, false, Output::kIdentity};
    case Norm::kDetachMean:
      return {true, false, true, Output::kIdentity};
    case Norm::kDetachDeviation:
      return {true, true, false, Output::kIdentity};
    case Norm::kAda:
      return {true, true, true, Output::kAdaptive};
    case Norm::kAdaAsCoded:
      return {true, true, true, Output::kAdaptive, Deviation::kUnbiasedPlusEps};
    case Norm::kRms:
      return {false, false, true, Output::kAffine};
  }
  throw ArgumentError("[Norm] norm must be a value of planish::Norm, got " +
                      std::to_string(static_cast<int>(norm)));
}

/// Optional inputs of backward: those besides dy and rstd.
struct BackwardReads {
  bool x = true, mean = true;
};
constexpr BackwardReads ReadsOf(const Recipe& recipe) {
  const bool x = recipe.output != Output::kIdentity || recipe.via_scale;
  return {.x = x, .mean = x && recipe.centre};
}

/// Returns the recipe without gain and bias.
constexpr Recipe WithoutParams(Recipe recipe) {
  if (recipe.output == Output::kAffine) recipe.output = Output::kIdentity;
  return recipe;
}

/// The recipe and options of a call. C is the type of the arithmetic.
template <class C>
struct NormSettings {
  Recipe recipe;
  double eps = 0;
  C scale = 1, slope = 0;  ///< for Output::kAdaptive
};

template <class C, class Options>
NormSettings<C> SettingsOf(const Recipe& recipe, const Options& options) {
  return {recipe, options.eps, static_cast<C>(options.scale), static_cast<C>(options.slope)};
}

/// A norm, its name in operators and tests, and the function of planish/torch_norm.h that its error
/// messages name.
struct NormName {
  Norm norm;
  const char* name;
  const char* function = "row_norm";
};

/// All norms. The only table of their names.
inline constexpr NormName kNormNames[] = {
    {Norm::kLayer, "layer", "layer_norm"},
    {Norm::kLayerSimple, "layer_simple", "layer_norm_simple"},
    {Norm::kRms, "rms", "rms_norm"},
    {Norm::kDetach, "detach", "detach_norm"},
    {Norm::kDetachMean, "detach_mean", "detach_norm"},
    {Norm::kDetachDeviation, "detach_deviation", "detach_norm"},
    {Norm::kAda, "ada", "ada_norm"},
    {Norm::kAdaAsCoded, "ada_as_coded", "ada_norm"},
};

/// Returns the row of kNormNames. Throws ArgumentError for an invalid value.
inline const NormName& NamesOf(Norm norm) {
  RecipeOf(norm);
  const NormName* names = kNormNames;
  while (names->norm != norm) ++names;
  return *names;
}

/// Returns the name of a norm. Throws ArgumentError for an invalid value.
inline const char* NameOf(Norm norm) { return NamesOf(norm).name; }

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_RECIPE_H_
