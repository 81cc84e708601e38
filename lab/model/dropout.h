#ifndef PLANISH_LAB_MODEL_DROPOUT_H_
#define PLANISH_LAB_MODEL_DROPOUT_H_

#include <ATen/core/Tensor.h>

namespace planish::lab {

/// Returns dropout of x (Srivastava et al. 2014): each element is 0 with probability `rate`,
/// rounded to a multiple of 2^-16, else divided by 1 - rate. Returns x itself if not `training` or
/// if the rate is 0. Draws one value from the default generator for any size. An element's mask
/// depends only on that value and the position, so any number of threads gives the same result.
at::Tensor Dropout(const at::Tensor& x, double rate, bool training);

/// Returns residual + Dropout(x, rate, training) in one pass.
at::Tensor AddDropout(const at::Tensor& residual, const at::Tensor& x, double rate, bool training);

}  // namespace planish::lab

#endif  // PLANISH_LAB_MODEL_DROPOUT_H_
