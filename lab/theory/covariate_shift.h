#ifndef PLANISH_LAB_THEORY_COVARIATE_SHIFT_H_
#define PLANISH_LAB_THEORY_COVARIATE_SHIFT_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "lab/tasks/pi-mnist/model.h"

// Moves of the distributions of a layer's inputs and outputs between two updates.
namespace planish::lab {

/// Values of a hidden layer for the cases of a probe, [cases, units] doubles.
struct LayerValues {
  at::Tensor sums;        ///< inputs of the norm
  at::Tensor normalized;  ///< the norm of the sums without gain, bias and eps
  at::Tensor outputs;     ///< outputs of the norm: inputs of ReLU
  /// Sums with the weights of `earlier` in this layer only: what the layers below changed.
  at::Tensor from_below;
};

/// Returns the values of all hidden layers, with batch norm's statistics over the cases x. The
/// models must be in training mode; they are not trained, but running statistics move. `earlier`
/// can be the model itself.
std::vector<LayerValues> MeasureLayers(PixelMlp& model, PixelMlp& earlier, const at::Tensor& x);

/// Sums of squares of moves: of means, in standard deviations before, and of the logarithm of
/// variances.
struct Shift {
  double mean = 0, variance = 0;
  double count = 0;  ///< means and variances; those with a variance of 0 are left out

  void Add(const Shift& other);
};

/// Means and biased variances of several distributions.
struct Distributions {
  at::Tensor mean, variance;
};

/// Returns those of [cases, units] values along `dim`: 0 has one of each unit over the cases, 1 one
/// of each case over the units.
Distributions DistributionsOf(const at::Tensor& values, int64_t dim);

/// Returns the shift between the same distributions before and after an update.
Shift MeasureShift(const Distributions& before, const Distributions& after);

/// Returns the root mean square, over pairs of different columns, of the cosine between them.
/// Columns of zeros are left out; NaN for fewer than two others.
double ColumnCorrelation(const at::Tensor& t);

}  // namespace planish::lab

#endif  // PLANISH_LAB_THEORY_COVARIATE_SHIFT_H_
