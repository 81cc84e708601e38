#ifndef PLANISH_TORCH_NORM_DERIVATIVES_H_
#define PLANISH_TORCH_NORM_DERIVATIVES_H_

#include <ATen/core/Tensor.h>
#include <c10/core/SymFloat.h>
#include <c10/core/SymInt.h>

#include <array>

#include "torch/norm/spec.h"

// norm_forward, norm_backward and the derivative of norm_backward, composed of PyTorch's operators
// for higher derivatives and forward mode. docs/math.md has the derivations.
namespace planish {

/// x and the statistics that norm_forward saved. Derivatives pass only through x; the statistics
/// are constants, subtracted from x for accuracy.
struct NormInputs {
  at::Tensor x, statistics, weight, bias;  ///< weight and bias can be undefined
};

/// Returns n / (n - 1), symbolic if n is.
inline c10::SymFloat BesselFactor(const c10::SymInt& n) {
  const c10::SymFloat count = n;
  return count / (count - 1.0);
}

/// Computes the statistics that norm_forward saves, with PyTorch's operators.
at::Tensor ComposedStatistics(const NormSpec& spec, const at::Tensor& x);

/// Computes norm_forward's y, differentiable.
at::Tensor ComposedNorm(const NormSpec& spec, const NormInputs& inputs);

/// Computes norm_backward, differentiable. dy can be undefined.
NormGradients ComposedNormBackward(const NormSpec& spec, const at::Tensor& dy,
                                   const at::Tensor& dsum, const NormInputs& inputs,
                                   std::array<bool, 3> mask);

/// The gradients of norm_backward's arguments dy, x and weight, undefined where they are zero.
struct NormBackwardGradients {
  at::Tensor ddy, dx, dweight;
};

/// Returns the gradients of norm_backward's arguments from `g`, the gradients of its results, each
/// of which can be undefined.
NormBackwardGradients NormBackwardBackward(const NormSpec& spec, const NormGradients& g,
                                           const at::Tensor& dy, const NormInputs& inputs);

}  // namespace planish

#endif  // PLANISH_TORCH_NORM_DERIVATIVES_H_
