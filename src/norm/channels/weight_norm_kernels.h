#ifndef PLANISH_SRC_NORM_CHANNELS_WEIGHT_NORM_KERNELS_H_
#define PLANISH_SRC_NORM_CHANNELS_WEIGHT_NORM_KERNELS_H_

#include <cstdint>

#include "planish/types.h"

// Weight normalization of rows too narrow for ChannelPass: the values per row are computed in
// vectors of rows. For every element type, with the SIMD target in use. Arguments are not checked.
namespace planish::internal {

// --- Tuning constants (docs/tuning.md) ---

/// Columns below which rows are narrow.
inline constexpr int64_t kNarrowWeights = 64;

// --- End of tuning constants ---

template <class T>
struct WeightRows {
  using C = Compute<T>;
  int64_t rows = 0, cols = 0;  // 0 < cols < kNarrowWeights
  const T* v = nullptr;        // [rows, cols]
  const T* dw = nullptr;       // [rows, cols] read by WeightGradients only
  const C* g = nullptr;        // [rows]
  const C* norm = nullptr;     // [rows] read by WeightGradients only
  T* out = nullptr;            // [rows, cols] w or dv; may be v or dw; null: no dv
  C* norm_out = nullptr;       // [rows] written by NormalizeWeights; may be null
  C* dg = nullptr;             // [rows] written by WeightGradients; may be null
  bool use_nt_stores = false;
};

/// Computes w and the norms of rows [begin, end).
template <class T>
void NormalizeWeights(const WeightRows<T>& args, int64_t begin, int64_t end);

/// Computes dv and dg of rows [begin, end).
template <class T>
void WeightGradients(const WeightRows<T>& args, int64_t begin, int64_t end);

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_CHANNELS_WEIGHT_NORM_KERNELS_H_
