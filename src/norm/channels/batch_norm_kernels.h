#ifndef PLANISH_SRC_NORM_CHANNELS_BATCH_NORM_KERNELS_H_
#define PLANISH_SRC_NORM_CHANNELS_BATCH_NORM_KERNELS_H_

#include <cstdint>

#include "planish/batch_norm.h"
#include "planish/types.h"

namespace planish::internal {

/// A call of BatchNormForward, with channels [begin, begin + n) of it for FinishBatch. Their arrays
/// below have n elements.
template <class T>
struct BatchStatistics : BatchNormForwardArgs<T, Compute<T>> {
  using C = Compute<T>;
  double count = 0, eps = 0, momentum = 0;  ///< count: elements of a channel
  bool unbiased = false;                    ///< divides by the unbiased variance
  int64_t begin = 0, n = 0;
  const C* shift = nullptr;       ///< origin of the sums
  const double* first = nullptr;  ///< sums of SumColumns
  const double* second = nullptr;
  C* parameters[3] = {};  ///< coefficients of ChannelMap::kNormalize
};

/// Computes the statistics, running estimates and coefficients of channels from their sums. Sets
/// two_pass[i] for channels whose sums are too inaccurate: their saved values are wrong and their
/// running estimates unchanged. Returns whether any two_pass[i] is set.
template <class T>
bool FinishBatch(const BatchStatistics<T>& args, bool* two_pass);

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_CHANNELS_BATCH_NORM_KERNELS_H_
