#ifndef PLANISH_LAB_DOWNSTREAM_LOGISTIC_H_
#define PLANISH_LAB_DOWNSTREAM_LOGISTIC_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

// Logistic regression with a squared penalty, like scikit-learn's LogisticRegression, in double.
// Solves many problems on the same vectors together, with matrix products.
namespace planish::lab {

struct FitOptions {
  /// Convergence limit: the largest absolute derivative of a problem's loss, divided by its rows
  /// and by c.
  double tolerance = 1e-6;
  int64_t iterations = 10'000;         ///< maximum
  std::function<void()> poll = [] {};  ///< called in each iteration; can throw
};

/// Fits P logistic regressions by L-BFGS. Regression p has the rows of x [N, D] with mask [N, P] 1.
/// For labels [N], 0 or 1, it minimizes over w [D] and b, from `start` (default zeros),
///   c_p sum_i log(1 + exp(-y_i (x_i w + b))) + |w|^2 / 2,   y = 2 labels - 1.
/// Returns [D + 1, P], b in the last row. All tensors are double. Throws RunError after too many
/// iterations.
at::Tensor FitLogistic(const at::Tensor& x, const at::Tensor& labels, const at::Tensor& mask,
                       const at::Tensor& c, const at::Tensor& start = {},
                       const FitOptions& options = {});

/// Fits P regressions with K classes, one for each c [P], on all rows of x [N, D] with class
/// probabilities targets [N, K]. Minimizes
///   -c_p sum_ik targets_ik log softmax(z_i)_k + |w|^2 / 2
/// like FitLogistic. Returns [D + 1, P, K].
at::Tensor FitSoftmax(const at::Tensor& x, const at::Tensor& targets, const at::Tensor& c,
                      const FitOptions& options = {});

/// Returns x w + b [N, ...] of x [N, D] and the coefficients [D + 1, ...] of a fit.
at::Tensor Predict(const at::Tensor& x, const at::Tensor& coefficients);

}  // namespace planish::lab

#endif  // PLANISH_LAB_DOWNSTREAM_LOGISTIC_H_
