#include "planish/online_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <torch/library.h>

#include <cstdint>
#include <string_view>
#include <tuple>
#include <utility>

#include "planish/cuda.h"
#include "planish/torch_norm.h"
#include "src/norm/online/alpha_rule.h"
#include "torch/base/autograd.h"
#include "torch/base/device.h"
#include "torch/norm/derivatives.h"
#include "torch/norm/ops.h"

// online_layer_norm. The state before a case is a constant for its gradient.
namespace planish {

namespace {

using at::Tensor;

constexpr char kName[] = "online_layer_norm";
/// The number of saved statistics for each case: mean, mean_lo, rstd, offset and deviation. See
/// OnlineNormForwardArgs.
constexpr int64_t kStatistics = 5;

/// The results of online_norm_forward. `state` is the state after the last case.
struct OnlineNormOutputs {
  Tensor y, state, statistics;
};

OnlineNormOutputs CallForward(const Tensor& x, const Tensor& state, const OptionalTensor& weight,
                              const OptionalTensor& bias, double alpha,
                              const OptionalTensor& alphas) {
  static const auto op =
      FindOperator<OperatorTriple(const Tensor&, const Tensor&, const OptionalTensor&,
                                  const OptionalTensor&, double, const OptionalTensor&)>(
          "planish::online_norm_forward");
  auto [y, next, statistics] = op.call(x, state, weight, bias, alpha, alphas);
  return {std::move(y), std::move(next), std::move(statistics)};
}

NormGradients CallBackward(const Tensor& dy, const Tensor& x, const Tensor& statistics,
                           const OptionalTensor& weight, double alpha, Mask mask,
                           const OptionalTensor& alphas) {
  static const auto op =
      FindOperator<OperatorTriple(const Tensor&, const Tensor&, const Tensor&,
                                  const OptionalTensor&, double, Mask, const OptionalTensor&)>(
          "planish::online_norm_backward");
  auto [dx, dweight, dbias] = op.call(dy, x, statistics, weight, alpha, mask, alphas);
  return {std::move(dx), std::move(dweight), std::move(dbias)};
}

c10::SymInt Cases(const Tensor& x) {
  c10::SymInt cases = 1;
  for (int64_t d = 0; d + 1 < x.dim(); ++d) cases *= x.sym_size(d);
  return cases;
}

/// Checks a vector of doubles on x's device.
void CheckVector(const char* name, const Tensor& given, const c10::SymInt& size, const Tensor& x) {
  TORCH_CHECK_VALUE(given.dim() == 1 && given.sym_size(0) == size &&
                        given.scalar_type() == at::kDouble && given.device() == x.device(),
                    "[online_layer_norm] ", name, " must have [", size, "] Double on ", x.device(),
                    ", got ", given.sym_sizes(), " ", given.scalar_type(), " on ", given.device());
}

void CheckForward(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                  double alpha, const OptionalTensor& alphas) {
  CheckX(kName, x, 1);
  TORCH_CHECK_VALUE(x.sym_size(-1) >= 2,
                    "[online_layer_norm] x must have at least 2 elements in a case, got ",
                    x.sym_sizes());
  CheckAlpha(kName, alpha);
  if (alphas) CheckVector("alphas", *alphas, Cases(x), x);
  CheckParameters(kName, weight, bias, x, x.sym_size(-1));
}

OnlineNormOutputs ForwardMeta(const Tensor& x, const Tensor& state, const OptionalTensor& weight,
                              const OptionalTensor& bias, double alpha,
                              const OptionalTensor& alphas) {
  CheckForward(x, weight, bias, alpha, alphas);
  CheckVector("state", state, 2, x);
  return {EmptyOn(x, x.sym_sizes(), x.scalar_type()), EmptyOn(x, {2}, at::kDouble),
          EmptyOn(x, {kStatistics, Cases(x)}, ComputeType(x.scalar_type()))};
}

/// Sets alpha and alphas in the options of a core call, on CPU or GPU. Keeps `alphas` alive.
class AlphaOptions {
 public:
  AlphaOptions(double alpha, const OptionalTensor& alphas)
      : alpha_(alpha), alphas_(Contiguous(OrUndefined(alphas))) {}

  template <class Options>
  Options In(Options options) const {
    options.alpha = alpha_;
    if (alphas_.defined()) options.alphas = alphas_.const_data_ptr<double>();
    return options;
  }

