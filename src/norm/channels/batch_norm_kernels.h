#ifndef PLANISH_SRC_NORM_CHANNELS_BATCH_NORM_KERNELS_H_
#define PLANISH_SRC_NORM_CHANNELS_BATCH_NORM_KERNELS_H_

#include <cstdint>

#include "planish/types.h"

namespace planish::internal {

/// From the sums of `n` channels, of `count` numbers each, to what batch norm normalises them with.
/// Every array has a number for each channel.
template <class C>
struct BatchMoments {
  int64_t n = 0;
  double count = 0, eps = 0, momentum = 0;
  bool unbiased = false;          // the variance that is divided by
  const C* shift = nullptr;       // what the sums are about
  const double* first = nullptr;  // the sums, as SumColumns gives them
  const double* second = nullptr;
  const C* gain = nullptr;
  const C* bias = nullptr;
  C* mean = nullptr;  // saved, each of them unless null, and updated
  C* mean_lo = nullptr;
  C* rstd = nullptr;
  C* running_mean = nullptr;
  C* running_var = nullptr;
  C* numbers[3] = {};  // of ChannelMap::kNormalise
};

/// Sets careful[i] of the channels whose sums do not serve, for which nothing that is right is
/// saved, and nothing updated; returns whether there is one.
template <class T>
bool FinishBatch(const BatchMoments<Compute<T>>& args, bool* careful);

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_CHANNELS_BATCH_NORM_KERNELS_H_
