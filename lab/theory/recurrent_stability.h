#ifndef PLANISH_LAB_THEORY_RECURRENT_STABILITY_H_
#define PLANISH_LAB_THEORY_RECURRENT_STABILITY_H_

#include <span>
#include <vector>

#include "planish/rnn.h"

// Sizes of the summed inputs and of the gradients of a recurrent layer at each time step.
namespace planish::lab {

/// A layer that starts from states of zeros, and the gradient of its last hidden state.
struct DynamicsArgs {
  Cell cell = Cell::kRnn;
  RnnShape shape;                  ///< one head, no projection, at least one step
  const double* x = nullptr;       ///< [T, B, I]
  RnnParams<const double> params;  ///< without biases of the preactivations
  const double* dh_n = nullptr;    ///< [B, H] dL/dh_T of a loss L of the last hidden state only
  double eps = 0;
};

/// States and gradients, and their sizes: root mean squares over sequences and elements.
struct Dynamics {
  std::vector<double> h;   ///< [T, B, H] hidden states
  std::vector<double> dh;  ///< [T, B, H] dL/dh_t, with the cell state c_t of an LSTM held constant
  std::vector<double> summed_size;    ///< [T] of W_hh h_{t-1} + W_xh x_t, before a norm
  std::vector<double> gradient_size;  ///< [T] of dL/dh_t
};

/// Runs the layer forward, then backward step by step. Throws ArgumentError as RnnForward does.
Dynamics MeasureDynamics(const DynamicsArgs& args);

/// Returns the growth rate of sizes: the slope of their logarithm per element, by least squares
/// over the second half. Leaves out sizes that are not finite or below 1e-290, and returns NaN for
/// fewer than two others.
double GrowthRate(std::span<const double> sizes);

}  // namespace planish::lab

#endif  // PLANISH_LAB_THEORY_RECURRENT_STABILITY_H_
