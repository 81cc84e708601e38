#ifndef PLANISH_TORCH_NORM_SPEC_H_
#define PLANISH_TORCH_NORM_SPEC_H_

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cmath>
#include <cstdint>

#include "planish/norm.h"
#include "src/norm/recipe.h"
#include "torch/base/core.h"

// The settings and results of a call of norm_forward or norm_backward.
namespace planish {

/// The dimensions that a group of elements with common statistics spans. The operators take the
/// value as an integer.
enum class Over : uint8_t {
  kRow,       ///< the last dimension
  kChannels,  ///< dimension 1
  kBatch,     ///< all but dimension 1: batch norm in training
};

struct NormSpec {
  Norm norm = Norm::kLayer;
  Over over = Over::kRow;
  double eps = 1e-5;
  double scale = 1;       ///< AdaNorm's C
  double slope = 0.1;     ///< AdaNorm's k
  bool unbiased = false;  ///< normalize by batch norm's unbiased variance
  // Only for gated_norm_forward and gated_norm_backward, which are over rows.
  bool gate_before_norm = false;    ///< the gate multiplies x, not the norm's output
  bool cast_before_weight = false;  ///< round xhat to x's type before the product with the weight
};

/// The results of norm_forward. `statistics` is undefined unless they are saved.
struct NormOutputs {
  at::Tensor y, statistics;
};

/// The results of a norm's backward, each undefined unless it is requested.
struct NormGradients {
  at::Tensor dx, dweight, dbias;
};

using internal::NameOf;

inline bool IsAda(Norm norm) {
  return internal::RecipeOf(norm).output == internal::Output::kAdaptive;
}
inline bool IsAffine(Norm norm) {
  return internal::RecipeOf(norm).output == internal::Output::kAffine;
}
/// Returns whether the mean is subtracted.
inline bool IsCentered(Norm norm) { return internal::RecipeOf(norm).centre; }
/// Returns whether gradients pass through the mean (a in docs/math.md).
inline bool ViaMean(Norm norm) { return internal::RecipeOf(norm).via_mean; }
/// Returns whether gradients pass through the standard deviation (b in docs/math.md).
inline bool ViaDeviation(Norm norm) { return internal::RecipeOf(norm).via_scale; }
/// Returns whether eps is added to the unbiased standard deviation, in place of the variance.
inline bool AddsEpsToDeviation(Norm norm) {
  return internal::RecipeOf(norm).deviation == internal::Deviation::kUnbiasedPlusEps;
}

/// Returns the name of the function that users call, for errors.
inline const char* FunctionOf(const NormSpec& spec) {
  if (spec.over == Over::kBatch) return "batch_norm";
  if (spec.over == Over::kChannels) return "channel_layer_norm";
  return internal::NamesOf(spec.norm).function;
}

/// Returns the dimension of x that weight and bias are along.
inline int64_t FeatureDim(const NormSpec& spec, const at::Tensor& x) {
  return spec.over == Over::kRow ? x.dim() - 1 : 1;
}

/// Returns the number of saved statistics for each group: mean, mean_lo (the rounding error of the
/// mean), rstd and, for batch norm, the unbiased variance. Each is one row of the tensor.
inline int64_t StatisticsRows(const NormSpec& spec) { return spec.over == Over::kBatch ? 4 : 3; }

/// Returns the sizes of the statistics tensor: StatisticsRows, then the dimensions of x that are
/// not reduced. These are not flattened, so that a tensor subclass can shard the statistics like x.
inline c10::SmallVector<c10::SymInt, 5> StatisticsSizes(const NormSpec& spec, const at::Tensor& x) {
  c10::SmallVector<c10::SymInt, 5> sizes = {StatisticsRows(spec)};
  const int64_t feature = FeatureDim(spec, x);
  for (int64_t d = 0; d < x.dim(); ++d) {
    if ((d == feature) == (spec.over == Over::kBatch)) sizes.push_back(x.sym_size(d));
  }
  return sizes;
}

/// Returns the memory format of outputs: channels-last if x is, otherwise contiguous. Rows are
/// contiguous.
inline at::MemoryFormat FormatOf(const NormSpec& spec, const at::Tensor& x) {
  return spec.over == Over::kRow ? at::MemoryFormat::Contiguous : x.suggest_memory_format();
}

/// x in FormatOf(x) as an array [outer, features, inner]. inner is 1 for rows and in channels-last
/// format.
struct Layout {
  int64_t outer = 1, features = 1, inner = 1;
};

inline Layout LayoutOf(const NormSpec& spec, const at::Tensor& x) {
  Layout layout;
  const int64_t feature = FeatureDim(spec, x);
  layout.features = x.size(feature);
  for (int64_t d = 0; d < feature; ++d) layout.outer *= x.size(d);
  for (int64_t d = feature + 1; d < x.dim(); ++d) layout.inner *= x.size(d);
  if (FormatOf(spec, x) != at::MemoryFormat::Contiguous) {
    layout.outer *= layout.inner;
    layout.inner = 1;
  }
  return layout;
}

}  // namespace planish

#endif  // PLANISH_TORCH_NORM_SPEC_H_
