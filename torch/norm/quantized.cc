#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "planish/torch_norm.h"
#include "src/norm/rows/quantize.h"
#include "torch/base/autograd.h"
#include "torch/base/device.h"
#include "torch/base/route.h"
#include "torch/norm/derivatives.h"
#include "torch/norm/gains.h"
#include "torch/norm/gated.h"
#include "torch/norm/kernels.h"
#include "torch/norm/levels.h"
#include "torch/norm/ops.h"

// Norms of rows whose output is quantized to int8 with a scale for each row, for inference. The
// equation is in planish/norm.h. Only the sum with a residual has derivatives.
namespace planish {

namespace {

using at::Tensor;

// `sum` is None without a residual. `scale` has size 1 in the last dimension.
constexpr char kQuantizedForward[] =
    "quantized_norm_forward(Tensor x, Tensor? residual, Tensor? gate, Tensor? weight, Tensor? "
    "bias, str norm, int over, float eps, bool gate_before_norm, bool cast_before_weight) -> "
    "(Tensor quantized, Tensor scale, Tensor sum)";
// Computes quantized_norm_forward with PyTorch's operators.
constexpr char kQuantizedComposed[] =
    "quantized_norm_composed(Tensor x, Tensor? residual, Tensor? gate, Tensor? weight, Tensor? "
    "bias, str norm, int over, float eps, bool gate_before_norm, bool cast_before_weight) -> "
    "(Tensor quantized, Tensor scale, Tensor sum)";

struct Quantized {
  Tensor quantized, scale, sum;
};

NormSpec QuantizedSpecOf(std::string_view norm, int64_t over, double eps, bool gate_before_norm,
                         bool cast_before_weight) {
  return GatedSpecOf("quantized_norm_forward", norm, over, eps, gate_before_norm,
                     cast_before_weight);
}

void CheckQuantized(const NormSpec& spec, const Tensor& residual, const GatedInputs& in) {
  CheckGated(spec, in);
  if (residual.defined()) CheckLike("quantized_norm_forward", "residual", residual, in.x);
}

/// Returns a tensor for the scales, which the kernels store like one row of statistics.
Tensor EmptyScale(const Tensor& x, const Tensor& weight) {
  std::vector<c10::SymInt> sizes = x.sym_sizes().vec();
  sizes.back() = 1;
  std::rotate(sizes.begin(), sizes.end() - 1, sizes.end());
  return EmptyStatistics(x, OrNone(weight), sizes).squeeze(0).unsqueeze(-1);
}

Quantized EmptyQuantized(const NormSpec& spec, const Tensor& residual, const GatedInputs& in) {
  return {EmptyOn(in.x, in.x.sym_sizes(), at::kChar), EmptyScale(in.x, in.weight),
          residual.defined() ? EmptyOutput(spec, in.x) : Tensor()};
}

Quantized ComposedQuantized(const NormSpec& spec, const Tensor& residual, const GatedInputs& in) {
  const Tensor sum = residual.defined() ? in.x + residual : Tensor();
  const GatedInputs from(sum.defined() ? sum : in.x, in.gate, in.weight, in.bias);
  const Tensor y = ComposedWideGatedNorm(spec, from, ComposedGatedStatistics(spec, from));
  if (y.sym_size(-1) == 0) {
    auto sizes = y.sym_sizes().vec();
    sizes.back() = 1;
    const double nan = std::numeric_limits<double>::quiet_NaN();
    return {y.to(at::kChar), at::full_symint(sizes, nan, y.options()), sum};
  }
  const double least = y.scalar_type() == at::kDouble ? internal::kLeastQuantized<double>
                                                      : double{internal::kLeastQuantized<float>};
  const Tensor max = y.abs().amax({-1}, /*keepdim=*/true);
  const Tensor is_finite = max.isfinite(), is_normal = is_finite & (max >= least);
  const Tensor scale = at::where(is_normal, max / 127, 0.0);
  // A division: PyTorch computes 127 / max as the product with a reciprocal.
  const Tensor scaled = at::where(is_normal, y * at::full_like(max, 127).div(max), 0.0);
  return {scaled.round().to(at::kChar),
          at::where(is_finite, scale, std::numeric_limits<double>::quiet_NaN()), sum};
}

Quantized QuantizedComposed(const Tensor& x, const OptionalTensor& residual,
                            const OptionalTensor& gate, const OptionalTensor& weight,
                            const OptionalTensor& bias, std::string_view norm, int64_t over,
                            double eps, bool gate_before_norm, bool cast_before_weight) {
  const NormSpec spec = QuantizedSpecOf(norm, over, eps, gate_before_norm, cast_before_weight);
  const GatedInputs in(x, gate, weight, bias);
  CheckQuantized(spec, OrUndefined(residual), in);
  return ComposedQuantized(spec, OrUndefined(residual), in);
}

// ---- Kernels

Quantized QuantizedForwardMeta(const Tensor& x, const OptionalTensor& residual,
                               const OptionalTensor& gate, const OptionalTensor& weight,
                               const OptionalTensor& bias, std::string_view norm, int64_t over,
                               double eps, bool gate_before_norm, bool cast_before_weight) {
  const NormSpec spec = QuantizedSpecOf(norm, over, eps, gate_before_norm, cast_before_weight);
  const GatedInputs in(x, gate, weight, bias);
  CheckQuantized(spec, OrUndefined(residual), in);
  return EmptyQuantized(spec, OrUndefined(residual), in);
}

Quantized RunQuantizedForward(const NormSpec& spec, const Tensor& residual, const GatedInputs& in) {
  CheckQuantized(spec, residual, in);
  Quantized out = EmptyQuantized(spec, residual, in);
  RunNormForward(spec, {.x = in.x,
                        .residual = residual,
                        .gate = in.gate,
                        .weight = in.weight,
                        .bias = in.bias,
                        .y = {},
                        .sum = out.sum,
                        .statistics = {},
                        .quantized = out.quantized,
                        .row_scale = out.scale});
  return out;
}

Quantized QuantizedForward(const Tensor& x, const OptionalTensor& residual,
                           const OptionalTensor& gate, const OptionalTensor& weight,
                           const OptionalTensor& bias, std::string_view norm, int64_t over,
                           double eps, bool gate_before_norm, bool cast_before_weight) {
  return RunQuantizedForward(QuantizedSpecOf(norm, over, eps, gate_before_norm, cast_before_weight),
                             OrUndefined(residual), {x, gate, weight, bias});
}

// ---- Autograd and vmap

Quantized CallQuantizedForward(const NormSpec& spec, const Tensor& residual, const GatedInputs& in);

/// The sum with a residual is an operator of its own if it has derivatives.
Quantized RunQuantizedForwardAutograd(const NormSpec& spec, const Tensor& residual,
                                      const GatedInputs& in) {
  CheckQuantized(spec, residual, in);
  if (!residual.defined() || !NeedDerivatives(in.x, residual)) {
    return BelowAutograd([&] { return CallQuantizedForward(spec, residual, in); });
  }
  const Tensor sum = in.x + residual;
  Quantized out = BelowAutograd(
      [&] { return CallQuantizedForward(spec, {}, {sum.detach(), in.gate, in.weight, in.bias}); });
  out.sum = sum;
  return out;
}

Quantized QuantizedForwardAutograd(const Tensor& x, const OptionalTensor& residual,
                                   const OptionalTensor& gate, const OptionalTensor& weight,
                                   const OptionalTensor& bias, std::string_view norm, int64_t over,
                                   double eps, bool gate_before_norm, bool cast_before_weight) {
  return RunQuantizedForwardAutograd(
      QuantizedSpecOf(norm, over, eps, gate_before_norm, cast_before_weight), OrUndefined(residual),
      {x, gate, weight, bias});
}

Quantized QuantizedForwardBatched(const Tensor& x_, const OptionalTensor& residual_,
                                  const OptionalTensor& gate_, const OptionalTensor& weight_,
                                  const OptionalTensor& bias_, std::string_view norm, int64_t over,
                                  double eps, bool gate_before_norm, bool cast_before_weight) {
  const NormSpec spec = QuantizedSpecOf(norm, over, eps, gate_before_norm, cast_before_weight);
  const GatedInputs given(x_, gate_, weight_, bias_);
  CheckQuantized(spec, OrUndefined(residual_), given);
  const Level level;
  const Mapped x = level.Unwrap(given.x), residual = level.Unwrap(OrUndefined(residual_)),
               gate = level.Unwrap(given.gate), weight = level.Unwrap(given.weight),
               bias = level.Unwrap(given.bias);
  if (!CanFold(spec, {x, residual, gate}, {weight, bias}) ||
      !KernelsTake(x.tensor, weight.tensor)) {
    return ComposedQuantized(spec, OrUndefined(residual_), given);
  }
  const c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::FuncTorchBatched);
  const Quantized out = CallQuantizedForward(spec, residual.tensor,
                                             {x.tensor, gate.tensor, weight.tensor, bias.tensor});
  return {level.Wrap(out.quantized), level.Wrap(out.scale),
          out.sum.defined() ? level.Wrap(out.sum) : Tensor()};
}

// ---- Calls of the primitive

Quantized CallQuantizedForward(const NormSpec& spec, const Tensor& residual,
                               const GatedInputs& in) {
  switch (RouteOf(in.keys() | KeysOf(residual))) {
    case Route::kAutograd:
      if (residual.defined() && NeedDerivatives(in.x, residual)) {
        return RunQuantizedForwardAutograd(spec, residual, in);
      }
      [[fallthrough]];
    case Route::kCpu:
      return RunQuantizedForward(spec, residual, in);
    case Route::kDispatcher:
      break;
  }
  static const auto op =
      FindOperator<OperatorTriple(const Tensor&, const OptionalTensor&, const OptionalTensor&,
                                  const OptionalTensor&, const OptionalTensor&, std::string_view,
                                  int64_t, double, bool, bool)>("planish::quantized_norm_forward");
  auto [quantized, scale, sum] =
      op.call(in.x, OrNone(residual), OrNone(in.gate), OrNone(in.weight), OrNone(in.bias),
              NameOf(spec.norm), static_cast<int64_t>(spec.over), spec.eps, spec.gate_before_norm,
              spec.cast_before_weight);
  return {std::move(quantized), std::move(scale), std::move(sum)};
}

// ---- Functions that users call

OperatorPair QuantizedRowNorm(const char* function, const NormSpec& spec, const Tensor& x,
                              const OptionalTensor& gate, c10::SymIntArrayRef normalized_shape,
                              const OptionalTensor& weight, const OptionalTensor& bias) {
  const GatedRows rows(function, x, gate, normalized_shape, weight, bias);
  const Quantized out = CallQuantizedForward(spec, {}, rows.inputs());
  return {rows.rows().Out(out.quantized), rows.rows().OutOfRows(out.scale)};
}

OperatorTriple AddQuantizedRowNorm(const char* function, const NormSpec& spec, const Tensor& x_,
                                   const Tensor& residual_, c10::SymIntArrayRef normalized_shape,
                                   const OptionalTensor& weight, const OptionalTensor& bias) {
  const auto [x, residual] = PromotedSummands(function, x_, residual_);
  const GatedRows rows(function, x, {}, normalized_shape, weight, bias);
  const Quantized out = CallQuantizedForward(spec, rows.rows().In(residual), rows.inputs());
  return {rows.rows().Out(out.quantized), rows.rows().OutOfRows(out.scale),
          rows.rows().Out(out.sum)};
}

OperatorPair QuantizedLayerNorm(const Tensor& x, c10::SymIntArrayRef normalized_shape,
                                const OptionalTensor& weight, const OptionalTensor& bias,
                                double eps, const OptionalTensor& gate, bool norm_before_gate,
                                bool cast_before_weight) {
  return QuantizedRowNorm("quantized_layer_norm",
                          {.norm = Norm::kLayer,
                           .eps = eps,
                           .gate_before_norm = !norm_before_gate,
                           .cast_before_weight = cast_before_weight},
                          x, gate, normalized_shape, weight, bias);
}

OperatorPair QuantizedRmsNorm(const Tensor& x, c10::SymIntArrayRef normalized_shape,
                              const OptionalTensor& weight, std::optional<double> eps,
                              const OptionalTensor& gate, bool norm_before_gate,
                              bool cast_before_weight) {
  return QuantizedRowNorm("quantized_rms_norm",
                          {.norm = Norm::kRms,
                           .eps = RmsEps(x.scalar_type(), eps),
                           .gate_before_norm = !norm_before_gate,
                           .cast_before_weight = cast_before_weight},
                          x, gate, normalized_shape, weight, {});
}

OperatorTriple AddQuantizedLayerNorm(const Tensor& x, const Tensor& residual,
                                     c10::SymIntArrayRef normalized_shape,
                                     const OptionalTensor& weight, const OptionalTensor& bias,
                                     double eps) {
  return AddQuantizedRowNorm("add_quantized_layer_norm", {.eps = eps}, x, residual,
                             normalized_shape, weight, bias);
}

OperatorTriple AddQuantizedRmsNorm(const Tensor& x, const Tensor& residual,
                                   c10::SymIntArrayRef normalized_shape,
                                   const OptionalTensor& weight, std::optional<double> eps) {
  return AddQuantizedRowNorm("add_quantized_rms_norm",
                             {.norm = Norm::kRms, .eps = RmsEps(at::result_type(x, residual), eps)},
                             x, residual, normalized_shape, weight, {});
}

}  // namespace

