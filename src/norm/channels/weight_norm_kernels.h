#ifndef PLANISH_SRC_NORM_CHANNELS_WEIGHT_NORM_KERNELS_H_
#define PLANISH_SRC_NORM_CHANNELS_WEIGHT_NORM_KERNELS_H_

#include <cstdint>

#include "planish/types.h"
#include "planish/weight_norm.h"

// Weight normalization of rows too narrow for ChannelPass: the values per row are computed in
// vectors of rows. For every element type, with the SIMD target in use. Arguments are not checked.
namespace planish::internal {

// --- Tuning constants (docs/tuning.md) ---

/// Columns below which rows are narrow.
inline constexpr int64_t kNarrowWeights = 64;

// --- End of tuning constants ---

/// Computes w and the norms of rows [begin, end); 0 < cols < kNarrowWeights.
template <class T>
void NormalizeWeights(const WeightNormForwardArgs<T, Compute<T>>& args, int64_t begin, int64_t end,
                      bool use_nt_stores);

/// Computes dv and dg of rows [begin, end); 0 < cols < kNarrowWeights.
template <class T>
void WeightGradients(const WeightNormBackwardArgs<T, Compute<T>>& args, int64_t begin, int64_t end,
                     bool use_nt_stores);

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_CHANNELS_WEIGHT_NORM_KERNELS_H_
