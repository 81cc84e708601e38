#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <torch/library.h>

#include <cstdint>
#include <string_view>
#include <utility>

#include "planish/dropout_norm.h"
#include "planish/torch_norm.h"
#include "src/norm/dropout/kernels.h"
#include "torch/base/autograd.h"
#include "torch/base/route.h"
#include "torch/norm/levels.h"
#include "torch/norm/ops.h"

// dropout_add_layer_norm and dropout_add_rms_norm, by the primitives dropout and
// dropout_norm_forward. The backward pass has one call of the core, or norm_backward and dropout
// for higher derivatives, transforms and compilers. Masks depend on the position of an element in
// its tensor; the cases of a vmap have the same mask.
namespace planish {

namespace {

using at::Tensor;

void CheckDropout(const char* function, const Tensor& seed, double p) {
  TORCH_CHECK_VALUE(p >= 0 && p <= 1, "[", function, "] p must be from 0 to 1, got ", p);
  // Meta: the seed of a fake tensor.
  TORCH_CHECK_VALUE(
      seed.sym_numel() == 1 && seed.scalar_type() == at::kLong && (seed.is_cpu() || seed.is_meta()),
      "[", function, "] seed must be one int64 on the CPU, got ", seed.scalar_type(), " ",
      seed.sym_sizes(), " on ", seed.device());
}

/// `seed` has memory: with a meta tensor, the dispatcher calls the meta kernel.
Dropout DropoutOf(const Tensor& seed, double p) {
  return {.p = p, .seed = static_cast<uint64_t>(*seed.const_data_ptr<int64_t>())};
}

// ---- dropout(x), x times the factors of dropout_norm.h

Tensor CallDropout(const Tensor& x, const Tensor& seed, double p) {
  static const auto op =
      FindOperator<Tensor(const Tensor&, const Tensor&, double)>("planish::dropout");
  return op.call(x, seed, p);
}

Tensor DropoutMeta(const Tensor& x, const Tensor& seed, double p) {
  CheckX("dropout", x, 1);
  CheckDropout("dropout", seed, p);
  return EmptyOn(x, x.sym_sizes(), x.scalar_type());
}

Tensor DropoutCpu(const Tensor& x_, const Tensor& seed, double p) {
  Tensor out = DropoutMeta(x_, seed, p);
  const Tensor x = x_.contiguous();
  const internal::DropoutMask mask(DropoutOf(seed, p));
  const int64_t cols = x.size(-1), rows = cols == 0 ? 0 : x.numel() / cols;
  ByTypes(x, {}, [&]<class T, class P>() {
    internal::DropoutRows<T>(Array<const T>(x), 0, rows, cols, mask, TorchParallelFor,
                             Array<T>(out));
  });
  return out;
}

/// Returns the factors of the elements of x.
Tensor FactorsOf(const Tensor& x, const Tensor& seed, double p) {
  const at::TensorOptions options = at::TensorOptions(x.scalar_type()).device(at::kCPU);
  return CallDropout(at::ones_symint(x.sym_sizes(), options), seed, p).to(x.device());
}

/// dropout with PyTorch's operators.
Tensor ComposedDropout(const Tensor& x, const Tensor& seed, double p) {
  CheckX("dropout", x, 1);
  CheckDropout("dropout", seed, p);
  return x * FactorsOf(x, seed, p);
}

Tensor DropoutAutograd(const Tensor& x, const Tensor& seed, double p) {
  if (AnyTangent(x)) return ComposedDropout(x, seed, p);
  const auto forward = [&] { return CallDropout(x, seed, p); };
  if (!torch::autograd::compute_requires_grad(x)) return BelowAutograd(forward);
  return WithHistory(
      "PlanishDropoutBackward", {x}, forward, [&](const Tensor&) { return Tensors{seed}; },
      [](const Tensor& y) { return Tensors{y}; },
      [p](const Tensors& g, const Tensors& kept, const auto&) {
        return Tensors{g[0].defined() ? CallDropout(g[0], kept[0], p) : Tensor()};
      });
}

// ---- dropout_norm_forward

/// `statistics` is undefined unless they are saved.
struct DropoutNormOutputs {
  Tensor y, sum, statistics;
};

struct DropoutNormInputs {
  const Tensor &x, &residual;
  const OptionalTensor &weight, &bias;
  const Tensor& seed;
};

NormSpec DropoutSpecOf(std::string_view norm, double eps) {
  return {.norm = FindNamed("dropout_norm_forward", "norm", internal::kNormNames, norm).norm,
          .eps = eps};
}

DropoutNormOutputs CallForward(const DropoutNormInputs& in, const NormSpec& spec, double p,
                               bool save) {
  static const auto op = FindOperator<OperatorTriple(
      const Tensor&, const Tensor&, const OptionalTensor&, const OptionalTensor&, const Tensor&,
      std::string_view, double, double, bool)>("planish::dropout_norm_forward");
  auto [y, sum, statistics] =
      op.call(in.x, in.residual, in.weight, in.bias, in.seed, NameOf(spec.norm), spec.eps, p, save);
  return {std::move(y), std::move(sum), std::move(statistics)};
}

DropoutNormOutputs EmptyForward(const DropoutNormInputs& in, const NormSpec& spec, double p,
                                bool save) {
  CheckNormForward(spec, in.x, in.weight, in.bias);
  CheckLike("dropout_norm_forward", "residual", in.residual, in.x);
  CheckDropout("dropout_norm_forward", in.seed, p);
  for (const OptionalTensor* t : {&in.weight, &in.bias}) {
    TORCH_CHECK_VALUE(!*t || (*t)->dim() == 1, "[dropout_norm_forward] weight and bias must have ",
                      "1 dimension, got ", OrUndefined(*t).dim());
  }
  const NormOutputs outputs = planish::EmptyForward(spec, in.x, in.weight, save);
  return {outputs.y, EmptyOutput(spec, in.x), outputs.statistics};
}

DropoutNormOutputs ForwardMeta(const Tensor& x, const Tensor& residual,
                               const OptionalTensor& weight, const OptionalTensor& bias,
                               const Tensor& seed, std::string_view norm, double eps, double p,
                               bool save) {
  return EmptyForward({x, residual, weight, bias, seed}, DropoutSpecOf(norm, eps), p, save);
}

DropoutNormOutputs ForwardCpu(const Tensor& x_, const Tensor& residual_,
                              const OptionalTensor& weight_, const OptionalTensor& bias_,
                              const Tensor& seed, std::string_view norm, double eps, double p,
                              bool save) {
  const NormSpec spec = DropoutSpecOf(norm, eps);
  DropoutNormOutputs out = EmptyForward({x_, residual_, weight_, bias_, seed}, spec, p, save);
  const Tensor x = x_.contiguous(), residual = residual_.contiguous();
  const Tensor weight = Contiguous(OrUndefined(weight_)), bias = Contiguous(OrUndefined(bias_));
  const internal::Recipe recipe = internal::RecipeOf(spec.norm);
  ByTypes(x, weight.defined() ? weight : bias, [&]<class T, class P>() {
    const auto args = WithArrays(WithSizes(DropoutNormForwardArgs<T, P>(), x),
                                 {{"x", x},
                                  {"residual", residual},
                                  {"gain", weight},
                                  {"bias", bias},
                                  {"sum", out.sum},
                                  {"y", out.y},
                                  {"mean", out.statistics, 0},
                                  {"mean_lo", out.statistics, 1},
                                  {"rstd", out.statistics, 2}},
                                 recipe);
    DropoutNormForward<T, P>(spec.norm, args, DropoutOf(seed, p),
                             {.eps = spec.eps, .parallel_for = TorchParallelFor});
  });
  return out;
}

/// dropout_norm_forward with other operators, for tangents, vmap and GPUs.
DropoutNormOutputs ComposedForward(const DropoutNormInputs& in, const NormSpec& spec, double p,
                                   bool save) {
  const Tensor sum = in.residual + CallDropout(in.x, in.seed, p);
  auto [y, statistics] = CallNormForward(sum, in.weight, in.bias, spec, save);
  return {std::move(y), sum, std::move(statistics)};
}

DropoutNormOutputs ForwardComposed(const Tensor& x, const Tensor& residual,
                                   const OptionalTensor& weight, const OptionalTensor& bias,
                                   const Tensor& seed, std::string_view norm, double eps, double p,
                                   bool save) {
  return ComposedForward({x, residual, weight, bias, seed}, DropoutSpecOf(norm, eps), p, save);
}

/// The gradients of x, residual, weight and bias, undefined where they are not wanted.
struct DropoutNormGradients {
  Tensor dx, dresidual, dweight, dbias;
};

/// What the backward pass keeps, and its settings.
struct DropoutNormSaved {
  const Tensor &sum, &statistics, &weight, &seed;
  const NormSpec& spec;
  double p;
  at::ScalarType parameter_type;
};

/// Computes the wanted gradients by one call of the core. All tensors are on the CPU, and dy is
/// defined.
DropoutNormGradients BackwardCpu(const Tensor& dy_, const Tensor& dsum_,
                                 const DropoutNormSaved& saved, const std::array<bool, 4>& mask) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const Tensor dy = dy_.contiguous(), dsum = Contiguous(dsum_), sum = saved.sum.contiguous();
  const Tensor weight = Contiguous(saved.weight);
  const auto empty = [&](bool wanted, c10::SymIntArrayRef sizes, at::ScalarType type) {
    return wanted ? EmptyOn(sum, sizes, type) : Tensor();
  };
  const c10::SymInt cols = sum.sym_size(-1);
  const c10::SymIntArrayRef row(&cols, 1);
  DropoutNormGradients d = {empty(mask[0], sum.sym_sizes(), sum.scalar_type()),
                            empty(mask[1], sum.sym_sizes(), sum.scalar_type()),
                            empty(mask[2], row, saved.parameter_type),
                            empty(mask[3], row, saved.parameter_type)};
  const internal::Recipe recipe = internal::RecipeOf(saved.spec.norm);
  const Tensor& parameter = weight.defined() ? weight : d.dbias;
  ByTypes(sum, parameter, [&]<class T, class P>() {
    const auto args = WithArrays(WithSizes(DropoutNormBackwardArgs<T, P>(), sum),
                                 {{"dy", dy},
                                  {"sum", sum},
                                  {"gain", weight},
                                  {"mean", saved.statistics, 0},
                                  {"mean_lo", saved.statistics, 1},
                                  {"rstd", saved.statistics, 2},
                                  {"dsum", mask[0] || mask[1] ? dsum : Tensor()},
                                  {"dx", d.dx},
                                  {"dresidual", d.dresidual},
                                  {"dgain", d.dweight},
                                  {"dbias", d.dbias}},
                                 recipe);
    DropoutNormBackward<T, P>(saved.spec.norm, args, DropoutOf(saved.seed, saved.p),
                              {.eps = saved.spec.eps, .parallel_for = TorchParallelFor});
  });
  return d;
}

DropoutNormGradients Gradients(const Tensor& dy, const Tensor& dsum, const DropoutNormSaved& saved,
                               const std::array<bool, 4>& mask) {
  if (!dy.defined() && !dsum.defined()) return {};
  Tensor d = dsum, dweight, dbias;
  if (dy.defined()) {
    const Tensor& weight = saved.weight;
    const c10::DispatchKeySet keys = KeysOf(dy) | KeysOf(dsum) | KeysOf(saved.sum) | KeysOf(weight);
    if (!at::GradMode::is_enabled() && RouteOf(keys) != Route::kDispatcher &&
        !AnyTangent(dy, dsum, saved.sum, weight)) {
      return BackwardCpu(dy, dsum, saved, mask);
    }
    NormGradients gradients =
        CallNormBackward(dy, OrNone(dsum), saved.sum, saved.statistics, OrNone(weight), saved.spec,
                         {mask[0] || mask[1], mask[2], mask[3]});
    d = gradients.dx;
    dweight = gradients.dweight;
    dbias = gradients.dbias;
  }
  return {mask[0] ? CallDropout(d, saved.seed, saved.p) : Tensor(), mask[1] ? d : Tensor(), dweight,
          dbias};
}

DropoutNormOutputs ForwardAutograd(const Tensor& x, const Tensor& residual,
                                   const OptionalTensor& weight_, const OptionalTensor& bias_,
                                   const Tensor& seed, std::string_view norm, double eps, double p,
                                   bool save) {
  const Tensor &weight = OrUndefined(weight_), &bias = OrUndefined(bias_);
  const NormSpec spec = DropoutSpecOf(norm, eps);
  const DropoutNormInputs in = {x, residual, weight_, bias_, seed};
  if (AnyTangent(x, residual, weight, bias)) return ComposedForward(in, spec, p, /*save=*/true);
  const bool needed = torch::autograd::compute_requires_grad(x, residual, weight, bias);
  const auto forward = [&] { return CallForward(in, spec, p, save || needed); };
  if (!needed) return BelowAutograd(forward);
  const at::ScalarType type = weight.defined() ? weight.scalar_type()
                              : bias.defined() ? bias.scalar_type()
                                               : x.scalar_type();
  return WithHistory(
      "PlanishDropoutNormBackward", {x, residual, weight, bias}, forward,
      [&](const DropoutNormOutputs& out) { return Tensors{out.sum, out.statistics, weight, seed}; },
      [](const DropoutNormOutputs& out) { return Tensors{out.y, out.sum}; },
      [spec, p, type](const Tensors& g, const Tensors& kept, const auto& wanted) {
        const DropoutNormSaved saved = {kept[0], kept[1], kept[2], kept[3], spec, p, type};
        DropoutNormGradients d =
            Gradients(g[0], g[1], saved, {wanted(0), wanted(1), wanted(2), wanted(3)});
        return Tensors{d.dx, d.dresidual, d.dweight, d.dbias};
      });
}

// ---- Functions that users call

OperatorPair DropoutAddNorm(const char* function, const NormSpec& spec, const Tensor& x_,
                            const Tensor& residual_, c10::SymIntArrayRef normalized_shape,
                            const OptionalTensor& weight_, const OptionalTensor& bias_,
                            const Tensor& seed, double p) {
  CheckDropout(function, seed, p);
  const auto [x, residual] = PromotedSummands(function, x_, residual_);
  TORCH_CHECK_VALUE(!x.is_nested(), "[", function, "] x must be a dense tensor, got a nested one");
  const KernelParameters parameters(x, weight_, bias_);
  const OptionalTensor &weight = parameters.weight(), &bias = parameters.bias();
  const int64_t dims = CheckNormalizedShape(function, x, normalized_shape, weight, bias);
  const auto flat = [&](const OptionalTensor& t) -> OptionalTensor {
    if (!t) return t;
    TORCH_CHECK_VALUE(t->sym_sizes() == normalized_shape, "[", function,
                      "] weight and bias must have normalized_shape, ", normalized_shape, ", got ",
                      t->sym_sizes());
    return t->reshape({-1});
  };
  const auto rows = [&](const Tensor& t) { return dims == 1 ? t : t.flatten(t.dim() - dims); };
  const OptionalTensor w = flat(weight), b = flat(bias);
  const auto [y, sum, statistics] =
      CallForward({rows(x), rows(residual), w, b, seed}, spec, p, /*save=*/false);
  return {y.view_symint(x.sym_sizes()), sum.view_symint(x.sym_sizes())};
}

OperatorPair DropoutAddLayerNorm(const Tensor& x, const Tensor& residual,
                                 c10::SymIntArrayRef normalized_shape, const OptionalTensor& weight,
                                 const OptionalTensor& bias, const Tensor& seed, double p,
                                 double eps) {
  return DropoutAddNorm("dropout_add_layer_norm", {.eps = eps}, x, residual, normalized_shape,
                        weight, bias, seed, p);
}

OperatorPair DropoutAddRmsNorm(const Tensor& x, const Tensor& residual,
                               c10::SymIntArrayRef normalized_shape, const OptionalTensor& weight,
                               const Tensor& seed, double p, std::optional<double> eps) {
  return DropoutAddNorm("dropout_add_rms_norm",
                        {.norm = Norm::kRms, .eps = RmsEps(at::result_type(x, residual), eps)}, x,
                        residual, normalized_shape, weight, {}, seed, p);
}

}  // namespace

