#include "planish/pointwise_norm.h"

#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <torch/library.h>

#include <array>
#include <cstdint>
#include <numbers>
#include <string_view>
#include <tuple>
#include <utility>

#include "planish/cuda.h"
#include "planish/torch_norm.h"
#include "torch/base/autograd.h"
#include "torch/base/device.h"
#include "torch/norm/levels.h"
#include "torch/norm/ops.h"

// dyt and derf: functions of single elements that replace a norm. Both are calls of the primitives
// pointwise_norm_forward and pointwise_norm_backward.
namespace planish {

namespace {

using at::Tensor;
using PointwiseMask = std::array<bool, 5>;
using OperatorQuintuple = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

struct PointwiseName {
  const char* name;  ///< of the primitives' argument
  const char* function;
  Pointwise value;
};
constexpr PointwiseName kPointwiseNames[] = {{"tanh", "dyt", Pointwise::kTanh},
                                             {"erf", "derf", Pointwise::kErf}};

const PointwiseName& Named(std::string_view name) {
  return FindNamed("pointwise_norm_forward", "function", kPointwiseNames, name);
}

/// The tensors that y depends on. shift, weight and bias can be undefined.
struct PointwiseInputs {
  const Tensor &x, &alpha, &shift, &weight, &bias;
};

/// The results of pointwise_norm_backward, each undefined unless it is requested.
struct PointwiseGradients {
  Tensor dx, dalpha, dshift, dweight, dbias;
};

Tensor CallForward(const PointwiseInputs& in, const PointwiseName& f) {
  static const auto op =
      FindOperator<Tensor(const Tensor&, const Tensor&, const OptionalTensor&,
                          const OptionalTensor&, const OptionalTensor&, std::string_view)>(
          "planish::pointwise_norm_forward");
  return op.call(in.x, in.alpha, OrNone(in.shift), OrNone(in.weight), OrNone(in.bias), f.name);
}

PointwiseGradients CallBackward(const Tensor& dy, const PointwiseInputs& in, const PointwiseName& f,
                                PointwiseMask mask) {
  static const auto op = FindOperator<OperatorQuintuple(
      const Tensor&, const Tensor&, const Tensor&, const OptionalTensor&, const OptionalTensor&,
      std::string_view, PointwiseMask)>("planish::pointwise_norm_backward");
  auto [dx, dalpha, dshift, dweight, dbias] =
      op.call(dy, in.x, in.alpha, OrNone(in.shift), OrNone(in.weight), f.name, mask);
  return {std::move(dx), std::move(dalpha), std::move(dshift), std::move(dweight),
          std::move(dbias)};
}

void CheckInputs(const PointwiseInputs& in, const PointwiseName& f) {
  CheckX(f.function, in.x, 1);
  CheckVector(f.function, "alpha", in.alpha, in.x, 1);
  CheckVector(f.function, "shift", OrNone(in.shift), in.x, 1);
  CheckParameters(f.function, OrNone(in.weight), OrNone(in.bias), in.x, in.x.sym_size(-1));
  for (const Tensor* t : {&in.shift, &in.weight, &in.bias}) {
    TORCH_CHECK_VALUE(!t->defined() || t->scalar_type() == in.alpha.scalar_type(), "[", f.function,
                      "] shift, weight and bias must have alpha's type, ", in.alpha.scalar_type(),
                      ", got ", t->scalar_type());
  }
}

// ---- Kernels

Tensor ForwardMeta(const Tensor& x, const Tensor& alpha, const OptionalTensor& shift,
                   const OptionalTensor& weight, const OptionalTensor& bias,
                   std::string_view function) {
  CheckInputs({x, alpha, OrUndefined(shift), OrUndefined(weight), OrUndefined(bias)},
              Named(function));
  return EmptyOn(x, x.sym_sizes(), x.scalar_type());
}

Tensor Forward(const Tensor& x_, const Tensor& alpha_, const OptionalTensor& shift_,
               const OptionalTensor& weight_, const OptionalTensor& bias_,
               std::string_view function) {
  Tensor y = ForwardMeta(x_, alpha_, shift_, weight_, bias_, function);
  const Tensor x = x_.contiguous(), alpha = alpha_.contiguous();
  const Tensor shift = Contiguous(OrUndefined(shift_)), weight = Contiguous(OrUndefined(weight_));
  const Tensor bias = Contiguous(OrUndefined(bias_));
  const Pointwise f = Named(function).value;
  ByTypes(x, alpha, [&]<class T, class P>() {
    const auto args = WithArrays(
        WithSizes(PointwiseNormForwardArgs<T, P>(), x),
        {{"x", x}, {"alpha", alpha}, {"shift", shift}, {"gain", weight}, {"bias", bias}, {"y", y}});
    if (x.is_cpu()) return PointwiseNormForward<T, P>(f, args, TorchParallelFor);
    const GpuCall call(x, cuda::WorkspaceBytes(args));
    cuda::PointwiseNormForward<T, P>(f, args, call.With(cuda::PointwiseNormOptions()));
  });
  return y;
}

PointwiseGradients EmptyGradientsOf(const Tensor& dy, const PointwiseInputs& in,
                                    const PointwiseName& f, PointwiseMask mask) {
  CheckInputs(in, f);
  CheckLike(f.function, "dy", dy, in.x);
  const auto vector = [&](bool wanted, const c10::SymInt& size) {
    return wanted ? EmptyOn(in.x, {size}, in.alpha.scalar_type()) : Tensor();
  };
  const c10::SymInt cols = in.x.sym_size(-1);
  return {mask[0] ? EmptyOn(in.x, in.x.sym_sizes(), in.x.scalar_type()) : Tensor(),
          vector(mask[1], 1), vector(mask[2], 1), vector(mask[3], cols), vector(mask[4], cols)};
}

OperatorQuintuple TupleOf(PointwiseGradients d) {
  return {std::move(d.dx), std::move(d.dalpha), std::move(d.dshift), std::move(d.dweight),
          std::move(d.dbias)};
}

OperatorQuintuple BackwardMeta(const Tensor& dy, const Tensor& x, const Tensor& alpha,
                               const OptionalTensor& shift, const OptionalTensor& weight,
                               std::string_view function, PointwiseMask mask) {
  return TupleOf(EmptyGradientsOf(dy, {x, alpha, OrUndefined(shift), OrUndefined(weight), {}},
                                  Named(function), mask));
}

OperatorQuintuple Backward(const Tensor& dy_, const Tensor& x_, const Tensor& alpha_,
                           const OptionalTensor& shift_, const OptionalTensor& weight_,
                           std::string_view function, PointwiseMask mask) {
  PointwiseGradients d = EmptyGradientsOf(
      dy_, {x_, alpha_, OrUndefined(shift_), OrUndefined(weight_), {}}, Named(function), mask);
  const Tensor dy = dy_.contiguous(), x = x_.contiguous(), alpha = alpha_.contiguous();
  const Tensor shift = Contiguous(OrUndefined(shift_)), weight = Contiguous(OrUndefined(weight_));
  const Pointwise f = Named(function).value;
  ByTypes(x, alpha, [&]<class T, class P>() {
    const auto args =
        WithArrays(WithSizes(PointwiseNormBackwardArgs<T, P>(), x), {{"dy", dy},
                                                                     {"x", x},
                                                                     {"alpha", alpha},
                                                                     {"shift", shift},
                                                                     {"gain", weight},
                                                                     {"dx", d.dx},
                                                                     {"dalpha", d.dalpha},
                                                                     {"dshift", d.dshift},
                                                                     {"dgain", d.dweight},
                                                                     {"dbias", d.dbias}});
    if (x.is_cpu()) return PointwiseNormBackward<T, P>(f, args, TorchParallelFor);
    const GpuCall call(x, cuda::WorkspaceBytes(args));
    cuda::PointwiseNormBackward<T, P>(f, args, call.With(cuda::PointwiseNormOptions()));
  });
  return TupleOf(std::move(d));
}

// ---- The equations in PyTorch's operators, for forward mode, higher derivatives and vmap

Tensor InTypeOf(const Tensor& t, const Tensor& x) { return t.to(ComputeType(x.scalar_type())); }

Tensor ArgumentOf(const PointwiseInputs& in) {
  const Tensor z = Wide(in.x) * InTypeOf(in.alpha, in.x);
  return in.shift.defined() ? z + InTypeOf(in.shift, in.x) : z;
}

Tensor ValueOf(const PointwiseName& f, const Tensor& z) {
  return f.value == Pointwise::kTanh ? z.tanh() : z.erf();
}

Tensor Composed(const PointwiseInputs& in, const PointwiseName& f) {
  Tensor y = ValueOf(f, ArgumentOf(in));
  if (in.weight.defined()) y = y * InTypeOf(in.weight, in.x);
  if (in.bias.defined()) y = y + InTypeOf(in.bias, in.x);
  return y.to(in.x.scalar_type());
}

PointwiseGradients ComposedBackward(const Tensor& dy_, const PointwiseInputs& in,
                                    const PointwiseName& f, PointwiseMask mask) {
  const Tensor z = ArgumentOf(in), value = ValueOf(f, z), dy = Wide(dy_);
  const Tensor slope = f.value == Pointwise::kTanh
                           ? at::rsub(value.square(), 1)
                           : z.square().neg().exp() * (2 * std::numbers::inv_sqrtpi);
  Tensor g = dy * slope;
  if (in.weight.defined()) g = g * InTypeOf(in.weight, in.x);
  const auto sum_to = [&](const Tensor& t, const c10::SymInt& size) {
    return at::sum_to(t, c10::SymIntArrayRef(&size, 1)).to(in.alpha.scalar_type());
  };
  const c10::SymInt cols = in.x.sym_size(-1);
  PointwiseGradients d;
  if (mask[0]) d.dx = (g * InTypeOf(in.alpha, in.x)).to(in.x.scalar_type());
  if (mask[1]) d.dalpha = sum_to(g * Wide(in.x), 1);
  if (mask[2]) d.dshift = sum_to(g, 1);
  if (mask[3]) d.dweight = sum_to(dy * value, cols);
  if (mask[4]) d.dbias = sum_to(dy, cols);
  return d;
}

// ---- Autograd

Tensor ForwardAutograd(const Tensor& x, const Tensor& alpha, const OptionalTensor& shift_,
                       const OptionalTensor& weight_, const OptionalTensor& bias_,
                       std::string_view function) {
  const Tensor &shift = OrUndefined(shift_), &weight = OrUndefined(weight_);
  const Tensor& bias = OrUndefined(bias_);
  const PointwiseInputs in = {x, alpha, shift, weight, bias};
  const PointwiseName& f = Named(function);
  if (AnyTangent(x, alpha, shift, weight, bias)) {
    CheckInputs(in, f);
    return Composed(in, f);
  }
  const auto forward = [&] { return CallForward(in, f); };
  if (!torch::autograd::compute_requires_grad(x, alpha, shift, weight, bias)) {
    return BelowAutograd(forward);
  }
  return WithHistory(
      "PlanishPointwiseNormBackward", {x, alpha, shift, weight, bias}, forward,
      [&](const Tensor&) { return Tensors{x, alpha, shift, weight}; },
      [](const Tensor& y) { return Tensors{y}; },
      [&f](const Tensors& g, const Tensors& kept, const auto& needed) {
        if (!g[0].defined()) return Tensors(5);
        PointwiseGradients d =
            CallBackward(g[0], {kept[0], kept[1], kept[2], kept[3], {}}, f,
                         {needed(0), needed(1), needed(2), needed(3), needed(4)});
        return Tensors{d.dx, d.dalpha, d.dshift, d.dweight, d.dbias};
      });
}

OperatorQuintuple BackwardAutograd(const Tensor& dy, const Tensor& x, const Tensor& alpha,
                                   const OptionalTensor& shift_, const OptionalTensor& weight_,
                                   std::string_view function, PointwiseMask mask) {
  const Tensor &shift = OrUndefined(shift_), &weight = OrUndefined(weight_);
  const PointwiseInputs in = {x, alpha, shift, weight, {}};
  const PointwiseName& f = Named(function);
  if (!AnyTangent(dy, x, alpha, shift, weight) &&
      !torch::autograd::compute_requires_grad(dy, x, alpha, shift, weight)) {
    return BelowAutograd([&] { return TupleOf(CallBackward(dy, in, f, mask)); });
  }
  CheckInputs(in, f);
  return TupleOf(ComposedBackward(dy, in, f, mask));
}

// ---- vmap. Mapped cases that have the same parameters are more rows of one call.

Tensor ForwardBatched(const Tensor& x_, const Tensor& alpha_, const OptionalTensor& shift_,
                      const OptionalTensor& weight_, const OptionalTensor& bias_,
                      std::string_view function) {
  const PointwiseInputs in = {x_, alpha_, OrUndefined(shift_), OrUndefined(weight_),
                              OrUndefined(bias_)};
  const PointwiseName& f = Named(function);
  CheckInputs(in, f);
  const Level level;
  const Mapped x = level.Unwrap(in.x), alpha = level.Unwrap(in.alpha),
               shift = level.Unwrap(in.shift), weight = level.Unwrap(in.weight),
               bias = level.Unwrap(in.bias);
  if (!x.mapped || alpha.mapped || shift.mapped || weight.mapped || bias.mapped) {
    return Composed(in, f);
  }
  const c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::FuncTorchBatched);
  return level.Wrap(
      CallForward({x.tensor, alpha.tensor, shift.tensor, weight.tensor, bias.tensor}, f));
}

OperatorQuintuple BackwardBatched(const Tensor& dy_, const Tensor& x_, const Tensor& alpha_,
                                  const OptionalTensor& shift_, const OptionalTensor& weight_,
                                  std::string_view function, PointwiseMask mask) {
  const PointwiseInputs in = {x_, alpha_, OrUndefined(shift_), OrUndefined(weight_), {}};
  const PointwiseName& f = Named(function);
  const Level level;
  const Mapped dy = level.Unwrap(dy_), x = level.Unwrap(in.x), alpha = level.Unwrap(in.alpha),
               shift = level.Unwrap(in.shift), weight = level.Unwrap(in.weight);
  const bool fold =
      mask[0] && dy.mapped && x.mapped && !alpha.mapped && !shift.mapped && !weight.mapped;
  // Each case has its own gradients of the parameters.
  PointwiseGradients d =
      ComposedBackward(dy_, in, f, {mask[0] && !fold, mask[1], mask[2], mask[3], mask[4]});
  if (fold) {
    const c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::FuncTorchBatched);
    d.dx = level.Wrap(CallBackward(dy.tensor,
                                   {x.tensor, alpha.tensor, shift.tensor, weight.tensor, {}}, f,
                                   {true, false, false, false, false})
                          .dx);
  }
  return TupleOf(std::move(d));
}