inline namespace PLANISH_API {

std::tuple<Tensor, Tensor> quantized_layer_norm(const Tensor& x, at::IntArrayRef normalized_shape,
                                                const OptionalTensor& weight,
                                                const OptionalTensor& bias, double eps,
                                                const OptionalTensor& gate, bool norm_before_gate,
                                                bool cast_before_weight) {
  return QuantizedLayerNorm(x, c10::fromIntArrayRefSlow(normalized_shape), weight, bias, eps, gate,
                            norm_before_gate, cast_before_weight);
}

std::tuple<Tensor, Tensor> quantized_rms_norm(const Tensor& x, at::IntArrayRef normalized_shape,
                                              const OptionalTensor& weight,
                                              std::optional<double> eps, const OptionalTensor& gate,
                                              bool norm_before_gate, bool cast_before_weight) {
  return QuantizedRmsNorm(x, c10::fromIntArrayRefSlow(normalized_shape), weight, eps, gate,
                          norm_before_gate, cast_before_weight);
}

std::tuple<Tensor, Tensor, Tensor> add_quantized_layer_norm(const Tensor& x, const Tensor& residual,
                                                            at::IntArrayRef normalized_shape,
                                                            const OptionalTensor& weight,
                                                            const OptionalTensor& bias,
                                                            double eps) {
  return AddQuantizedLayerNorm(x, residual, c10::fromIntArrayRefSlow(normalized_shape), weight,
                               bias, eps);
}

std::tuple<Tensor, Tensor, Tensor> add_quantized_rms_norm(const Tensor& x, const Tensor& residual,
                                                          at::IntArrayRef normalized_shape,
                                                          const OptionalTensor& weight,
                                                          std::optional<double> eps) {
  return AddQuantizedRmsNorm(x, residual, c10::fromIntArrayRefSlow(normalized_shape), weight, eps);
}

}  // namespace PLANISH_API

