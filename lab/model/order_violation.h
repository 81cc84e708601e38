#ifndef PLANISH_LAB_MODEL_ORDER_VIOLATION_H_
#define PLANISH_LAB_MODEL_ORDER_VIOLATION_H_

#include <ATen/core/Tensor.h>

namespace planish::lab {

/// Returns the order violations of the rows of u [N, W] and v [M, W] (Vendrov et al. 2016, Eq. 2):
///   e[i, j] = sum_k max(0, u[i, k] - v[j, k])^2.
/// u and v are float or double. Allocates no tensor [N, M, W]. First derivatives only. Results do
/// not depend on the number of threads.
at::Tensor OrderViolation(const at::Tensor& u, const at::Tensor& v);

}  // namespace planish::lab

#endif  // PLANISH_LAB_MODEL_ORDER_VIOLATION_H_
