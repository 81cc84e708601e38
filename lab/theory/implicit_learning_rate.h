#ifndef PLANISH_LAB_THEORY_IMPLICIT_LEARNING_RATE_H_
#define PLANISH_LAB_THEORY_IMPLICIT_LEARNING_RATE_H_

#include <ATen/core/Tensor.h>

#include "lab/tasks/digit_cases.h"
#include "lab/tasks/pi-mnist/model.h"

// What an update does to weight vectors whose length the model's output does not depend on.
namespace planish::lab {

/// Moves of weight vectors: a double for each vector.
struct WeightMoves {
  at::Tensor length;  ///< ||w|| before the update
  at::Tensor angle;   ///< between w before and after, in radians; 0 if one is 0
  at::Tensor turned;  ///< ||dw||^2, dw the update
  at::Tensor pulled;  ///< 2 w . dw: ||w + dw||^2 = ||w||^2 + pulled + turned
};

/// Returns the moves of the rows of [vectors, inputs] matrices of any floating-point type.
WeightMoves MeasureMoves(const at::Tensor& before, const at::Tensor& after);

/// Errors of the closed forms of scale-invariant weights w, for the hidden layers of a model:
/// w . dL/dw = 0 and, with SGD, ||w||^2 grows by lr^2 ||dL/dw||^2. w is the vector of a neuron with
/// `weight` and `batch`, and all weights and biases of a layer with other norms.
struct ScaleInvariance {
  /// Largest |w . dL/dw| over the largest ||w|| ||dL/dw||.
  double orthogonality = 0;
  /// Difference of the growth of all ||w||^2 from lr^2 ||dL/dw||^2, relative to the latter.
  double growth = 0;
  /// ||dw|| / ||w|| after all weights are multiplied by 2, over that before: root mean squares over
  /// neurons, and the largest difference of a neuron from 1/4 (SGD) and 1/2 (the first update of
  /// Adam) times that before, over the largest before.
  double sgd_ratio = 0, adam_ratio = 0;
  double sgd_error = 0, adam_error = 0;
};

/// Measures them for a copy of `model` in double with eps = 1e-30, on a batch (TakeCases).
/// The learning rate makes the update as long as the weights, so that little is rounded. All zeros
/// if there are no gradients.
ScaleInvariance MeasureInvariance(const PixelMlp& model, const Tensors& batch);

}  // namespace planish::lab

#endif  // PLANISH_LAB_THEORY_IMPLICIT_LEARNING_RATE_H_
