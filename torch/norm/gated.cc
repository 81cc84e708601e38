#include "torch/norm/gated.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/functorch/PlumbingHelper.h>
#include <ATen/record_function.h>
#include <torch/library.h>

#include <array>
#include <string_view>
#include <utility>

#include "planish/torch_norm.h"
#include "torch/base/autograd.h"
#include "torch/base/route.h"
#include "torch/norm/derivatives.h"
#include "torch/norm/gains.h"
#include "torch/norm/kernels.h"
#include "torch/norm/levels.h"
#include "torch/norm/ops.h"

// Gated norms of rows: norm(x) * silu(z), or norm(x * silu(z)). Also norms without a gate that
// round before the product with the weight; their backward is norm_backward.
namespace planish {

using at::Tensor;

NormSpec GatedSpecOf(const char* op, std::string_view norm, int64_t over, double eps,
                     bool gate_before_norm, bool cast_before_weight) {
  NormSpec spec = SpecOf(norm, over, eps, 1, 0, false);
  TORCH_CHECK_VALUE(spec.over == Over::kRow, "[", op, "] over must be 0 (rows), got ", over);
  TORCH_CHECK_VALUE(IsAffine(spec.norm), "[", op,
                    "] norm must have a weight, as layer and rms, got ", norm);
  spec.gate_before_norm = gate_before_norm;
  spec.cast_before_weight = cast_before_weight;
  return spec;
}

void CheckGated(const NormSpec& spec, const GatedInputs& in) {
  CheckNormForward(spec, in.x, OrNone(in.weight), OrNone(in.bias));
  if (in.gate.defined()) CheckLike(FunctionOf(spec), "gate", in.gate, in.x);
}

namespace {

Tensor ComposedInput(const NormSpec& spec, const GatedInputs& in) {
  const Tensor x = Wide(in.x);
  return in.gate.defined() && spec.gate_before_norm ? x * at::silu(Wide(in.gate)) : x;
}

}  // namespace

Tensor ComposedGatedStatistics(const NormSpec& spec, const GatedInputs& in) {
  return ComposedStatistics(spec, ComposedInput(spec, in));
}

Tensor ComposedWideGatedNorm(const NormSpec& spec, const GatedInputs& in,
                             const Tensor& statistics) {
  const at::ScalarType type = in.x.scalar_type();
  const Tensor u = ComposedInput(spec, in);
  const bool after = in.gate.defined() && !spec.gate_before_norm;
  Tensor y;
  if (spec.cast_before_weight && u.scalar_type() != type) {
    const auto rounded = [&](const Tensor& t) { return t.to(type).to(u.scalar_type()); };
    y = rounded(ComposedNorm(spec, {u, statistics, {}, {}}));
    if (in.weight.defined()) y = y * Wide(in.weight);
    if (in.bias.defined()) y = y + Wide(in.bias);
    if (after) y = rounded(y);
  } else {
    y = ComposedNorm(spec, {u, statistics, in.weight, in.bias});
  }
  if (after) y = y * at::silu(Wide(in.gate));
  return y;
}

GatedRows::GatedRows(const char* function, const Tensor& x, const OptionalTensor& gate,
                     c10::SymIntArrayRef normalized_shape, const OptionalTensor& weight,
                     const OptionalTensor& bias)
    : parameters_((CheckLayout(function, x), x), weight, bias),
      dims_(CheckNormalizedShape(function, x, normalized_shape, parameters_.weight(),
                                 parameters_.bias())),
      rows_(x, parameters_.weight(), parameters_.bias(), dims_),
      x_(rows_.In(x)) {
  if (gate) CheckLike(function, "gate", *gate, x);
  CheckNested(function, x, rows_);
  if (gate) gate_ = rows_.In(*gate);
}

namespace {

constexpr char kGatedForward[] =
    "gated_norm_forward(Tensor x, Tensor? gate, Tensor? weight, Tensor? bias, str norm, int over, "
    "float eps, bool gate_before_norm, bool cast_before_weight, bool save) -> (Tensor y, Tensor "
    "statistics)";
// Computes gated_norm_forward with PyTorch's operators, like norm_composed.
constexpr char kGatedComposed[] =
    "gated_norm_composed(Tensor x, Tensor? gate, Tensor? weight, Tensor? bias, str norm, int over, "
    "float eps, bool gate_before_norm, bool cast_before_weight) -> (Tensor y, Tensor statistics)";
constexpr char kGatedBackward[] =
    "gated_norm_backward(Tensor dy, Tensor x, Tensor gate, Tensor statistics, Tensor? weight, "
    "Tensor? bias, str norm, int over, float eps, bool gate_before_norm, bool[4] mask) -> (Tensor "
    "dx, Tensor dgate, Tensor dweight, Tensor dbias)";

using GatedMask = std::array<bool, 4>;

struct GatedGradients {
  Tensor dx, dgate, dweight, dbias;
};

// ---- Checks

void CheckGatedBackward(const NormSpec& spec, const Tensor& dy, const GatedInputs& in,
                        const Tensor& statistics) {
  CheckGated(spec, in);
  CheckLike("gated_norm_backward", "dy", dy, in.x);
  const auto sizes = StatisticsSizes(spec, in.x);
  TORCH_CHECK_VALUE(statistics.sym_sizes().equals(sizes) &&
                        statistics.scalar_type() == ComputeType(in.x.scalar_type()),
                    "[gated_norm_backward] statistics must have ", c10::SymIntArrayRef(sizes), " ",
                    ComputeType(in.x.scalar_type()), ", got ", statistics.sym_sizes(), " ",
                    statistics.scalar_type());
}

// ---- Composed of PyTorch's operators, for higher derivatives, forward mode, vmap and export

/// Returns silu's derivative. Uses no in-place operators, which torch.export does not allow.
Tensor SiluSlope(const Tensor& z) {
  const Tensor sigmoid = z.sigmoid();
  return sigmoid * (z * at::rsub(sigmoid, 1) + 1);
}

Tensor ComposedGatedNorm(const NormSpec& spec, const GatedInputs& in, const Tensor& statistics) {
  return ComposedWideGatedNorm(spec, in, statistics).to(in.x.scalar_type());
}

GatedGradients ComposedGatedBackward(const NormSpec& spec, const Tensor& dy_, const GatedInputs& in,
                                     const Tensor& statistics, const GatedMask& mask) {
  const Tensor x = Wide(in.x), z = Wide(in.gate), dy = Wide(dy_), s = at::silu(z);
  const at::ScalarType type = in.x.scalar_type();
  const at::ScalarType parameter = (in.weight.defined() ? in.weight : in.x).scalar_type();
  const bool before = spec.gate_before_norm;
  const NormInputs norm = {before ? x * s : x, statistics, in.weight, in.bias};
  const auto [du, dweight, dbias] = ComposedNormBackward(
      spec, before ? dy : dy * s, {}, norm, {mask[0] || (before && mask[1]), mask[2], mask[3]});
  GatedGradients gradients;
  if (mask[0]) gradients.dx = (before ? du * s : du).to(type);
  if (mask[1]) {
    const Tensor ds = before ? du * x : dy * ComposedNorm(spec, norm);
    gradients.dgate = (ds * SiluSlope(z)).to(type);
  }
  if (mask[2]) gradients.dweight = dweight.to(parameter);
  if (mask[3]) gradients.dbias = dbias.to(parameter);
  return gradients;
}

NormOutputs GatedComposed(const Tensor& x, const OptionalTensor& gate, const OptionalTensor& weight,
                          const OptionalTensor& bias, std::string_view norm, int64_t over,
                          double eps, bool gate_before_norm, bool cast_before_weight) {
  const NormSpec spec =
      GatedSpecOf("gated_norm_forward", norm, over, eps, gate_before_norm, cast_before_weight);
  const GatedInputs in(x, gate, weight, bias);
  CheckGated(spec, in);
  const Tensor statistics = ComposedGatedStatistics(spec, in);
  return {ComposedGatedNorm(spec, in, statistics), statistics};
}

// ---- Kernels

NormOutputs GatedForwardMeta(const Tensor& x, const OptionalTensor& gate,
                             const OptionalTensor& weight, const OptionalTensor& bias,
                             std::string_view norm, int64_t over, double eps, bool gate_before_norm,
                             bool cast_before_weight, bool save) {
  const NormSpec spec =
      GatedSpecOf("gated_norm_forward", norm, over, eps, gate_before_norm, cast_before_weight);
  CheckGated(spec, {x, gate, weight, bias});
  return EmptyForward(spec, x, weight, save);
}

NormOutputs RunGatedForward(const NormSpec& spec, const GatedInputs& in, bool save) {
  CheckGated(spec, in);
  auto [y, statistics] = EmptyForward(spec, in.x, OrNone(in.weight), save);
  RunNormForward(spec, {.x = in.x,
                        .residual = {},
                        .gate = in.gate,
                        .weight = in.weight,
                        .bias = in.bias,
                        .y = y,
                        .sum = {},
                        .statistics = statistics,
                        .quantized = {},
                        .row_scale = {}});
  return {std::move(y), std::move(statistics)};
}

NormOutputs GatedForward(const Tensor& x, const OptionalTensor& gate, const OptionalTensor& weight,
                         const OptionalTensor& bias, std::string_view norm, int64_t over,
                         double eps, bool gate_before_norm, bool cast_before_weight, bool save) {
  return RunGatedForward(
      GatedSpecOf("gated_norm_forward", norm, over, eps, gate_before_norm, cast_before_weight),
      {x, gate, weight, bias}, save);
}

GatedGradients EmptyGatedGradients(const NormSpec& spec, const GatedInputs& in,
                                   const GatedMask& mask) {
  auto [dx, dweight, dbias] =
      EmptyGradients(spec, in.x, OrNone(in.weight), {mask[0], mask[2], mask[3]});
  return {std::move(dx), mask[1] ? EmptyOutput(spec, in.x) : Tensor(), std::move(dweight),
          std::move(dbias)};
}

/// Writes the defined tensors in `gradients`.
void GatedBackwardInto(const GatedGradients& gradients, const NormSpec& spec, const Tensor& dy,
                       const GatedInputs& in, const Tensor& statistics) {
  RunNormBackward(spec, {.dy = dy,
                         .dsum = {},
                         .x = in.x,
                         .gate = in.gate,
                         .statistics = statistics,
                         .weight = in.weight,
                         .bias = in.bias,
                         .dx = gradients.dx,
                         .dgate = gradients.dgate,
                         .dweight = gradients.dweight,
                         .dbias = gradients.dbias});
}

GatedGradients RunGatedBackward(const NormSpec& spec, const Tensor& dy, const GatedInputs& in,
                                const Tensor& statistics, const GatedMask& mask) {
  CheckGatedBackward(spec, dy, in, statistics);
  GatedGradients gradients = EmptyGatedGradients(spec, in, mask);
  GatedBackwardInto(gradients, spec, dy, in, statistics);
  return gradients;
}

GatedGradients GatedBackwardMeta(const Tensor& dy, const Tensor& x, const Tensor& gate,
                                 const Tensor& statistics, const OptionalTensor& weight,
                                 const OptionalTensor& bias, std::string_view norm, int64_t over,
                                 double eps, bool gate_before_norm, GatedMask mask) {
  const NormSpec spec = GatedSpecOf("gated_norm_forward", norm, over, eps, gate_before_norm, false);
  const GatedInputs in(x, gate, weight, bias);
  CheckGatedBackward(spec, dy, in, statistics);
  return EmptyGatedGradients(spec, in, mask);
}

GatedGradients GatedBackward(const Tensor& dy, const Tensor& x, const Tensor& gate,
                             const Tensor& statistics, const OptionalTensor& weight,
                             const OptionalTensor& bias, std::string_view norm, int64_t over,
                             double eps, bool gate_before_norm, GatedMask mask) {
  return RunGatedBackward(
      GatedSpecOf("gated_norm_forward", norm, over, eps, gate_before_norm, false), dy,
      {x, gate, weight, bias}, statistics, mask);
}

// ---- Autograd

NormOutputs CallGatedForward(const NormSpec& spec, const GatedInputs& in, bool save);
GatedGradients CallGatedBackward(const NormSpec& spec, const Tensor& dy, const GatedInputs& in,
                                 const Tensor& statistics, const GatedMask& mask);

/// Computes the gradients of x, gate, weight and bias. Writes dx over dy if nothing else refers to
/// it.
Tensors GatedNormBackward(const NormSpec& spec, Tensor& dy, const GatedInputs& in,
                          const Tensor& statistics, const GatedMask& mask) {
  if (!dy.defined()) return {Tensor(), Tensor(), Tensor(), Tensor()};
  if (!in.gate.defined()) {
    auto [dx, dweight, dbias] = CallNormBackward(
        dy, std::nullopt, in.x, statistics, OrNone(in.weight), spec, {mask[0], mask[2], mask[3]});
    return {std::move(dx), Tensor(), std::move(dweight), std::move(dbias)};
  }
  if (mask[0] && MayOverwrite(dy, in.x) && !AnyTangent(dy, in.x, in.gate, in.weight, in.bias)) {
    RECORD_FUNCTION("planish::gated_norm_backward", c10::ArrayRef<c10::IValue>());
    const at::AutoDispatchBelowADInplaceOrView below;
    CheckGatedBackward(spec, dy, in, statistics);
    GatedGradients d = EmptyGatedGradients(spec, in, {false, mask[1], mask[2], mask[3]});
    d.dx = dy;
    GatedBackwardInto(d, spec, dy, in, statistics);
    return {std::move(dy), std::move(d.dgate), std::move(d.dweight), std::move(d.dbias)};
  }
  auto [dx, dgate, dweight, dbias] = CallGatedBackward(spec, dy, in, statistics, mask);
  return {std::move(dx), std::move(dgate), std::move(dweight), std::move(dbias)};
}

NormOutputs RunGatedForwardAutograd(const NormSpec& spec, const GatedInputs& in, bool save) {
  const bool tangents = AnyTangent(in.x, in.gate, in.weight, in.bias);
  const bool needed =
      !tangents && torch::autograd::compute_requires_grad(in.x, in.gate, in.weight, in.bias);
  const auto forward = [&] { return CallGatedForward(spec, in, save || needed || tangents); };
  if (needed) {
    return WithHistory(
        "PlanishGatedNormBackward", {in.x, in.gate, in.weight, in.bias}, forward,
        [&](const NormOutputs& outputs) {
          return Tensors{in.x, in.gate, outputs.statistics, in.weight, in.bias};
        },
        [](const NormOutputs& outputs) { return Tensors{outputs.y}; },
        [spec](Tensors& g, const Tensors& kept, const auto& wanted) {
          return GatedNormBackward(spec, g[0], {kept[0], kept[1], kept[3], kept[4]}, kept[2],
                                   {wanted(0), wanted(1), wanted(2), wanted(3)});
        });
  }
  NormOutputs outputs = BelowAutograd(forward);
  if (tangents) outputs.y = ComposedGatedNorm(spec, in, outputs.statistics);
  return outputs;
}

NormOutputs GatedForwardAutograd(const Tensor& x, const OptionalTensor& gate,
                                 const OptionalTensor& weight, const OptionalTensor& bias,
                                 std::string_view norm, int64_t over, double eps,
                                 bool gate_before_norm, bool cast_before_weight, bool save) {
  return RunGatedForwardAutograd(
      GatedSpecOf("gated_norm_forward", norm, over, eps, gate_before_norm, cast_before_weight),
      {x, gate, weight, bias}, save);
}

/// With derivatives, the gradients are composed of differentiable operators.
GatedGradients RunGatedBackwardAutograd(const NormSpec& spec, const Tensor& dy,
                                        const GatedInputs& in, const Tensor& statistics,
                                        const GatedMask& mask) {
  if (NeedDerivatives(dy, in.x, in.gate, in.weight, in.bias)) {
    return ComposedGatedBackward(spec, dy, in, statistics, mask);
  }
  return BelowAutograd([&] { return CallGatedBackward(spec, dy, in, statistics, mask); });
}

GatedGradients GatedBackwardAutograd(const Tensor& dy, const Tensor& x, const Tensor& gate,
                                     const Tensor& statistics, const OptionalTensor& weight,
                                     const OptionalTensor& bias, std::string_view norm,
                                     int64_t over, double eps, bool gate_before_norm,
                                     GatedMask mask) {
  return RunGatedBackwardAutograd(
      GatedSpecOf("gated_norm_forward", norm, over, eps, gate_before_norm, false), dy,
      {x, gate, weight, bias}, statistics, mask);
}

// ---- vmap: cases with the same weight and bias become more rows of one call

NormOutputs GatedForwardBatched(const Tensor& x_, const OptionalTensor& gate_,
                                const OptionalTensor& weight_, const OptionalTensor& bias_,
                                std::string_view norm, int64_t over, double eps,
                                bool gate_before_norm, bool cast_before_weight, bool save) {
  const NormSpec spec =
      GatedSpecOf("gated_norm_forward", norm, over, eps, gate_before_norm, cast_before_weight);
  const GatedInputs given(x_, gate_, weight_, bias_);
  CheckGated(spec, given);
  const Level level;
  const Mapped x = level.Unwrap(given.x), gate = level.Unwrap(given.gate),
               weight = level.Unwrap(given.weight), bias = level.Unwrap(given.bias);
  if (!CanFold(spec, {x, gate}, {weight, bias}) || !KernelsTake(x.tensor, weight.tensor)) {
    const Tensor statistics = ComposedGatedStatistics(spec, given);
    return {ComposedGatedNorm(spec, given, statistics), statistics};
  }
  const c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::FuncTorchBatched);
  auto [y, statistics] =
      CallGatedForward(spec, {x.tensor, gate.tensor, weight.tensor, bias.tensor}, save);
  if (save) statistics = level.Wrap(statistics, 1);
  return {level.Wrap(y), statistics};
}

GatedGradients GatedBackwardBatched(const Tensor& dy_, const Tensor& x_, const Tensor& gate_,
                                    const Tensor& statistics_, const OptionalTensor& weight_,
                                    const OptionalTensor& bias_, std::string_view norm,
                                    int64_t over, double eps, bool gate_before_norm,
                                    GatedMask mask) {
  const NormSpec spec = GatedSpecOf("gated_norm_forward", norm, over, eps, gate_before_norm, false);
  const Level level;
  const GatedInputs given(x_, gate_, weight_, bias_);
  const Mapped dy = level.Unwrap(dy_), x = level.Unwrap(x_), gate = level.Unwrap(gate_),
               statistics = level.Unwrap(statistics_, 1), weight = level.Unwrap(given.weight),
               bias = level.Unwrap(given.bias);
  const bool fold = (mask[0] || mask[1]) &&
                    CanFold(spec, {dy, x, gate, statistics}, {weight, bias}) &&
                    KernelsTake(x.tensor, weight.tensor);
  // Each case has its own gradients of weight and bias.
  GatedGradients gradients = ComposedGatedBackward(
      spec, dy_, given, statistics_, {mask[0] && !fold, mask[1] && !fold, mask[2], mask[3]});
  if (fold) {
    const c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::FuncTorchBatched);
    const GatedGradients d =
        CallGatedBackward(spec, dy.tensor, {x.tensor, gate.tensor, weight.tensor, bias.tensor},
                          statistics.tensor, {mask[0], mask[1], false, false});
    if (mask[0]) gradients.dx = level.Wrap(d.dx);
    if (mask[1]) gradients.dgate = level.Wrap(d.dgate);
  }
  return gradients;
}