 private:
  double alpha_;
  Tensor alphas_;
};

OnlineNormOutputs Forward(const Tensor& x_, const Tensor& state, const OptionalTensor& weight_,
                          const OptionalTensor& bias_, double alpha, const OptionalTensor& alphas) {
  auto [y, next, statistics] = ForwardMeta(x_, state, weight_, bias_, alpha, alphas);
  const AlphaOptions options(alpha, alphas);
  const Tensor x = x_.contiguous();
  const Tensor weight = Contiguous(OrUndefined(weight_)), bias = Contiguous(OrUndefined(bias_));
  next.copy_(state);
  static_assert(sizeof(OnlineState) == 2 * sizeof(double));  // [2], mean and deviation
  ByTypes(x, weight.defined() ? weight : bias, [&]<class T, class P>() {
    auto* state_after = reinterpret_cast<OnlineState*>(next.mutable_data_ptr<double>());
    const auto args = WithArrays<OnlineNormForwardArgs<T, P>>(
        {.rows = statistics.size(1), .cols = x.size(-1)}, {{"x", x},
                                                           {"gain", weight},
                                                           {"bias", bias},
                                                           {"y", y},
                                                           {"mean", statistics, 0},
                                                           {"mean_lo", statistics, 1},
                                                           {"rstd", statistics, 2},
                                                           {"offset", statistics, 3},
                                                           {"deviation", statistics, 4}});
    if (x.is_cpu()) {
      return OnlineNormForward<T, P>(
          args, *state_after, options.In(OnlineNormOptions{.parallel_for = TorchParallelFor}));
    }
    const GpuCall call(x, cuda::WorkspaceBytes(args));
    cuda::OnlineNormForward<T, P>(args, state_after,
                                  call.With(options.In(cuda::OnlineNormOptions())));
  });
  return {std::move(y), std::move(next), std::move(statistics)};
}

NormGradients BackwardMeta(const Tensor& dy, const Tensor& x, const Tensor& statistics,
                           const OptionalTensor& weight, double alpha, Mask mask,
                           const OptionalTensor& alphas) {
  CheckForward(x, weight, std::nullopt, alpha, alphas);
  CheckLike(kName, "dy", dy, x);
  TORCH_CHECK_VALUE(statistics.dim() == 2 && statistics.sym_size(0) == kStatistics &&
                        statistics.sym_size(1) == Cases(x) &&
                        statistics.scalar_type() == ComputeType(x.scalar_type()),
                    "[online_layer_norm] statistics must have [5, ", Cases(x), "] ",
                    ComputeType(x.scalar_type()), ", got ", statistics.sym_sizes(), " ",
                    statistics.scalar_type());
  return EmptyGradients({}, x, weight, mask);
}

NormGradients Backward(const Tensor& dy_, const Tensor& x_, const Tensor& statistics_,
                       const OptionalTensor& weight_, double alpha, Mask mask,
                       const OptionalTensor& alphas) {
  auto [dx, dweight, dbias] = BackwardMeta(dy_, x_, statistics_, weight_, alpha, mask, alphas);
  const AlphaOptions options(alpha, alphas);
  const Tensor dy = dy_.contiguous(), x = x_.contiguous(), statistics = statistics_.contiguous();
  const Tensor weight = Contiguous(OrUndefined(weight_));
  ByTypes(x, dweight.defined() ? dweight : weight, [&]<class T, class P>() {
    const auto args = WithArrays<OnlineNormBackwardArgs<T, P>>(
        {.rows = statistics.size(1), .cols = x.size(-1)}, {{"dy", dy},
                                                           {"x", x},
                                                           {"gain", weight},
                                                           {"mean", statistics, 0},
                                                           {"mean_lo", statistics, 1},
                                                           {"rstd", statistics, 2},
                                                           {"dx", dx},
                                                           {"dgain", dweight},
                                                           {"dbias", dbias},
                                                           {"offset", statistics, 3},
                                                           {"deviation", statistics, 4}});
    if (x.is_cpu()) {
      return OnlineNormBackward<T, P>(
          args, options.In(OnlineNormOptions{.parallel_for = TorchParallelFor}));
    }
    const GpuCall call(x, cuda::WorkspaceBytes(args));
    cuda::OnlineNormBackward<T, P>(args, call.With(options.In(cuda::OnlineNormOptions())));
  });
  return {std::move(dx), std::move(dweight), std::move(dbias)};
}

// ---- The equations in PyTorch's operators, for higher derivatives

Tensor Mean(const Tensor& t) { return t.mean(at::IntArrayRef{-1}, /*keepdim=*/true); }

/// Returns the shape of one element for each case.
std::vector<c10::SymInt> CaseShape(const Tensor& x) {
  std::vector<c10::SymInt> shape = x.sym_sizes().vec();
  shape.back() = 1;
  return shape;
}

/// alpha_t as a factor of tensors that have a row for each case.
class Alpha {
 public:
  Alpha(const Tensor& x, double alpha, const OptionalTensor& alphas) : alpha_(alpha) {
    if (alphas) alphas_ = alphas->to(ComputeType(x.scalar_type())).view_symint(CaseShape(x));
  }

