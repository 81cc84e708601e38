#ifndef PLANISH_TORCH_NORM_OPS_H_
#define PLANISH_TORCH_NORM_OPS_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "torch/base/autograd.h"
#include "torch/norm/arrays.h"
#include "torch/norm/gains.h"
#include "torch/norm/spec.h"

// Calls of the operators of torch/norm, and checks of their arguments. Errors name the function
// that the user called.
namespace planish {

using OptionalTensor = std::optional<at::Tensor>;
using Mask = std::array<bool, 3>;

// The results of registered operators, which must be tuples.
using OperatorPair = std::tuple<at::Tensor, at::Tensor>;
using OperatorTriple = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using OperatorQuadruple = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

/// The kernel of an operator whose results `kFunction` returns as a struct of two to four tensors.
template <auto kFunction>
struct TupleKernel;

template <class Results, class... Args, Results (*kFunction)(Args...)>
struct TupleKernel<kFunction> {
  static auto Call(Args... args) {
    Results results = kFunction(std::forward<Args>(args)...);
    if constexpr (sizeof(Results) == 2 * sizeof(at::Tensor)) {
      auto& [first, second] = results;
      return OperatorPair(std::move(first), std::move(second));
    } else if constexpr (sizeof(Results) == 4 * sizeof(at::Tensor)) {
      auto& [first, second, third, fourth] = results;
      return OperatorQuadruple(std::move(first), std::move(second), std::move(third),
                               std::move(fourth));
    } else {
      auto& [first, second, third] = results;
      return OperatorTriple(std::move(first), std::move(second), std::move(third));
    }
  }
};

inline OptionalTensor OrNone(const at::Tensor& t) {
  return t.defined() ? OptionalTensor(t) : std::nullopt;
}

inline const at::Tensor& OrElse(const OptionalTensor& t, const at::Tensor& other) {
  return t ? *t : other;
}

/// Returns an operator of the dispatcher. A call through it reaches the layers below the caller's
/// own (autograd, functional transforms, backends).
template <class Function>
c10::TypedOperatorHandle<Function> FindOperator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Function>();
}

/// Calls norm_forward; see RouteOf.
NormOutputs CallNormForward(const at::Tensor& x, const OptionalTensor& weight,
                            const OptionalTensor& bias, const NormSpec& spec, bool save);

/// Calls norm_backward; see RouteOf.
NormGradients CallNormBackward(const OptionalTensor& dy, const OptionalTensor& dsum,
                               const at::Tensor& x, const at::Tensor& statistics,
                               const OptionalTensor& weight, const NormSpec& spec, Mask mask);

/// Returns the settings in the arguments of norm_forward and norm_backward.
NormSpec SpecOf(std::string_view norm, int64_t over, double eps, double scale, double slope,
                bool unbiased);

/// Checks the arguments of norm_forward. Over rows, weight and bias can have dimensions before the
/// features, which broadcast to x's and are the same for both (torch/norm/gains.h).
void CheckNormForward(const NormSpec& spec, const at::Tensor& x, const OptionalTensor& weight,
                      const OptionalTensor& bias);

/// Returns a tensor of `sizes`, one or more rows of statistics over the rows of x, whose memory has
/// the order in which the kernels store them (torch/norm/gains.h).
at::Tensor EmptyStatistics(const at::Tensor& x, const OptionalTensor& weight,
                           c10::SymIntArrayRef sizes);

/// Returns tensors for the results of norm_forward; `statistics` is undefined unless `save`.
NormOutputs EmptyForward(const NormSpec& spec, const at::Tensor& x, const OptionalTensor& weight,
                         bool save);

/// Checks normalized_shape, and weight and bias against it. Returns its number of dimensions.
int64_t CheckNormalizedShape(const char* function, const at::Tensor& x, c10::SymIntArrayRef shape,
                             const OptionalTensor& weight, const OptionalTensor& bias);

/// Checks that a nested tensor has one gain along its sequences.
void CheckNested(const char* function, const at::Tensor& x, const Rows& rows);

/// Returns eps, or by default the machine epsilon of the type that the arithmetic is in.
double RmsEps(at::ScalarType type, std::optional<double> eps);

/// Checks the summands of a norm of a sum, and returns them in the type of x + residual.
std::pair<at::Tensor, at::Tensor> PromotedSummands(const char* function, const at::Tensor& x,
                                                   const at::Tensor& residual);

/// Returns whether derivatives with respect to one of the tensors are recorded.
template <class... T>
bool NeedDerivatives(const T&... tensors) {
  return torch::autograd::compute_requires_grad(tensors...) || AnyTangent(tensors...);
}

/// Returns a tensor for y or dx.
at::Tensor EmptyOutput(const NormSpec& spec, const at::Tensor& x);

/// Returns tensors for dx, dweight and dbias, undefined unless in `mask`.
NormGradients EmptyGradients(const NormSpec& spec, const at::Tensor& x,
                             const OptionalTensor& weight, const Mask& mask);

