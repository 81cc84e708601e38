#ifndef PLANISH_SRC_NORM_CHANNELS_WEIGHT_NORM_KERNELS_H_
#define PLANISH_SRC_NORM_CHANNELS_WEIGHT_NORM_KERNELS_H_

#include <cstdint>

#include "planish/types.h"

// Weight normalisation of rows that are too narrow to be channels of ChannelPass: their numbers
// are worked out in vectors of rows. For every element type and the instruction set in use. They
// check nothing.
namespace planish::internal {

/// Columns below which rows are narrow.
inline constexpr int64_t kNarrowWeights = 64;

template <class T>
struct WeightRows {
  using C = Compute<T>;
  int64_t rows = 0, cols = 0;  // cols > 0 and < kNarrowWeights
  const T* v = nullptr;        // [rows, cols]
  const T* dw = nullptr;       // likewise; WeightGradients alone reads it
  const C* g = nullptr;        // [rows]
  const C* norm = nullptr;     // [rows]; WeightGradients alone reads it
  T* out = nullptr;            // [rows, cols] w or dv; may be v or dw; null: no dv
  C* norm_out = nullptr;       // [rows] of NormaliseWeights; may be null
  C* dg = nullptr;             // [rows] of WeightGradients; may be null
  bool stream = false;
};

/// w and the norms of the rows [begin, end).
template <class T>
void NormaliseWeights(const WeightRows<T>& args, int64_t begin, int64_t end);

/// dv and dg of the rows [begin, end).
template <class T>
void WeightGradients(const WeightRows<T>& args, int64_t begin, int64_t end);

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_CHANNELS_WEIGHT_NORM_KERNELS_H_