  friend Tensor operator*(const Alpha& a, const Tensor& t) {
    return a.alphas_.defined() ? a.alphas_ * t : a.alpha_ * t;
  }

 private:
  double alpha_;
  Tensor alphas_;
};

/// z, sigma and s of the cases as differentiable functions of x that have the saved values.
struct Statistics {
  Tensor z, sigma, s;
};

Statistics StatisticsOf(const Tensor& x, const Tensor& statistics, const Alpha& alpha) {
  const std::vector<c10::SymInt> shape = CaseShape(x);
  const auto saved = [&](int64_t row) { return statistics.select(0, row).view_symint(shape); };
  // Subtracting the saved mean cancels nothing. The rest adds zeros whose derivatives matter.
  const Tensor near = Wide(x) - saved(0) - saved(1);
  const Tensor centred = near - alpha * (Mean(near) - Mean(near).detach());
  const Tensor s = (Mean(centred.square()) * BesselFactor(x.sym_size(-1))).sqrt();
  const Tensor sigma = saved(2).reciprocal() + alpha * (s - s.detach());
  return {centred / sigma, sigma, s};
}

OnlineNormOutputs ForwardAutograd(const Tensor& x, const Tensor& state,
                                  const OptionalTensor& weight, const OptionalTensor& bias,
                                  double alpha, const OptionalTensor& alphas) {
  const Tensor &w = OrUndefined(weight), &b = OrUndefined(bias);
  const auto forward = [&] { return CallForward(x, state, weight, bias, alpha, alphas); };
  const bool tangents = AnyTangent(x, w, b);
  if (!tangents && torch::autograd::compute_requires_grad(x, w, b)) {
    return WithHistory(
        "PlanishOnlineNormBackward", {x, w, b}, forward,
        [&](const OnlineNormOutputs& outputs) {
          return Tensors{x, outputs.statistics, w, OrUndefined(alphas)};
        },
        [](const OnlineNormOutputs& outputs) { return Tensors{outputs.y}; },
        [alpha](const Tensors& g, const Tensors& kept, const auto& wanted) {
          if (!g[0].defined()) return Tensors(3);
          const auto [dx, dweight, dbias] =
              CallBackward(g[0], kept[0], kept[1], OrNone(kept[2]), alpha,
                           {wanted(0), wanted(1), wanted(2)}, OrNone(kept[3]));
          return Tensors{dx, dweight, dbias};
        });
  }
  OnlineNormOutputs outputs = BelowAutograd(forward);
  if (tangents) {
    Tensor y = StatisticsOf(x, outputs.statistics, Alpha(x, alpha, alphas)).z;
    if (w.defined()) y = y * Wide(w);
    if (b.defined()) y = y + Wide(b);
    outputs.y = y.to(x.scalar_type());
  }
  return outputs;
}

NormGradients BackwardAutograd(const Tensor& dy_, const Tensor& x, const Tensor& statistics,
                               const OptionalTensor& weight, double alpha_, Mask mask,
                               const OptionalTensor& alphas) {
  const Tensor& w = OrUndefined(weight);
  if (!AnyTangent(dy_, x, w) && !torch::autograd::compute_requires_grad(dy_, x, w)) {
    return BelowAutograd(
        [&] { return CallBackward(dy_, x, statistics, weight, alpha_, mask, alphas); });
  }
  const Tensor dy = Wide(dy_);
  const Alpha alpha(x, alpha_, alphas);
  const auto [z, sigma, s] = StatisticsOf(x, statistics, alpha);
  const Tensor g = w.defined() ? dy * Wide(w) : dy;
  const at::ScalarType type = OrElse(weight, x).scalar_type();
  const auto sum = [&](const Tensor& t) {
    return (t.dim() == 1 ? t : t.flatten(0, -2).sum(0)).to(type);
  };
  NormGradients gradients;
  auto& [dx, dweight, dbias] = gradients;
  if (mask[0]) {
    const Tensor b = alpha * (BesselFactor(x.sym_size(-1)) * sigma) / s;
    dx = ((g - alpha * Mean(g) - b * (z - alpha * Mean(z)) * Mean(g * z)) / sigma)
             .to(x.scalar_type());
  }
  if (mask[1]) dweight = sum(dy * z);
  if (mask[2]) dbias = sum(dy);
  return gradients;
}

/// Returns alpha_t of the `count` cases after `seen` cases, double, on the device of `seen`.
Tensor Alphas(const Tensor& seen, const c10::SymInt& count, double alpha, AlphaRule rule) {
  if (rule == AlphaRule::kConstant) return at::full_symint({count}, alpha, seen.options());
  const Tensor inverse = (seen + at::arange(1, count + 1, seen.options())).reciprocal();
  return rule == AlphaRule::kInverse ? inverse : inverse.clamp_min(alpha);
}

AlphaRule RuleOf(std::string_view schedule) {
  return FindNamed(kName, "schedule", internal::kAlphaRules, schedule).rule;
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): the operator's schema requires it.
Tensor OnlineAlphas(const Tensor& seen, c10::SymInt count, double alpha,
                    std::string_view schedule) {
  return Alphas(seen, count, alpha, RuleOf(schedule));
}

OperatorPair OnlineLayerNorm(const Tensor& x, const Tensor& state, const OptionalTensor& weight,
                             const OptionalTensor& bias, double alpha, std::string_view schedule) {
  CheckLayout(kName, x);
  const AlphaRule rule = RuleOf(schedule);
  const KernelParameters parameters(x, weight, bias);
  if (rule == AlphaRule::kConstant) {
    auto [y, next, statistics] =
        CallForward(x, state, parameters.weight(), parameters.bias(), alpha, {});
    return {std::move(y), std::move(next)};
  }
  CheckAlpha(kName, alpha);
  CheckVector("state", state, 3, x);
  const c10::SymInt cases = Cases(x);
  const Tensor before = state.detach(), seen = before.select(0, 2);
  auto [y, next, statistics] =
      CallForward(x, before.narrow(0, 0, 2), parameters.weight(), parameters.bias(), alpha,
                  Alphas(seen, cases, alpha, rule));
  return {std::move(y), at::cat({next, (seen + cases).unsqueeze(0)})};
}

}  // namespace

inline namespace PLANISH_API {

std::tuple<Tensor, Tensor> online_layer_norm(const Tensor& x, const Tensor& state,
                                             const OptionalTensor& weight,
                                             const OptionalTensor& bias, double alpha,
                                             std::string_view schedule) {
  return OnlineLayerNorm(x, state, weight, bias, alpha, schedule);
}

Tensor online_alphas(const Tensor& seen, int64_t count, double alpha, std::string_view schedule) {
  return OnlineAlphas(seen, count, alpha, schedule);
}

}  // namespace PLANISH_API

TORCH_LIBRARY_FRAGMENT(planish, m) {
  m.def(
      "online_norm_forward(Tensor x, Tensor state, Tensor? weight, Tensor? bias, float alpha, "
      "Tensor? alphas=None) -> (Tensor y, Tensor new_state, Tensor statistics)");
  m.def(
      "online_norm_backward(Tensor dy, Tensor x, Tensor statistics, Tensor? weight, float alpha, "
      "bool[3] mask, Tensor? alphas=None) -> (Tensor dx, Tensor dweight, Tensor dbias)");
  m.def(
      "online_layer_norm(Tensor x, Tensor state, Tensor? weight=None, Tensor? bias=None, float "
      "alpha=0.1, str schedule=\"constant\") -> (Tensor y, Tensor new_state)");
  m.def("online_alphas(Tensor seen, SymInt count, float alpha, str schedule) -> Tensor");
}

void RegisterOnlineNorm(torch::Library& m) {
  m.impl("online_norm_forward", TupleKernel<Forward>::Call);
  m.impl("online_norm_backward", TupleKernel<Backward>::Call);
}

TORCH_LIBRARY_IMPL(planish, CPU, m) { RegisterOnlineNorm(m); }
TORCH_LIBRARY_IMPL(planish, CUDA, m) { RegisterOnlineNorm(m); }

TORCH_LIBRARY_IMPL(planish, Meta, m) {
  m.impl("online_norm_forward", TupleKernel<ForwardMeta>::Call);
  m.impl("online_norm_backward", TupleKernel<BackwardMeta>::Call);
}

TORCH_LIBRARY_IMPL(planish, Autograd, m) {
  m.impl("online_norm_forward", TupleKernel<ForwardAutograd>::Call);
  m.impl("online_norm_backward", TupleKernel<BackwardAutograd>::Call);
}

TORCH_LIBRARY_IMPL(planish, CompositeImplicitAutograd, m) {
  m.impl("online_layer_norm", OnlineLayerNorm);
  m.impl("online_alphas", OnlineAlphas);
}
TORCH_LIBRARY_IMPL(planish, FuncTorchBatchedDecomposition, m) {
  m.impl("online_layer_norm", OnlineLayerNorm);
  m.impl("online_alphas", OnlineAlphas);
}

}  // namespace planish
