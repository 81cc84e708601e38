#ifndef PLANISH_LAB_MODEL_DROPOUT_H_
#define PLANISH_LAB_MODEL_DROPOUT_H_

#include <ATen/core/Tensor.h>

namespace planish::lab {

/// Dropout (Srivastava et al. 2014): each number of x is 0 with probability `rate`, and else
/// divided by 1 - rate. x itself where not `training` or the rate is 0. Takes one number from the
/// default generator, whatever x's size; what it drops depends on that number and on the position
/// alone, so any number of threads gives the same. The rate is rounded to a multiple of 2^-16.
///
/// at::dropout on the CPU draws a number at a time, which takes as long as a matrix product of the
/// same rows with some hundred columns; this takes about a tenth of that.
at::Tensor Dropout(const at::Tensor& x, double rate, bool training);

/// residual + Dropout(x, rate, training), in one sweep.
at::Tensor AddDropout(const at::Tensor& residual, const at::Tensor& x, double rate, bool training);

}  // namespace planish::lab

#endif  // PLANISH_LAB_MODEL_DROPOUT_H_
