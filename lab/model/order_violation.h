#ifndef PLANISH_LAB_MODEL_ORDER_VIOLATION_H_
#define PLANISH_LAB_MODEL_ORDER_VIOLATION_H_

#include <ATen/core/Tensor.h>

namespace planish::lab {

/// Returns the order violation of each u below each v (Vendrov et al. 2016, "Order-embeddings of
/// images and language", Eq. 2): u [N, W] and v [M, W], float or double, give e [N, M],
///
///   e[i, j] = sum_k max(0, u[i, k] - v[j, k])^2.
///
/// Allocates no tensor [N, M, W]. First derivatives only. The same bits for any number of threads.
at::Tensor OrderViolation(const at::Tensor& u, const at::Tensor& v);

}  // namespace planish::lab

#endif  // PLANISH_LAB_MODEL_ORDER_VIOLATION_H_
