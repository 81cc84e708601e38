#include "torch/norm/ops.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/result_type.h>
#include <ATen/record_function.h>
#include <torch/library.h>

#include <array>
#include <limits>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "planish/torch_norm.h"
#include "torch/base/autograd.h"
#include "torch/base/route.h"
#include "torch/norm/derivatives.h"
#include "torch/norm/gains.h"
#include "torch/norm/kernels.h"

// The norms as PyTorch operators. The primitives norm_forward, add_norm_forward and norm_backward
// have kernels for every backend and for autograd. The functions that users call are composed of
// them.
namespace planish {

namespace {

using at::Tensor;

constexpr char kForward[] =
    "norm_forward(Tensor x, Tensor? weight, Tensor? bias, str norm, int over, float eps, float "
    "scale, float slope, bool unbiased, bool save) -> (Tensor y, Tensor statistics)";
// Computes norm_forward with PyTorch's operators, for programs that run without this library.
constexpr char kComposed[] =
    "norm_composed(Tensor x, Tensor? weight, Tensor? bias, str norm, int over, float eps, float "
    "scale, float slope, bool unbiased) -> (Tensor y, Tensor statistics)";
constexpr char kAddForward[] =
    "add_norm_forward(Tensor x, Tensor residual, Tensor? weight, Tensor? bias, str norm, int over, "
    "float eps, bool save) -> (Tensor y, Tensor sum, Tensor statistics)";
constexpr char kBackward[] =
    "norm_backward(Tensor? dy, Tensor? dsum, Tensor x, Tensor statistics, Tensor? weight, str "
    "norm, "
    "int over, float eps, float scale, float slope, bool unbiased, bool[3] mask) -> (Tensor dx, "
    "Tensor dweight, Tensor dbias)";

// ---- Checks

Norm NormOf(const char* function, std::string_view name) {
  return FindNamed(function, "norm", internal::kNormNames, name).norm;
}

/// Checks a weight and bias that have dimensions before the features.
void CheckGains(const char* function, const Tensor& x, const OptionalTensor& weight,
                const OptionalTensor& bias) {
  TORCH_CHECK_VALUE(weight, "[", function, "] weight must be given with a bias of ",
                    bias->sym_sizes(), ", got none");
  TORCH_CHECK_VALUE(!bias || bias->sym_sizes() == weight->sym_sizes(), "[", function,
                    "] bias must have weight's sizes, ", weight->sym_sizes(), ", got ",
                    OrElse(bias, *weight).sym_sizes());
  TORCH_CHECK_VALUE(BroadcastsTo(*weight, x, 1) && KernelsTake(x, *weight), "[", function,
                    "] weight must have x's sizes along its first or last rows and 1 elsewhere, ",
                    x.sym_sizes(), ", got ", weight->sym_sizes());
  CheckParameterType(function, "weight", weight, x);
  CheckParameterType(function, "bias", bias, x);
  CheckSameType(function, weight, bias);
}

void CheckSpec(const NormSpec& spec, const Tensor& x) {
  const char* function = FunctionOf(spec);
  CheckX(function, x, spec.over == Over::kRow ? 1 : 2);
  CheckEps(function, spec.eps);
  CheckFinite(function, "C", spec.scale);
  CheckFinite(function, "k", spec.slope);
  TORCH_CHECK_VALUE(
      spec.norm != Norm::kAdaAsCoded || x.sym_size(FeatureDim(spec, x)) >= 2, "[", function,
      "] x must have at least 2 elements in a row for the unbiased deviation, got ", x.sym_sizes());
}

void CheckBackward(const NormSpec& spec, const OptionalTensor& dy, const OptionalTensor& dsum,
                   const Tensor& x, const Tensor& statistics, const OptionalTensor& weight,
                   const Mask& mask) {
  CheckNormForward(spec, x, weight, std::nullopt);
  TORCH_CHECK_VALUE(dy, "[norm_backward] dy must be a tensor, got none");
  CheckLike("norm_backward", "dy", *dy, x);
  if (dsum) {
    TORCH_CHECK_VALUE(spec.over == Over::kRow, "[norm_backward] dsum must be left out, got ",
                      dsum->sym_sizes());
    CheckLike("norm_backward", "dsum", *dsum, x);
  }
  TORCH_CHECK_VALUE(IsAffine(spec.norm) || (!mask[1] && !mask[2]),
                    "[norm_backward] mask must select only dx, got also dweight or dbias");
  const auto sizes = StatisticsSizes(spec, x);
  TORCH_CHECK_VALUE(statistics.sym_sizes().equals(sizes) &&
                        statistics.scalar_type() == ComputeType(x.scalar_type()) &&
                        statistics.device() == x.device(),
                    "[norm_backward] statistics must have ", c10::SymIntArrayRef(sizes), " ",
                    ComputeType(x.scalar_type()), " on ", x.device(), ", got ",
                    statistics.sym_sizes(), " ", statistics.scalar_type(), " on ",
                    statistics.device());
}

}  // namespace

NormSpec SpecOf(std::string_view norm, int64_t over, double eps, double scale, double slope,
                bool unbiased) {
  TORCH_CHECK_VALUE(over >= 0 && over <= static_cast<int64_t>(Over::kBatch),
                    "[norm_forward] over must be 0 (rows), 1 (channels) or 2 (the batch), got ",
                    over);
  const NormSpec spec = {
      NormOf("norm_forward", norm), static_cast<Over>(over), eps, scale, slope, unbiased};
  TORCH_CHECK_VALUE(spec.over != Over::kBatch || spec.norm == Norm::kLayer,
                    "[norm_forward] norm must be layer over the batch, got ", norm);
  return spec;
}

void CheckNormForward(const NormSpec& spec, const Tensor& x, const OptionalTensor& weight,
                      const OptionalTensor& bias) {
  CheckSpec(spec, x);
  const char* function = FunctionOf(spec);
  TORCH_CHECK_VALUE(IsAffine(spec.norm) || (!weight && !bias), "[", function,
                    "] weight and bias must be left out, got a tensor");
  if (spec.over == Over::kRow && (HasGains(weight) || HasGains(bias))) {
    CheckGains(function, x, weight, bias);
  } else {
    CheckParameters(function, weight, bias, x, x.sym_size(FeatureDim(spec, x)));
  }
}

Tensor EmptyOutput(const NormSpec& spec, const Tensor& x) {
  return EmptyOn(x, x.sym_sizes(), x.scalar_type(), FormatOf(spec, x));
}

NormGradients EmptyGradients(const NormSpec& spec, const Tensor& x, const OptionalTensor& weight,
                             const Mask& mask) {
  const auto vector = [&](bool wanted) {
    if (!wanted) return Tensor();
    if (HasGains(weight)) return EmptyOn(x, weight->sym_sizes(), weight->scalar_type());
    return EmptyOn(x, {x.sym_size(FeatureDim(spec, x))}, OrElse(weight, x).scalar_type());
  };
  return {mask[0] ? EmptyOutput(spec, x) : Tensor(), vector(mask[1]), vector(mask[2])};
}

Tensor EmptyStatistics(const Tensor& x, const OptionalTensor& weight, c10::SymIntArrayRef sizes) {
  const at::ScalarType type = ComputeType(x.scalar_type());
  if (!HasGains(weight)) return EmptyOn(x, sizes, type);
  const std::vector<int64_t> order = StatisticsOrder(x, *weight);
  std::vector<c10::SymInt> stored;
  for (const int64_t d : order) stored.push_back(sizes[static_cast<size_t>(d)]);
  return EmptyOn(x, stored, type).permute(InverseOf(order));
}

namespace {

/// Returns an undefined tensor (None in Python) unless `save`.
Tensor StatisticsToSave(const NormSpec& spec, const Tensor& x, const OptionalTensor& weight,
                        bool save) {
  return save ? EmptyStatistics(x, weight, StatisticsSizes(spec, x)) : Tensor();
}

}  // namespace

NormOutputs EmptyForward(const NormSpec& spec, const Tensor& x, const OptionalTensor& weight,
                         bool save) {
  return {EmptyOutput(spec, x), StatisticsToSave(spec, x, weight, save)};
}

namespace {

/// The results of add_norm_forward. `statistics` is undefined unless they are saved.
struct AddNormOutputs {
  Tensor y, sum, statistics;
};

// ---- Kernels

NormOutputs ForwardMeta(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                        std::string_view norm, int64_t over, double eps, double scale, double slope,
                        bool unbiased, bool save) {
  const NormSpec spec = SpecOf(norm, over, eps, scale, slope, unbiased);
  CheckNormForward(spec, x, weight, bias);
  return EmptyForward(spec, x, weight, save);
}

NormOutputs RunForward(const NormSpec& spec, const Tensor& x, const OptionalTensor& weight,
                       const OptionalTensor& bias, bool save) {
  CheckNormForward(spec, x, weight, bias);
  auto [y, statistics] = EmptyForward(spec, x, weight, save);
  RunNormForward(spec, {.x = x,
                        .residual = {},
                        .gate = {},
                        .weight = OrUndefined(weight),
                        .bias = OrUndefined(bias),
                        .y = y,
                        .sum = {},
                        .statistics = statistics,
                        .quantized = {},
                        .row_scale = {}});
  return {std::move(y), std::move(statistics)};
}

NormOutputs Forward(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                    std::string_view norm, int64_t over, double eps, double scale, double slope,
                    bool unbiased, bool save) {
  return RunForward(SpecOf(norm, over, eps, scale, slope, unbiased), x, weight, bias, save);
}

NormOutputs Composed(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                     std::string_view norm, int64_t over, double eps, double scale, double slope,
                     bool unbiased) {
  const NormSpec spec = SpecOf(norm, over, eps, scale, slope, unbiased);
  CheckNormForward(spec, x, weight, bias);
  const Tensor statistics = ComposedStatistics(spec, x);
  return {ComposedNorm(spec, {x, statistics, OrUndefined(weight), OrUndefined(bias)}), statistics};
}

/// Returns the settings of add_norm_forward.
NormSpec AddSpecOf(std::string_view norm, int64_t over, double eps) {
  TORCH_CHECK_VALUE(over == static_cast<int64_t>(Over::kRow),
                    "[add_norm_forward] over must be 0 (rows), got ", over);
  return {.norm = NormOf("add_norm_forward", norm), .eps = eps};
}

AddNormOutputs EmptyAddForward(const NormSpec& spec, const Tensor& x, const Tensor& residual,
                               const OptionalTensor& weight, const OptionalTensor& bias,
                               bool save) {
  CheckNormForward(spec, x, weight, bias);
  CheckLike("add_norm_forward", "residual", residual, x);
  return {EmptyOutput(spec, x), EmptyOutput(spec, x), StatisticsToSave(spec, x, weight, save)};
}

AddNormOutputs AddForwardMeta(const Tensor& x, const Tensor& residual, const OptionalTensor& weight,
                              const OptionalTensor& bias, std::string_view norm, int64_t over,
                              double eps, bool save) {
  return EmptyAddForward(AddSpecOf(norm, over, eps), x, residual, weight, bias, save);
}

AddNormOutputs RunAddForward(const NormSpec& spec, const Tensor& x, const Tensor& residual,
                             const OptionalTensor& weight, const OptionalTensor& bias, bool save) {
  auto [y, sum, statistics] = EmptyAddForward(spec, x, residual, weight, bias, save);
  RunNormForward(spec, {.x = x,
                        .residual = residual,
                        .gate = {},
                        .weight = OrUndefined(weight),
                        .bias = OrUndefined(bias),
                        .y = y,
                        .sum = sum,
                        .statistics = statistics,
                        .quantized = {},
                        .row_scale = {}});
  return {std::move(y), std::move(sum), std::move(statistics)};
}

AddNormOutputs AddForward(const Tensor& x, const Tensor& residual, const OptionalTensor& weight,
                          const OptionalTensor& bias, std::string_view norm, int64_t over,
                          double eps, bool save) {
  return RunAddForward(AddSpecOf(norm, over, eps), x, residual, weight, bias, save);
}

NormGradients BackwardMeta(const OptionalTensor& dy, const OptionalTensor& dsum, const Tensor& x,
                           const Tensor& statistics, const OptionalTensor& weight,
                           std::string_view norm, int64_t over, double eps, double scale,
                           double slope, bool unbiased, Mask mask) {
  const NormSpec spec = SpecOf(norm, over, eps, scale, slope, unbiased);
  CheckBackward(spec, dy, dsum, x, statistics, weight, mask);
  return EmptyGradients(spec, x, weight, mask);
}

/// Writes the defined tensors in `gradients`.
void BackwardInto(const NormGradients& gradients, const NormSpec& spec, const OptionalTensor& dy,
                  const OptionalTensor& dsum, const Tensor& x, const Tensor& statistics,
                  const OptionalTensor& weight) {
  RunNormBackward(spec, {.dy = *dy,
                         .dsum = OrUndefined(dsum),
                         .x = x,
                         .gate = {},
                         .statistics = statistics,
                         .weight = OrUndefined(weight),
                         .bias = {},
                         .dx = gradients.dx,
                         .dgate = {},
                         .dweight = gradients.dweight,
                         .dbias = gradients.dbias});
}

NormGradients RunBackward(const NormSpec& spec, const OptionalTensor& dy,
                          const OptionalTensor& dsum, const Tensor& x, const Tensor& statistics,
                          const OptionalTensor& weight, Mask mask) {
  CheckBackward(spec, dy, dsum, x, statistics, weight, mask);
  NormGradients gradients = EmptyGradients(spec, x, weight, mask);
  BackwardInto(gradients, spec, dy, dsum, x, statistics, weight);
  return gradients;
}

NormGradients Backward(const OptionalTensor& dy, const OptionalTensor& dsum, const Tensor& x,
                       const Tensor& statistics, const OptionalTensor& weight,
                       std::string_view norm, int64_t over, double eps, double scale, double slope,
                       bool unbiased, Mask mask) {
  return RunBackward(SpecOf(norm, over, eps, scale, slope, unbiased), dy, dsum, x, statistics,
                     weight, mask);
}

// ---- Autograd

AddNormOutputs CallAddForward(const Tensor& x, const Tensor& residual, const OptionalTensor& weight,
                              const OptionalTensor& bias, const NormSpec& spec, bool save);

/// Computes the gradients. Writes dx over dy if nothing else refers to it, which saves the memory
/// of one gradient, and the time for new pages.
Tensors NormBackward(const NormSpec& spec, Tensor& dy, const Tensor& gradient_of_sum,
                     const Tensor& x, const Tensor& statistics, const Tensor& weight,
                     const Mask& mask) {
  const Tensor dsum = mask[0] ? gradient_of_sum : Tensor();  // only dx depends on it
  if (!dy.defined()) return {dsum, Tensor(), Tensor()};
  if (mask[0] && MayOverwrite(dy, x, FormatOf(spec, x)) && !AnyTangent(dy, dsum, x, weight)) {
    RECORD_FUNCTION("planish::norm_backward", c10::ArrayRef<c10::IValue>());
    const at::AutoDispatchBelowADInplaceOrView below;
    CheckBackward(spec, dy, OrNone(dsum), x, statistics, OrNone(weight), mask);
    NormGradients gradients = EmptyGradients(spec, x, OrNone(weight), {false, mask[1], mask[2]});
    gradients.dx = dy;
    BackwardInto(gradients, spec, dy, OrNone(dsum), x, statistics, OrNone(weight));
    return {std::move(dy), std::move(gradients.dweight), std::move(gradients.dbias)};
  }
  auto [dx, dweight, dbias] =
      CallNormBackward(dy, OrNone(dsum), x, statistics, OrNone(weight), spec, mask);
  return {std::move(dx), std::move(dweight), std::move(dbias)};
}

NormOutputs RunForwardAutograd(const NormSpec& spec, const Tensor& x, const OptionalTensor& weight_,
                               const OptionalTensor& bias_, bool save) {
  const Tensor &weight = OrUndefined(weight_), &bias = OrUndefined(bias_);
  const bool tangents = AnyTangent(x, weight, bias);
  const bool needed = !tangents && torch::autograd::compute_requires_grad(x, weight, bias);
  const auto forward = [&] {
    return CallNormForward(x, weight_, bias_, spec, save || needed || tangents);
  };
  if (needed) {
    return WithHistory(
        "PlanishNormBackward", {x, weight, bias}, forward,
        [&](const NormOutputs& outputs) { return Tensors{x, outputs.statistics, weight}; },
        [](const NormOutputs& outputs) { return Tensors{outputs.y}; },
        [spec](Tensors& g, const Tensors& kept, const auto& wanted) {
          return NormBackward(spec, g[0], {}, kept[0], kept[1], kept[2],
                              {wanted(0), wanted(1), wanted(2)});
        });
  }
  NormOutputs outputs = BelowAutograd(forward);
  if (tangents) outputs.y = ComposedNorm(spec, {x, outputs.statistics, weight, bias});
  return outputs;
}

NormOutputs ForwardAutograd(const Tensor& x, const OptionalTensor& weight,
                            const OptionalTensor& bias, std::string_view norm, int64_t over,
                            double eps, double scale, double slope, bool unbiased, bool save) {
  return RunForwardAutograd(SpecOf(norm, over, eps, scale, slope, unbiased), x, weight, bias, save);
}

AddNormOutputs RunAddForwardAutograd(const NormSpec& spec, const Tensor& x, const Tensor& residual,
                                     const OptionalTensor& weight_, const OptionalTensor& bias_,
                                     bool save) {
  const Tensor &weight = OrUndefined(weight_), &bias = OrUndefined(bias_);
  if (AnyTangent(x, residual, weight, bias)) {
    const Tensor sum = x + residual;
    auto [y, statistics] = CallNormForward(sum, weight_, bias_, spec, /*save=*/true);
    return {std::move(y), sum, std::move(statistics)};
  }
  const bool needed = torch::autograd::compute_requires_grad(x, residual, weight, bias);
  const auto forward = [&] {
    return CallAddForward(x, residual, weight_, bias_, spec, save || needed);
  };
  if (!needed) return BelowAutograd(forward);
  return WithHistory(
      "PlanishAddNormBackward", {x, residual, weight, bias}, forward,
      [&](const AddNormOutputs& outputs) {
        return Tensors{outputs.sum, outputs.statistics, weight};
      },
      [](const AddNormOutputs& outputs) { return Tensors{outputs.y, outputs.sum}; },
      [spec](Tensors& g, const Tensors& kept, const auto& wanted) {
        const Tensors d = NormBackward(spec, g[0], g[1], kept[0], kept[1], kept[2],
                                       {wanted(0) || wanted(1), wanted(2), wanted(3)});
        return Tensors{wanted(0) ? d[0] : Tensor(), wanted(1) ? d[0] : Tensor(), d[1], d[2]};
      });
}

AddNormOutputs AddForwardAutograd(const Tensor& x, const Tensor& residual,
                                  const OptionalTensor& weight, const OptionalTensor& bias,
                                  std::string_view norm, int64_t over, double eps, bool save) {
  return RunAddForwardAutograd(AddSpecOf(norm, over, eps), x, residual, weight, bias, save);
}

/// The statistics are functions of x and have no gradient of their own.
NormGradients RunBackwardAutograd(const NormSpec& spec, const OptionalTensor& dy_,
                                  const OptionalTensor& dsum_, const Tensor& x,
                                  const Tensor& statistics, const OptionalTensor& weight_,
                                  Mask mask) {
  const Tensor &dy = OrUndefined(dy_), &dsum = OrUndefined(dsum_), &weight = OrUndefined(weight_);
  if (AnyTangent(dy, dsum, x, weight)) {
    return ComposedNormBackward(spec, dy, dsum, {x, statistics, weight, {}}, mask);
  }
  const auto backward = [&] {
    return CallNormBackward(dy_, dsum_, x, statistics, weight_, spec, mask);
  };
  if (!torch::autograd::compute_requires_grad(dy, dsum, x, weight)) return BelowAutograd(backward);
  return WithHistory(
      "PlanishNormBackwardBackward", {dy, dsum, x, weight}, backward,
      [&](const NormGradients&) { return Tensors{dy, x, statistics, weight}; },
      [](const NormGradients& d) { return Tensors{d.dx, d.dweight, d.dbias}; },
      [spec](const Tensors& g, const Tensors& kept, const auto& wanted) {
        auto [ddy, dx, dweight] = NormBackwardBackward(spec, {g[0], g[1], g[2]}, kept[0],
                                                       {kept[1], kept[2], kept[3], {}});
        return Tensors{wanted(0) ? ddy : Tensor(), wanted(1) ? g[0] : Tensor(),
                       wanted(2) ? dx : Tensor(), wanted(3) ? dweight : Tensor()};
      });
}

NormGradients BackwardAutograd(const OptionalTensor& dy, const OptionalTensor& dsum,
                               const Tensor& x, const Tensor& statistics,
                               const OptionalTensor& weight, std::string_view norm, int64_t over,
                               double eps, double scale, double slope, bool unbiased, Mask mask) {
  return RunBackwardAutograd(SpecOf(norm, over, eps, scale, slope, unbiased), dy, dsum, x,
                             statistics, weight, mask);
}

// ---- Calls of the primitives

AddNormOutputs CallAddForward(const Tensor& x, const Tensor& residual, const OptionalTensor& weight,
                              const OptionalTensor& bias, const NormSpec& spec, bool save) {
  const Tensor &w = OrUndefined(weight), &b = OrUndefined(bias);
  switch (RouteOf(KeysOf(x) | KeysOf(residual) | KeysOf(w) | KeysOf(b))) {
    case Route::kAutograd:
      if (NeedDerivatives(x, residual, w, b)) {
        return RunAddForwardAutograd(spec, x, residual, weight, bias, save);
      }
      [[fallthrough]];
    case Route::kCpu:
      return RunAddForward(spec, x, residual, weight, bias, save);
    case Route::kDispatcher:
      break;
  }
  static const auto op =
      FindOperator<OperatorTriple(const Tensor&, const Tensor&, const OptionalTensor&,
                                  const OptionalTensor&, std::string_view, int64_t, double, bool)>(
          "planish::add_norm_forward");
  auto [y, sum, statistics] = op.call(x, residual, weight, bias, NameOf(spec.norm),
                                      static_cast<int64_t>(spec.over), spec.eps, save);
  return {std::move(y), std::move(sum), std::move(statistics)};
}

}  // namespace

NormOutputs CallNormForward(const Tensor& x, const OptionalTensor& weight,
                            const OptionalTensor& bias, const NormSpec& spec, bool save) {
  const Tensor &w = OrUndefined(weight), &b = OrUndefined(bias);
  switch (RouteOf(KeysOf(x) | KeysOf(w) | KeysOf(b))) {
    case Route::kAutograd:
      if (NeedDerivatives(x, w, b)) return RunForwardAutograd(spec, x, weight, bias, save);
      [[fallthrough]];
    case Route::kCpu:
      return RunForward(spec, x, weight, bias, save);
    case Route::kDispatcher:
      break;
  }
  static const auto op =
      FindOperator<OperatorPair(const Tensor&, const OptionalTensor&, const OptionalTensor&,
                                std::string_view, int64_t, double, double, double, bool, bool)>(
          "planish::norm_forward");
  auto [y, statistics] =
      op.call(x, weight, bias, NameOf(spec.norm), static_cast<int64_t>(spec.over), spec.eps,
              spec.scale, spec.slope, spec.unbiased, save);
  return {std::move(y), std::move(statistics)};
}

NormGradients CallNormBackward(const OptionalTensor& dy, const OptionalTensor& dsum,
                               const Tensor& x, const Tensor& statistics,
                               const OptionalTensor& weight, const NormSpec& spec, Mask mask) {
  const Tensor &g = OrUndefined(dy), &gsum = OrUndefined(dsum), &w = OrUndefined(weight);
  switch (RouteOf(KeysOf(g) | KeysOf(gsum) | KeysOf(x) | KeysOf(statistics) | KeysOf(w))) {
    case Route::kAutograd:
      if (NeedDerivatives(g, gsum, x, w)) {
        return RunBackwardAutograd(spec, dy, dsum, x, statistics, weight, mask);
      }
      [[fallthrough]];
    case Route::kCpu:
      return RunBackward(spec, dy, dsum, x, statistics, weight, mask);
    case Route::kDispatcher:
      break;
  }
  static const auto op =
      FindOperator<OperatorTriple(const OptionalTensor&, const OptionalTensor&, const Tensor&,
                                  const Tensor&, const OptionalTensor&, std::string_view, int64_t,
                                  double, double, double, bool, Mask)>("planish::norm_backward");
  auto [dx, dweight, dbias] =
      op.call(dy, dsum, x, statistics, weight, NameOf(spec.norm), static_cast<int64_t>(spec.over),
              spec.eps, spec.scale, spec.slope, spec.unbiased, mask);
  return {std::move(dx), std::move(dweight), std::move(dbias)};
}

// ---- Functions that users call

int64_t CheckNormalizedShape(const char* function, const Tensor& x, c10::SymIntArrayRef shape,
                             const OptionalTensor& weight, const OptionalTensor& bias) {
  const auto dims = static_cast<int64_t>(shape.size());
  TORCH_CHECK_VALUE(dims >= 1 && dims <= x.dim() && x.sym_sizes().slice(x.dim() - dims) == shape,
                    "[", function,
                    "] normalized_shape must be the last dimensions of x, which has ",
                    x.sym_sizes(), ", got ", shape);
  for (const auto& [name, given] : {std::pair("weight", &weight), std::pair("bias", &bias)}) {
    if (!*given) continue;
    const c10::SymIntArrayRef sizes = (*given)->sym_sizes();
    const int64_t more = (*given)->dim() - dims;
    TORCH_CHECK_VALUE(more >= 0 && sizes.slice(static_cast<size_t>(more)) == shape, "[", function,
                      "] ", name, " must have normalized_shape, ", shape, ", got ", sizes);
    TORCH_CHECK_VALUE(BroadcastsTo(**given, x, dims), "[", function, "] ", name,
                      " must broadcast to x's sizes, ", x.sym_sizes(), ", got ", sizes);
  }
  return dims;
}

void CheckNested(const char* function, const Tensor& x, const Rows& rows) {
  if (!x.is_nested() || !HasGains(rows.weight())) return;
  TORCH_CHECK_VALUE(rows.weight()->dim() <= rows.In(x).dim() - 2, "[", function,
                    "] weight and bias must have size 1 along the first two dimensions of a "
                    "nested tensor, got ",
                    rows.weight()->sym_sizes());
}

std::pair<Tensor, Tensor> PromotedSummands(const char* function, const Tensor& x,
                                           const Tensor& residual) {
  CheckLayout(function, x);
  CheckLayout(function, residual);
  TORCH_CHECK_VALUE(x.sym_sizes() == residual.sym_sizes(), "[", function,
                    "] residual must have x's sizes, ", x.sym_sizes(), ", got ",
                    residual.sym_sizes());
  CheckX(function, x, 1);
  CheckX(function, residual, 1);
  // The type of x + residual: under autocast, one is often 16-bit and the other float.
  const at::ScalarType type = at::result_type(x, residual);
  return {x.to(type), residual.to(type)};
}

double RmsEps(at::ScalarType type, std::optional<double> eps) {
  if (eps) return *eps;
  return ComputeType(type) == at::kDouble ? std::numeric_limits<double>::epsilon()
                                          : std::numeric_limits<float>::epsilon();
}

namespace {

Tensor RowNorm(const NormSpec& spec, const Tensor& x, c10::SymIntArrayRef normalized_shape,
               const OptionalTensor& weight_, const OptionalTensor& bias_) {
  CheckLayout(FunctionOf(spec), x);
  const KernelParameters parameters(x, weight_, bias_);
  const OptionalTensor &weight = parameters.weight(), &bias = parameters.bias();
  const int64_t dims = CheckNormalizedShape(FunctionOf(spec), x, normalized_shape, weight, bias);
  if (dims == 1 && !HasGains(weight) && !HasGains(bias)) {
    return CallNormForward(x, weight, bias, spec, false).y;
  }
  const Rows rows(x, weight, bias, dims);
  CheckNested(FunctionOf(spec), x, rows);
  return rows.Out(CallNormForward(rows.In(x), rows.weight(), rows.bias(), spec, false).y);
}

OperatorPair AddRowNorm(const char* function, const NormSpec& spec, const Tensor& x_,
                        const Tensor& residual_, c10::SymIntArrayRef normalized_shape,
                        const OptionalTensor& weight_, const OptionalTensor& bias_) {
  const auto [x, residual] = PromotedSummands(function, x_, residual_);
  const KernelParameters parameters(x, weight_, bias_);
  const OptionalTensor &weight = parameters.weight(), &bias = parameters.bias();
  const int64_t dims = CheckNormalizedShape(function, x, normalized_shape, weight, bias);
  const Rows rows(x, weight, bias, dims);
  CheckNested(function, x, rows);
  const auto [y, sum, statistics] =
      CallAddForward(rows.In(x), rows.In(residual), rows.weight(), rows.bias(), spec, false);
  return {rows.Out(y), rows.Out(sum)};
}

Norm DetachRecipe(bool mean, bool std) {
  if (mean) return std ? Norm::kDetach : Norm::kDetachMean;
  return std ? Norm::kDetachDeviation : Norm::kLayerSimple;
}

Tensor AnyRowNorm(const Tensor& x, c10::SymIntArrayRef normalized_shape, std::string_view norm,
                  const OptionalTensor& weight, const OptionalTensor& bias, double eps, double C,
                  double k) {
  return RowNorm({.norm = NormOf("row_norm", norm), .eps = eps, .scale = C, .slope = k}, x,
                 normalized_shape, weight, bias);
}

/// Returns (affine, centered, adaptive, unbiased) of a norm for the modules in Python, as the tuple
/// that a registered operator must return.
std::tuple<bool, bool, bool, bool> RowNormRecipe(std::string_view norm) {
  const internal::Recipe recipe = internal::RecipeOf(NormOf("row_norm_recipe", norm));
  return {recipe.output == internal::Output::kAffine, recipe.centre,
          recipe.output == internal::Output::kAdaptive,
          recipe.deviation == internal::Deviation::kUnbiasedPlusEps};
}

Tensor LayerNorm(const Tensor& x, c10::SymIntArrayRef normalized_shape,
                 const OptionalTensor& weight, const OptionalTensor& bias, double eps) {
  return RowNorm({.eps = eps}, x, normalized_shape, weight, bias);
}

Tensor RmsNorm(const Tensor& x, c10::SymIntArrayRef normalized_shape, const OptionalTensor& weight,
               std::optional<double> eps) {
  return RowNorm({.norm = Norm::kRms, .eps = RmsEps(x.scalar_type(), eps)}, x, normalized_shape,
                 weight, {});
}

// Has no list argument, because parsing a list in a call from Python is slow.
Tensor AffineLayerNorm(const Tensor& x, const Tensor& weight_, const OptionalTensor& bias,
                       double eps) {
  CheckLayout("layer_norm", x);
  const OptionalTensor weight = weight_;
  // norm_forward checks the rest.
  if (weight->dim() == 1 && x.dim() >= 1 && x.sym_size(-1) == weight->sym_size(0) &&
      !HasGains(bias)) {
    const KernelParameters parameters(x, weight, bias);
    return CallNormForward(x, parameters.weight(), parameters.bias(), {.eps = eps}, false).y;
  }
  return LayerNorm(x, weight->sym_sizes(), weight, bias, eps);
}

Tensor AffineRmsNorm(const Tensor& x, const Tensor& weight, std::optional<double> eps) {
  return RmsNorm(x, weight.sym_sizes(), weight, eps);
}

Tensor LayerNormSimple(const Tensor& x, c10::SymIntArrayRef normalized_shape, double eps) {
  return RowNorm({.norm = Norm::kLayerSimple, .eps = eps}, x, normalized_shape, {}, {});
}

Tensor DetachNorm(const Tensor& x, c10::SymIntArrayRef normalized_shape, bool mean, bool std,
                  double eps) {
  return RowNorm({.norm = DetachRecipe(mean, std), .eps = eps}, x, normalized_shape, {}, {});
}

Tensor AdaNorm(const Tensor& x, c10::SymIntArrayRef normalized_shape, double C, double k,
               bool as_coded, double eps) {
  return RowNorm(
      {.norm = as_coded ? Norm::kAdaAsCoded : Norm::kAda, .eps = eps, .scale = C, .slope = k}, x,
      normalized_shape, {}, {});
}

OperatorPair AddLayerNorm(const Tensor& x, const Tensor& residual,
                          c10::SymIntArrayRef normalized_shape, const OptionalTensor& weight,
                          const OptionalTensor& bias, double eps) {
  return AddRowNorm("add_layer_norm", {.eps = eps}, x, residual, normalized_shape, weight, bias);
}

OperatorPair AddRmsNorm(const Tensor& x, const Tensor& residual,
                        c10::SymIntArrayRef normalized_shape, const OptionalTensor& weight,
                        std::optional<double> eps) {
  return AddRowNorm("add_rms_norm",
                    {.norm = Norm::kRms, .eps = RmsEps(at::result_type(x, residual), eps)}, x,
                    residual, normalized_shape, weight, {});
}

Tensor ChannelLayerNorm(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                        double eps) {
  CheckLayout("channel_layer_norm", x);
  const KernelParameters parameters(x, weight, bias);
  return CallNormForward(x, parameters.weight(), parameters.bias(),
                         {.over = Over::kChannels, .eps = eps}, false)
      .y;
}

}  // namespace

inline namespace PLANISH_API {

std::vector<std::string> row_norm_names() {
  std::vector<std::string> names;
  for (const internal::NormName& row : internal::kNormNames) names.emplace_back(row.name);
  return names;
}

Tensor row_norm(const Tensor& x, at::IntArrayRef normalized_shape, std::string_view norm,
                const OptionalTensor& weight, const OptionalTensor& bias, double eps, double C,
                double k) {
  return AnyRowNorm(x, c10::fromIntArrayRefSlow(normalized_shape), norm, weight, bias, eps, C, k);
}

Tensor layer_norm(const Tensor& x, at::IntArrayRef normalized_shape, const OptionalTensor& weight,
                  const OptionalTensor& bias, double eps) {
  return LayerNorm(x, c10::fromIntArrayRefSlow(normalized_shape), weight, bias, eps);
}

Tensor rms_norm(const Tensor& x, at::IntArrayRef normalized_shape, const OptionalTensor& weight,
                std::optional<double> eps) {
  return RmsNorm(x, c10::fromIntArrayRefSlow(normalized_shape), weight, eps);
}

Tensor layer_norm_simple(const Tensor& x, at::IntArrayRef normalized_shape, double eps) {
  return LayerNormSimple(x, c10::fromIntArrayRefSlow(normalized_shape), eps);
}

Tensor detach_norm(const Tensor& x, at::IntArrayRef normalized_shape, bool mean, bool std,
                   double eps) {
  return DetachNorm(x, c10::fromIntArrayRefSlow(normalized_shape), mean, std, eps);
}

Tensor ada_norm(const Tensor& x, at::IntArrayRef normalized_shape, double C, double k,
                bool as_coded, double eps) {
  return AdaNorm(x, c10::fromIntArrayRefSlow(normalized_shape), C, k, as_coded, eps);
}

std::tuple<Tensor, Tensor> add_layer_norm(const Tensor& x, const Tensor& residual,
                                          at::IntArrayRef normalized_shape,
                                          const OptionalTensor& weight, const OptionalTensor& bias,
                                          double eps) {
  return AddLayerNorm(x, residual, c10::fromIntArrayRefSlow(normalized_shape), weight, bias, eps);
}

std::tuple<Tensor, Tensor> add_rms_norm(const Tensor& x, const Tensor& residual,
                                        at::IntArrayRef normalized_shape,
                                        const OptionalTensor& weight, std::optional<double> eps) {
  return AddRmsNorm(x, residual, c10::fromIntArrayRefSlow(normalized_shape), weight, eps);
}

Tensor channel_layer_norm(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                          double eps) {
  return ChannelLayerNorm(x, weight, bias, eps);
}

}  // namespace PLANISH_API

TORCH_LIBRARY(planish, m) {
  m.def(kForward);
  m.def(kComposed);
  m.def(kAddForward);
  m.def(kBackward);
  m.def("row_norm_names() -> str[]", row_norm_names);
  m.def("row_norm_recipe(str norm) -> (bool affine, bool centered, bool adaptive, bool unbiased)",
        RowNormRecipe);
  m.def(
      "row_norm(Tensor x, SymInt[] normalized_shape, str norm, Tensor? weight=None, Tensor? "
      "bias=None, float eps=1e-05, float C=1, float k=0.1) -> Tensor");
  m.def(
      "layer_norm(Tensor x, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None, "
      "float eps=1e-05) -> Tensor");
  m.def(
      "rms_norm(Tensor x, SymInt[] normalized_shape, Tensor? weight=None, float? eps=None) -> "
      "Tensor");
  m.def("affine_layer_norm(Tensor x, Tensor weight, Tensor? bias=None, float eps=1e-05) -> Tensor");
  m.def("affine_rms_norm(Tensor x, Tensor weight, float? eps=None) -> Tensor");
  m.def("layer_norm_simple(Tensor x, SymInt[] normalized_shape, float eps=1e-05) -> Tensor");
  m.def(
      "detach_norm(Tensor x, SymInt[] normalized_shape, bool mean=True, bool std=True, float "
      "eps=1e-05) -> Tensor");
  m.def(
      "ada_norm(Tensor x, SymInt[] normalized_shape, float C=1, float k=0.1, bool as_coded=False, "
      "float eps=1e-05) -> Tensor");
  m.def(
      "add_layer_norm(Tensor x, Tensor residual, SymInt[] normalized_shape, Tensor? weight=None, "
      "Tensor? bias=None, float eps=1e-05) -> (Tensor y, Tensor sum)");
  m.def(
      "add_rms_norm(Tensor x, Tensor residual, SymInt[] normalized_shape, Tensor? weight=None, "
      "float? eps=None) -> (Tensor y, Tensor sum)");
  m.def(
      "channel_layer_norm(Tensor x, Tensor? weight=None, Tensor? bias=None, float eps=1e-05) -> "
      "Tensor");
}

void RegisterKernels(torch::Library& m) {
  m.impl("norm_forward", TupleKernel<Forward>::Call);
  m.impl("add_norm_forward", TupleKernel<AddForward>::Call);
  m.impl("norm_backward", TupleKernel<Backward>::Call);
}

TORCH_LIBRARY_IMPL(planish, CPU, m) { RegisterKernels(m); }
// Also registered without CUDA, so that calls throw an error that says so.
TORCH_LIBRARY_IMPL(planish, CUDA, m) { RegisterKernels(m); }

TORCH_LIBRARY_IMPL(planish, Meta, m) {
  m.impl("norm_forward", TupleKernel<ForwardMeta>::Call);
  m.impl("add_norm_forward", TupleKernel<AddForwardMeta>::Call);
  m.impl("norm_backward", TupleKernel<BackwardMeta>::Call);
}

TORCH_LIBRARY_IMPL(planish, Autograd, m) {
  m.impl("norm_forward", TupleKernel<ForwardAutograd>::Call);
  m.impl("add_norm_forward", TupleKernel<AddForwardAutograd>::Call);
  m.impl("norm_backward", TupleKernel<BackwardAutograd>::Call);
}

void RegisterComposites(torch::Library& m) {
  m.impl("norm_composed", TupleKernel<Composed>::Call);
  m.impl("row_norm", AnyRowNorm);
  m.impl("layer_norm", LayerNorm);
  m.impl("rms_norm", RmsNorm);
  m.impl("affine_layer_norm", AffineLayerNorm);
  m.impl("affine_rms_norm", AffineRmsNorm);
  m.impl("layer_norm_simple", LayerNormSimple);
  m.impl("detach_norm", DetachNorm);
  m.impl("ada_norm", AdaNorm);
  m.impl("add_layer_norm", AddLayerNorm);
  m.impl("add_rms_norm", AddRmsNorm);
  m.impl("channel_layer_norm", ChannelLayerNorm);
}

TORCH_LIBRARY_IMPL(planish, CompositeImplicitAutograd, m) { RegisterComposites(m); }
// vmap has its own key for composite operators.
TORCH_LIBRARY_IMPL(planish, FuncTorchBatchedDecomposition, m) { RegisterComposites(m); }

}  // namespace planish