inline namespace PLANISH_API {

OperatorPair dropout_add_layer_norm(const Tensor& x, const Tensor& residual,
                                    at::IntArrayRef normalized_shape, double p, const Tensor& seed,
                                    const OptionalTensor& weight, const OptionalTensor& bias,
                                    double eps) {
  return DropoutAddLayerNorm(x, residual, c10::fromIntArrayRefSlow(normalized_shape), weight, bias,
                             seed, p, eps);
}

OperatorPair dropout_add_rms_norm(const Tensor& x, const Tensor& residual,
                                  at::IntArrayRef normalized_shape, double p, const Tensor& seed,
                                  const OptionalTensor& weight, std::optional<double> eps) {
  return DropoutAddRmsNorm(x, residual, c10::fromIntArrayRefSlow(normalized_shape), weight, seed, p,
                           eps);
}

}  // namespace PLANISH_API

TORCH_LIBRARY_FRAGMENT(planish, m) {
  m.def("dropout(Tensor x, Tensor seed, float p) -> Tensor");
  m.def(
      "dropout_norm_forward(Tensor x, Tensor residual, Tensor? weight, Tensor? bias, Tensor seed, "
      "str norm, float eps, float p, bool save) -> (Tensor y, Tensor sum, Tensor statistics)");
  m.def(
      "dropout_add_layer_norm(Tensor x, Tensor residual, SymInt[] normalized_shape, Tensor? "
      "weight, "
      "Tensor? bias, Tensor seed, float p, float eps=1e-05) -> (Tensor y, Tensor sum)");
  m.def(
      "dropout_add_rms_norm(Tensor x, Tensor residual, SymInt[] normalized_shape, Tensor? weight, "
      "Tensor seed, float p, float? eps=None) -> (Tensor y, Tensor sum)");
}