// ---- Calls of the primitives

NormOutputs CallGatedForward(const NormSpec& spec, const GatedInputs& in, bool save) {
  switch (RouteOf(in.keys())) {
    case Route::kAutograd:
      if (NeedDerivatives(in.x, in.gate, in.weight, in.bias)) {
        return RunGatedForwardAutograd(spec, in, save);
      }
      [[fallthrough]];
    case Route::kCpu:
      return RunGatedForward(spec, in, save);
    case Route::kDispatcher:
      break;
  }
  static const auto op = FindOperator<OperatorPair(
      const Tensor&, const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
      std::string_view, int64_t, double, bool, bool, bool)>("planish::gated_norm_forward");
  auto [y, statistics] = op.call(in.x, OrNone(in.gate), OrNone(in.weight), OrNone(in.bias),
                                 NameOf(spec.norm), static_cast<int64_t>(spec.over), spec.eps,
                                 spec.gate_before_norm, spec.cast_before_weight, save);
  return {std::move(y), std::move(statistics)};
}

GatedGradients CallGatedBackward(const NormSpec& spec, const Tensor& dy, const GatedInputs& in,
                                 const Tensor& statistics, const GatedMask& mask) {
  switch (RouteOf(in.keys() | KeysOf(dy) | KeysOf(statistics))) {
    case Route::kAutograd:
      if (NeedDerivatives(dy, in.x, in.gate, in.weight, in.bias)) {
        return RunGatedBackwardAutograd(spec, dy, in, statistics, mask);
      }
      [[fallthrough]];
    case Route::kCpu:
      return RunGatedBackward(spec, dy, in, statistics, mask);
    case Route::kDispatcher:
      break;
  }
  static const auto op = FindOperator<OperatorQuadruple(
      const Tensor&, const Tensor&, const Tensor&, const Tensor&, const OptionalTensor&,
      const OptionalTensor&, std::string_view, int64_t, double, bool, GatedMask)>(
      "planish::gated_norm_backward");
  auto [dx, dgate, dweight, dbias] =
      op.call(dy, in.x, in.gate, statistics, OrNone(in.weight), OrNone(in.bias), NameOf(spec.norm),
              static_cast<int64_t>(spec.over), spec.eps, spec.gate_before_norm, mask);
  return {std::move(dx), std::move(dgate), std::move(dweight), std::move(dbias)};
}

