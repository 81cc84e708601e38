#ifndef PLANISH_LAB_DOWNSTREAM_LOGISTIC_H_
#define PLANISH_LAB_DOWNSTREAM_LOGISTIC_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

// Logistic regression with a squared penalty, as scikit-learn's LogisticRegression has it, of many
// problems on the same vectors at once, in double: their products are then of matrices.
namespace planish::lab {

struct FitOptions {
  /// Largest absolute derivative of a problem's loss, divided by its rows and by c, at its end.
  double tolerance = 1e-6;
  int64_t iterations = 10'000;         ///< at most
  std::function<void()> poll = [] {};  ///< called in each; may throw
};

/// P logistic regressions. Problem p has the rows of x [N, D] whose mask [N, P] is 1 and not 0,
/// with the classes labels [N], 0 or 1, and minimises over w [D] and b
///   c_p sum_i log(1 + exp(-y_i z_i)) + |w|^2 / 2,   z = x w + b,   y = 2 labels - 1
/// by L-BFGS from `start`, a result of before, or from zeros -> [D + 1, P], the last row b. All
/// tensors are double. Throws RunError where that takes more iterations than allowed.
at::Tensor FitLogistic(const at::Tensor& x, const at::Tensor& labels, const at::Tensor& mask,
                       const at::Tensor& c, const at::Tensor& start = {},
                       const FitOptions& options = {});

/// P regressions with K classes, one for each c [P], on all rows of x [N, D], whose classes have
/// the probabilities targets [N, K]: minimises
///   -c_p sum_ik targets_ik log softmax(z_i)_k + |w|^2 / 2
/// as FitLogistic does -> [D + 1, P, K].
at::Tensor FitSoftmax(const at::Tensor& x, const at::Tensor& targets, const at::Tensor& c,
                      const FitOptions& options = {});

/// x w + b of x [N, D] and what a fit gave, [D + 1, ...] -> [N, ...].
at::Tensor Predict(const at::Tensor& x, const at::Tensor& coefficients);

}  // namespace planish::lab

#endif  // PLANISH_LAB_DOWNSTREAM_LOGISTIC_H_