TORCH_LIBRARY_IMPL(planish, CPU, m) {
  m.impl("dropout", DropoutCpu);
  m.impl("dropout_norm_forward", TupleKernel<ForwardCpu>::Call);
}

TORCH_LIBRARY_IMPL(planish, CUDA, m) {
  m.impl("dropout", ComposedDropout);
  m.impl("dropout_norm_forward", TupleKernel<ForwardComposed>::Call);
}

TORCH_LIBRARY_IMPL(planish, Meta, m) {
  m.impl("dropout", DropoutMeta);
  m.impl("dropout_norm_forward", TupleKernel<ForwardMeta>::Call);
}

TORCH_LIBRARY_IMPL(planish, Autograd, m) {
  m.impl("dropout", DropoutAutograd);
  m.impl("dropout_norm_forward", TupleKernel<ForwardAutograd>::Call);
}

TORCH_LIBRARY_IMPL(planish, FuncTorchBatched, m) {
  m.impl("dropout", ComposedDropout);
  m.impl("dropout_norm_forward", TupleKernel<ForwardComposed>::Call);
}

void RegisterDropoutFunctions(torch::Library& m) {
  m.impl("dropout_add_layer_norm", DropoutAddLayerNorm);
  m.impl("dropout_add_rms_norm", DropoutAddRmsNorm);
}

TORCH_LIBRARY_IMPL(planish, CompositeImplicitAutograd, m) { RegisterDropoutFunctions(m); }
TORCH_LIBRARY_IMPL(planish, FuncTorchBatchedDecomposition, m) { RegisterDropoutFunctions(m); }

}  // namespace planish