TORCH_LIBRARY_FRAGMENT(planish, m) {
  m.def(kQuantizedForward);
  m.def(kQuantizedComposed);
  m.def(
      "quantized_layer_norm(Tensor x, SymInt[] normalized_shape, Tensor? weight=None, Tensor? "
      "bias=None, float eps=1e-05, Tensor? gate=None, bool norm_before_gate=True, bool "
      "cast_before_weight=False) -> (Tensor quantized, Tensor scale)");
  m.def(
      "quantized_rms_norm(Tensor x, SymInt[] normalized_shape, Tensor? weight=None, float? "
      "eps=None, Tensor? gate=None, bool norm_before_gate=True, bool cast_before_weight=False) -> "
      "(Tensor quantized, Tensor scale)");
  m.def(
      "add_quantized_layer_norm(Tensor x, Tensor residual, SymInt[] normalized_shape, Tensor? "
      "weight=None, Tensor? bias=None, float eps=1e-05) -> (Tensor quantized, Tensor scale, Tensor "
      "sum)");
  m.def(
      "add_quantized_rms_norm(Tensor x, Tensor residual, SymInt[] normalized_shape, Tensor? "
      "weight=None, float? eps=None) -> (Tensor quantized, Tensor scale, Tensor sum)");
}

TORCH_LIBRARY_IMPL(planish, CPU, m) {
  m.impl("quantized_norm_forward", TupleKernel<QuantizedForward>::Call);
}
TORCH_LIBRARY_IMPL(planish, CUDA, m) {
  m.impl("quantized_norm_forward", TupleKernel<QuantizedForward>::Call);
}
TORCH_LIBRARY_IMPL(planish, Meta, m) {
  m.impl("quantized_norm_forward", TupleKernel<QuantizedForwardMeta>::Call);
}
TORCH_LIBRARY_IMPL(planish, Autograd, m) {
  m.impl("quantized_norm_forward", TupleKernel<QuantizedForwardAutograd>::Call);
}
TORCH_LIBRARY_IMPL(planish, FuncTorchBatched, m) {
  m.impl("quantized_norm_forward", TupleKernel<QuantizedForwardBatched>::Call);
}

void RegisterQuantizedComposites(torch::Library& m) {
  m.impl("quantized_norm_composed", TupleKernel<QuantizedComposed>::Call);
  m.impl("quantized_layer_norm", QuantizedLayerNorm);
  m.impl("quantized_rms_norm", QuantizedRmsNorm);
  m.impl("add_quantized_layer_norm", AddQuantizedLayerNorm);
  m.impl("add_quantized_rms_norm", AddQuantizedRmsNorm);
}

TORCH_LIBRARY_IMPL(planish, CompositeImplicitAutograd, m) { RegisterQuantizedComposites(m); }
TORCH_LIBRARY_IMPL(planish, FuncTorchBatchedDecomposition, m) { RegisterQuantizedComposites(m); }

}  // namespace planish