inline void CheckX(const char* function, const at::Tensor& x, int64_t dims) {
  TORCH_CHECK_VALUE(x.dim() >= dims, "[", function, "] x must have at least ", dims,
                    dims == 1 ? " dimension, got " : " dimensions, got ", x.dim());
  TORCH_CHECK_VALUE(IsNormType(x.scalar_type()), "[", function,
                    "] x must be float, double, bfloat16 or half, got ", x.scalar_type());
}

/// Checks that a parameter has x's type or float.
inline void CheckParameterType(const char* function, const char* name, const OptionalTensor& t,
                               const at::Tensor& x) {
  if (!t || !t->defined()) return;
  TORCH_CHECK_VALUE((t->scalar_type() == x.scalar_type() || t->scalar_type() == at::kFloat) &&
                        t->device() == x.device(),
                    "[", function, "] ", name, " must have x's type or Float, and x's device, ",
                    x.scalar_type(), " on ", x.device(), ", got ", t->scalar_type(), " on ",
                    t->device());
}

/// Checks that a parameter is [count] and has x's type or float.
inline void CheckVector(const char* function, const char* name, const OptionalTensor& vector,
                        const at::Tensor& x, const c10::SymInt& count) {
  if (!vector || !vector->defined()) return;
  TORCH_CHECK_VALUE(vector->dim() == 1 && vector->sym_size(0) == count, "[", function, "] ", name,
                    " must have [", count, "], got ", vector->sym_sizes());
  CheckParameterType(function, name, vector, x);
}

inline void CheckSameType(const char* function, const OptionalTensor& weight,
                          const OptionalTensor& bias) {
  TORCH_CHECK_VALUE(!weight || !bias || weight->scalar_type() == bias->scalar_type(), "[", function,
                    "] bias must have weight's type, ", weight->scalar_type(), ", got ",
                    bias->scalar_type());
}

inline void CheckParameters(const char* function, const OptionalTensor& weight,
                            const OptionalTensor& bias, const at::Tensor& x,
                            const c10::SymInt& count) {
  CheckVector(function, "weight", weight, x, count);
  CheckVector(function, "bias", bias, x, count);
  CheckSameType(function, weight, bias);
}

/// Weight and bias in a type that the kernels accept: x's or float, the same for both. Converts
/// other floating types, differentiably, to the type of the arithmetic. Refers to its arguments.
class KernelParameters {
 public:
  KernelParameters(const at::Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias)
      : weight_(weight), bias_(bias) {
    const bool has_weight = weight && weight->defined(), has_bias = bias && bias->defined();
    if (!has_weight && !has_bias) return;
    const at::ScalarType type = (has_weight ? weight : bias)->scalar_type();
    const bool common = !has_bias || bias->scalar_type() == type;
    if (common && (type == x.scalar_type() || type == at::kFloat)) return;
    if (has_weight) converted_weight_ = Convert(x, *weight);
    if (has_bias) converted_bias_ = Convert(x, *bias);
  }

  const OptionalTensor& weight() const { return converted_weight_ ? converted_weight_ : weight_; }
  const OptionalTensor& bias() const { return converted_bias_ ? converted_bias_ : bias_; }

 private:
  static OptionalTensor Convert(const at::Tensor& x, const at::Tensor& t) {
    if (!IsNormType(t.scalar_type())) return std::nullopt;  // CheckVector throws
    return t.to(ComputeType(x.scalar_type()));
  }

  const OptionalTensor &weight_, &bias_;
  OptionalTensor converted_weight_, converted_bias_;
};

/// Throws for a nested tensor of the strided layout, because its sizes cannot be read.
inline void CheckLayout(const char* function, const at::Tensor& x) {
  TORCH_CHECK_VALUE(!x.is_nested() || x.layout() != at::kStrided, "[", function,
                    "] x must be a dense tensor or a nested tensor with layout=torch.jagged, got a "
                    "nested tensor with layout=torch.strided");
}

inline void CheckAlpha(const char* function, double alpha) {
  TORCH_CHECK_VALUE(alpha > 0 && alpha <= 1, "[", function,
                    "] alpha must be above 0 and at most 1, got ", alpha);
}

/// Checks the weight of a batch in running estimates. `or_none` completes the text if the caller
/// also accepts none.
inline void CheckMomentum(const char* function, double momentum, const char* or_none = "") {
  TORCH_CHECK_VALUE(momentum >= 0 && momentum <= 1, "[", function, "] momentum must be from 0 to 1",
                    or_none, ", got ", momentum);
}

/// Checks that `t` has the sizes, type and device of `x`.
inline void CheckLike(const char* function, const char* name, const at::Tensor& t,
                      const at::Tensor& x, const char* name_of_x = "x") {
  TORCH_CHECK_VALUE(t.sym_sizes() == x.sym_sizes(), "[", function, "] ", name, " must have ",
                    name_of_x, "'s sizes, ", x.sym_sizes(), ", got ", t.sym_sizes());
  TORCH_CHECK_VALUE(t.scalar_type() == x.scalar_type() && t.device() == x.device(), "[", function,
                    "] ", name, " must have ", name_of_x, "'s type and device, ", x.scalar_type(),
                    " on ", x.device(), ", got ", t.scalar_type(), " on ", t.device());
}

}  // namespace planish

#endif  // PLANISH_TORCH_NORM_OPS_H_