// ---- Functions that users call

/// Returns whether the kernels take parameters of this type beside x.
bool IsKernelType(const Tensor& x, at::ScalarType type) {
  return type == x.scalar_type() || type == at::kFloat;
}

Tensor PointwiseNorm(const PointwiseName& f, const Tensor& x, c10::SymIntArrayRef shape,
                     const Tensor& alpha, const OptionalTensor& shift, const OptionalTensor& weight,
                     const OptionalTensor& bias) {
  CheckLayout(f.function, x);
  CheckX(f.function, x, 1);
  const auto dims = static_cast<int64_t>(shape.size());
  TORCH_CHECK_VALUE(dims >= 1 && dims <= x.dim() && x.sym_sizes().slice(x.dim() - dims) == shape,
                    "[", f.function,
                    "] normalized_shape must be the last dimensions of x, which has ",
                    x.sym_sizes(), ", got ", shape);
  const Tensor parameters[] = {alpha, OrUndefined(shift), OrUndefined(weight), OrUndefined(bias)};
  const char* const names[] = {"alpha", "shift", "weight", "bias"};
  bool as_given = IsKernelType(x, alpha.scalar_type());
  for (size_t i = 0; i < 4; ++i) {
    const Tensor& t = parameters[i];
    if (!t.defined()) continue;
    if (i < 2) {
      TORCH_CHECK_VALUE(t.sym_numel() == 1, "[", f.function, "] ", names[i],
                        " must have one element, got ", t.sym_sizes());
    } else {
      TORCH_CHECK_VALUE(t.sym_sizes() == shape, "[", f.function, "] ", names[i],
                        " must have normalized_shape, ", shape, ", got ", t.sym_sizes());
    }
    as_given = as_given && t.scalar_type() == alpha.scalar_type();
  }
  const auto given = [&](size_t i) {
    const Tensor& t = parameters[i];
    if (!t.defined()) return t;
    const Tensor flat = t.dim() == 1 ? t : t.reshape({-1});
    const bool convert = !as_given && IsNormType(t.scalar_type());  // else the primitive throws
    return convert ? InTypeOf(flat, x) : flat;
  };
  const Tensor a = given(0), s = given(1), w = given(2), b = given(3);
  const Tensor rows = dims == 1 ? x : x.flatten(x.dim() - dims);
  const Tensor y = CallForward({rows, a, s, w, b}, f);
  return dims == 1 ? y : y.view_symint(x.sym_sizes());
}