// ---- Functions that users call

Tensor GatedRowNorm(const NormSpec& spec, const Tensor& x, const OptionalTensor& gate,
                    c10::SymIntArrayRef normalized_shape, const OptionalTensor& weight,
                    const OptionalTensor& bias) {
  const GatedRows rows(FunctionOf(spec), x, gate, normalized_shape, weight, bias);
  return rows.rows().Out(CallGatedForward(spec, rows.inputs(), false).y);
}

Tensor GatedLayerNorm(const Tensor& x, const OptionalTensor& gate,
                      c10::SymIntArrayRef normalized_shape, const OptionalTensor& weight,
                      const OptionalTensor& bias, double eps, bool norm_before_gate,
                      bool cast_before_weight) {
  return GatedRowNorm({.norm = Norm::kLayer,
                       .eps = eps,
                       .gate_before_norm = !norm_before_gate,
                       .cast_before_weight = cast_before_weight},
                      x, gate, normalized_shape, weight, bias);
}

Tensor GatedRmsNorm(const Tensor& x, const OptionalTensor& gate,
                    c10::SymIntArrayRef normalized_shape, const OptionalTensor& weight,
                    std::optional<double> eps, bool norm_before_gate, bool cast_before_weight) {
  return GatedRowNorm({.norm = Norm::kRms,
                       .eps = RmsEps(x.scalar_type(), eps),
                       .gate_before_norm = !norm_before_gate,
                       .cast_before_weight = cast_before_weight},
                      x, gate, normalized_shape, weight, {});
}

}  // namespace

