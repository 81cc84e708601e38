#ifndef PLANISH_SRC_NORM_CHANNELS_BATCH_NORM_KERNELS_H_
#define PLANISH_SRC_NORM_CHANNELS_BATCH_NORM_KERNELS_H_

#include <cstdint>

#include "planish/types.h"

namespace planish::internal {

/// Arguments of FinishBatch for `n` channels of `count` elements each. Every array has one element
/// for each channel.
template <class C>
struct BatchMoments {
  int64_t n = 0;
  double count = 0, eps = 0, momentum = 0;
  bool unbiased = false;          // divides by the unbiased variance
  const C* shift = nullptr;       // value that the sums are about
  const double* first = nullptr;  // sums of SumColumns
  const double* second = nullptr;
  const C* gain = nullptr;
  const C* bias = nullptr;
  C* mean = nullptr;  // saved unless null, like the next two
  C* mean_lo = nullptr;
  C* rstd = nullptr;
  C* running_mean = nullptr;
  C* running_var = nullptr;
  C* parameters[3] = {};  // parameters of ChannelMap::kNormalize
};

/// Computes the statistics, running estimates and map parameters of channels from their sums. Sets
/// careful[i] for channels whose sums are too inaccurate: their saved values are wrong and their
/// running estimates unchanged. Returns whether there is one.
template <class T>
bool FinishBatch(const BatchMoments<Compute<T>>& args, bool* careful);

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_CHANNELS_BATCH_NORM_KERNELS_H_