Tensor Dyt(const Tensor& x, c10::SymIntArrayRef normalized_shape, const Tensor& alpha,
           const OptionalTensor& weight, const OptionalTensor& bias) {
  return PointwiseNorm(kPointwiseNames[0], x, normalized_shape, alpha, {}, weight, bias);
}

Tensor Derf(const Tensor& x, c10::SymIntArrayRef normalized_shape, const Tensor& alpha,
            const OptionalTensor& shift, const OptionalTensor& weight, const OptionalTensor& bias) {
  return PointwiseNorm(kPointwiseNames[1], x, normalized_shape, alpha, shift, weight, bias);
}

}  // namespace

inline namespace PLANISH_API {

Tensor dyt(const Tensor& x, at::IntArrayRef normalized_shape, const Tensor& alpha,
           const OptionalTensor& weight, const OptionalTensor& bias) {
  return Dyt(x, c10::fromIntArrayRefSlow(normalized_shape), alpha, weight, bias);
}

Tensor derf(const Tensor& x, at::IntArrayRef normalized_shape, const Tensor& alpha,
            const OptionalTensor& shift, const OptionalTensor& weight, const OptionalTensor& bias) {
  return Derf(x, c10::fromIntArrayRefSlow(normalized_shape), alpha, shift, weight, bias);
}

}  // namespace PLANISH_API