inline namespace PLANISH_API {

Tensor gated_layer_norm(const Tensor& x, const OptionalTensor& gate,
                        at::IntArrayRef normalized_shape, const OptionalTensor& weight,
                        const OptionalTensor& bias, double eps, bool norm_before_gate,
                        bool cast_before_weight) {
  return GatedLayerNorm(x, gate, c10::fromIntArrayRefSlow(normalized_shape), weight, bias, eps,
                        norm_before_gate, cast_before_weight);
}

Tensor gated_rms_norm(const Tensor& x, const OptionalTensor& gate, at::IntArrayRef normalized_shape,
                      const OptionalTensor& weight, std::optional<double> eps,
                      bool norm_before_gate, bool cast_before_weight) {
  return GatedRmsNorm(x, gate, c10::fromIntArrayRefSlow(normalized_shape), weight, eps,
                      norm_before_gate, cast_before_weight);
}

}  // namespace PLANISH_API

TORCH_LIBRARY_FRAGMENT(planish, m) {
  m.def(kGatedForward);
  m.def(kGatedComposed);
  m.def(kGatedBackward);
  m.def(
      "gated_layer_norm(Tensor x, Tensor? gate, SymInt[] normalized_shape, Tensor? weight=None, "
      "Tensor? bias=None, float eps=1e-05, bool norm_before_gate=True, bool "
      "cast_before_weight=False) -> Tensor");
  m.def(
      "gated_rms_norm(Tensor x, Tensor? gate, SymInt[] normalized_shape, Tensor? weight=None, "
      "float? eps=None, bool norm_before_gate=True, bool cast_before_weight=False) -> Tensor");
}

