#ifndef PLANISH_TORCH_NORM_DERIVATIVES_H_
#define PLANISH_TORCH_NORM_DERIVATIVES_H_

#include <ATen/core/Tensor.h>
#include <c10/core/SymFloat.h>
#include <c10/core/SymInt.h>

#include <array>

#include "torch/norm/spec.h"

// norm_forward, norm_backward and the derivative of norm_backward in PyTorch's own differentiable
// operators: what second and forward-mode derivatives, of any order, are made of. docs/math.md has
// the derivations.
namespace planish {

/// x and what norm_forward saved of it. The moments serve as constants near which x is precise;
/// derivatives pass through x alone.
struct NormInputs {
  at::Tensor x, moments, weight, bias;  ///< weight and bias may be undefined
};

/// Returns n / (n - 1), symbolic if n is.
inline c10::SymFloat BesselFactor(const c10::SymInt& n) {
  const c10::SymFloat count = n;
  return count / (count - 1.0);
}

/// What norm_forward saves, for whoever cannot call it.
at::Tensor ComposedMoments(const NormSpec& spec, const at::Tensor& x);

/// y.
at::Tensor ComposedNorm(const NormSpec& spec, const NormInputs& inputs);

/// dx, dweight and dbias, of those in `mask`. dy may be undefined.
std::array<at::Tensor, 3> ComposedNormBackward(const NormSpec& spec, const at::Tensor& dy,
                                               const at::Tensor& dsum, const NormInputs& inputs,
                                               std::array<bool, 3> mask);

/// The gradients of norm_backward's results with respect to dy, x and weight. `g` has the gradients
/// of dx, dweight and dbias, each of which may be undefined.
std::array<at::Tensor, 3> NormBackwardBackward(const NormSpec& spec,
                                               const std::array<at::Tensor, 3>& g,
                                               const at::Tensor& dy, const NormInputs& inputs);

}  // namespace planish

#endif  // PLANISH_TORCH_NORM_DERIVATIVES_H_
