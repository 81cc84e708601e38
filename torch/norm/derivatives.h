#ifndef PLANISH_TORCH_NORM_DERIVATIVES_H_
#define PLANISH_TORCH_NORM_DERIVATIVES_H_

#include <ATen/core/Tensor.h>
#include <c10/core/SymFloat.h>
#include <c10/core/SymInt.h>

#include <array>

#include "torch/norm/spec.h"

// norm_forward, norm_backward and the derivative of norm_backward in PyTorch's differentiable
// operators, for higher derivatives and those in forward mode. docs/math.md has the derivations.
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

/// Returns the statistics that norm_forward saves, for callers that cannot call it.
at::Tensor ComposedStatistics(const NormSpec& spec, const at::Tensor& x);

/// Returns y.
at::Tensor ComposedNorm(const NormSpec& spec, const NormInputs& inputs);

/// Returns dx, dweight and dbias, undefined unless in `mask`. dy can be undefined.
std::array<at::Tensor, 3> ComposedNormBackward(const NormSpec& spec, const at::Tensor& dy,
                                               const at::Tensor& dsum, const NormInputs& inputs,
                                               std::array<bool, 3> mask);

/// Returns the gradients of dy, x and weight from `g`, the gradients of norm_backward's results dx,
/// dweight and dbias, each of which can be undefined.
std::array<at::Tensor, 3> NormBackwardBackward(const NormSpec& spec,
                                               const std::array<at::Tensor, 3>& g,
                                               const at::Tensor& dy, const NormInputs& inputs);

}  // namespace planish

#endif  // PLANISH_TORCH_NORM_DERIVATIVES_H_