void RegisterGatedKernels(torch::Library& m) {
  m.impl("gated_norm_forward", TupleKernel<GatedForward>::Call);
  m.impl("gated_norm_backward", TupleKernel<GatedBackward>::Call);
}

TORCH_LIBRARY_IMPL(planish, CPU, m) { RegisterGatedKernels(m); }
TORCH_LIBRARY_IMPL(planish, CUDA, m) { RegisterGatedKernels(m); }

TORCH_LIBRARY_IMPL(planish, Meta, m) {
  m.impl("gated_norm_forward", TupleKernel<GatedForwardMeta>::Call);
  m.impl("gated_norm_backward", TupleKernel<GatedBackwardMeta>::Call);
}

TORCH_LIBRARY_IMPL(planish, Autograd, m) {
  m.impl("gated_norm_forward", TupleKernel<GatedForwardAutograd>::Call);
  m.impl("gated_norm_backward", TupleKernel<GatedBackwardAutograd>::Call);
}

TORCH_LIBRARY_IMPL(planish, FuncTorchBatched, m) {
  m.impl("gated_norm_forward", TupleKernel<GatedForwardBatched>::Call);
  m.impl("gated_norm_backward", TupleKernel<GatedBackwardBatched>::Call);
}

void RegisterGatedComposites(torch::Library& m) {
  m.impl("gated_norm_composed", TupleKernel<GatedComposed>::Call);
  m.impl("gated_layer_norm", GatedLayerNorm);
  m.impl("gated_rms_norm", GatedRmsNorm);
}

TORCH_LIBRARY_IMPL(planish, CompositeImplicitAutograd, m) { RegisterGatedComposites(m); }
TORCH_LIBRARY_IMPL(planish, FuncTorchBatchedDecomposition, m) { RegisterGatedComposites(m); }

}  // namespace planish