TORCH_LIBRARY_FRAGMENT(planish, m) {
  m.def(
      "pointwise_norm_forward(Tensor x, Tensor alpha, Tensor? shift, Tensor? weight, Tensor? bias, "
      "str function) -> Tensor y");
  m.def(
      "pointwise_norm_backward(Tensor dy, Tensor x, Tensor alpha, Tensor? shift, Tensor? weight, "
      "str function, bool[5] mask) -> (Tensor dx, Tensor dalpha, Tensor dshift, Tensor dweight, "
      "Tensor dbias)");
  m.def(
      "dyt(Tensor x, SymInt[] normalized_shape, Tensor alpha, Tensor? weight=None, Tensor? "
      "bias=None) -> Tensor");
  m.def(
      "derf(Tensor x, SymInt[] normalized_shape, Tensor alpha, Tensor? shift=None, Tensor? "
      "weight=None, Tensor? bias=None) -> Tensor");
}

void RegisterPointwiseNorm(torch::Library& m) {
  m.impl("pointwise_norm_forward", Forward);
  m.impl("pointwise_norm_backward", Backward);
}

TORCH_LIBRARY_IMPL(planish, CPU, m) { RegisterPointwiseNorm(m); }
TORCH_LIBRARY_IMPL(planish, CUDA, m) { RegisterPointwiseNorm(m); }

TORCH_LIBRARY_IMPL(planish, Meta, m) {
  m.impl("pointwise_norm_forward", ForwardMeta);
  m.impl("pointwise_norm_backward", BackwardMeta);
}

TORCH_LIBRARY_IMPL(planish, Autograd, m) {
  m.impl("pointwise_norm_forward", ForwardAutograd);
  m.impl("pointwise_norm_backward", BackwardAutograd);
}

TORCH_LIBRARY_IMPL(planish, FuncTorchBatched, m) {
  m.impl("pointwise_norm_forward", ForwardBatched);
  m.impl("pointwise_norm_backward", BackwardBatched);
}

void RegisterPointwiseFunctions(torch::Library& m) {
  m.impl("dyt", Dyt);
  m.impl("derf", Derf);
}

TORCH_LIBRARY_IMPL(planish, CompositeImplicitAutograd, m) { RegisterPointwiseFunctions(m); }
TORCH_LIBRARY_IMPL(planish, FuncTorchBatchedDecomposition, m) { RegisterPointwiseFunctions(m); }

}  // namespace planish
