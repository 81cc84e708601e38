#include "planish/online_norm.h"

#include <ATen/TensorOperators.h>
#include <torch/library.h>

#include <cstdint>
#include <tuple>
#include <utility>

#include "planish/cuda.h"
#include "planish/torch_norm.h"
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
                              const OptionalTensor& bias, double alpha) {
  static const auto op =
      FindOperator<OperatorTriple(const Tensor&, const Tensor&, const OptionalTensor&,
                                  const OptionalTensor&, double)>("planish::online_norm_forward");
  auto [y, next, statistics] = op.call(x, state, weight, bias, alpha);
  return {std::move(y), std::move(next), std::move(statistics)};
}

NormGradients CallBackward(const Tensor& dy, const Tensor& x, const Tensor& statistics,
                           const OptionalTensor& weight, double alpha, Mask mask) {
  static const auto op = FindOperator<OperatorTriple(const Tensor&, const Tensor&, const Tensor&,
                                                     const OptionalTensor&, double, Mask)>(
      "planish::online_norm_backward");
  auto [dx, dweight, dbias] = op.call(dy, x, statistics, weight, alpha, mask);
  return {std::move(dx), std::move(dweight), std::move(dbias)};
}

void CheckForward(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                  double alpha) {
  CheckX(kName, x, 1);
  TORCH_CHECK_VALUE(x.sym_size(-1) >= 2,
                    "[online_layer_norm] x must have at least 2 elements in a case, got ",
                    x.sym_sizes());
  CheckAlpha(kName, alpha);
  CheckParameters(kName, weight, bias, x, x.sym_size(-1));
}

c10::SymInt Cases(const Tensor& x) {
  c10::SymInt cases = 1;
  for (int64_t d = 0; d + 1 < x.dim(); ++d) cases *= x.sym_size(d);
  return cases;
}

OnlineNormOutputs ForwardMeta(const Tensor& x, const Tensor& state, const OptionalTensor& weight,
                              const OptionalTensor& bias, double alpha) {
  CheckForward(x, weight, bias, alpha);
  TORCH_CHECK_VALUE(state.dim() == 1 && state.sym_size(0) == 2 &&
                        state.scalar_type() == at::kDouble && state.device() == x.device(),
                    "[online_layer_norm] state must have [2] Double on ", x.device(), ", got ",
                    state.sym_sizes(), " ", state.scalar_type(), " on ", state.device());
  return {EmptyOn(x, x.sym_sizes(), x.scalar_type()), EmptyOn(x, {2}, at::kDouble),
          EmptyOn(x, {kStatistics, Cases(x)}, ComputeType(x.scalar_type()))};
}

OnlineNormOutputs Forward(const Tensor& x_, const Tensor& state, const OptionalTensor& weight_,
                          const OptionalTensor& bias_, double alpha) {
  auto [y, next, statistics] = ForwardMeta(x_, state, weight_, bias_, alpha);
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
      return OnlineNormForward<T, P>(args, *state_after,
                                     {.alpha = alpha, .parallel_for = TorchParallelFor});
    }
    const GpuCall call(x, cuda::WorkspaceBytes(args));
    cuda::OnlineNormForward<T, P>(args, state_after,
                                  call.With(cuda::OnlineNormOptions{.alpha = alpha}));
  });
  return {std::move(y), std::move(next), std::move(statistics)};
}

NormGradients BackwardMeta(const Tensor& dy, const Tensor& x, const Tensor& statistics,
                           const OptionalTensor& weight, double alpha, Mask mask) {
  CheckForward(x, weight, std::nullopt, alpha);
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
                       const OptionalTensor& weight_, double alpha, Mask mask) {
  auto [dx, dweight, dbias] = BackwardMeta(dy_, x_, statistics_, weight_, alpha, mask);
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
      return OnlineNormBackward<T, P>(args, {.alpha = alpha, .parallel_for = TorchParallelFor});
    }
    const GpuCall call(x, cuda::WorkspaceBytes(args));
    cuda::OnlineNormBackward<T, P>(args, call.With(cuda::OnlineNormOptions{.alpha = alpha}));
  });
  return {std::move(dx), std::move(dweight), std::move(dbias)};
}

// ---- The equations in PyTorch's operators, for higher derivatives

Tensor Mean(const Tensor& t) { return t.mean(at::IntArrayRef{-1}, /*keepdim=*/true); }

/// z, sigma and s of the cases as differentiable functions of x that have the saved values.
struct Statistics {
  Tensor z, sigma, s;
};

Statistics StatisticsOf(const Tensor& x, const Tensor& statistics, double alpha) {
  std::vector<c10::SymInt> shape = x.sym_sizes().vec();
  shape.back() = 1;
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
                                  double alpha) {
  const Tensor &w = OrUndefined(weight), &b = OrUndefined(bias);
  const auto forward = [&] { return CallForward(x, state, weight, bias, alpha); };
  const bool tangents = AnyTangent(x, w, b);
  if (!tangents && torch::autograd::compute_requires_grad(x, w, b)) {
    return WithHistory(
        "PlanishOnlineNormBackward", {x, w, b}, forward,
        [&](const OnlineNormOutputs& outputs) { return Tensors{x, outputs.statistics, w}; },
        [](const OnlineNormOutputs& outputs) { return Tensors{outputs.y}; },
        [alpha](const Tensors& g, const Tensors& kept, const auto& wanted) {
          if (!g[0].defined()) return Tensors(3);
          const auto [dx, dweight, dbias] = CallBackward(g[0], kept[0], kept[1], OrNone(kept[2]),
                                                         alpha, {wanted(0), wanted(1), wanted(2)});
          return Tensors{dx, dweight, dbias};
        });
  }
  OnlineNormOutputs outputs = BelowAutograd(forward);
  if (tangents) {
    Tensor y = StatisticsOf(x, outputs.statistics, alpha).z;
    if (w.defined()) y = y * Wide(w);
    if (b.defined()) y = y + Wide(b);
    outputs.y = y.to(x.scalar_type());
  }
  return outputs;
}

NormGradients BackwardAutograd(const Tensor& dy_, const Tensor& x, const Tensor& statistics,
                               const OptionalTensor& weight, double alpha, Mask mask) {
  const Tensor& w = OrUndefined(weight);
  if (!AnyTangent(dy_, x, w) && !torch::autograd::compute_requires_grad(dy_, x, w)) {
    return BelowAutograd([&] { return CallBackward(dy_, x, statistics, weight, alpha, mask); });
  }
  const Tensor dy = Wide(dy_);
  const auto [z, sigma, s] = StatisticsOf(x, statistics, alpha);
  const Tensor g = w.defined() ? dy * Wide(w) : dy;
  const at::ScalarType type = OrElse(weight, x).scalar_type();
  const auto sum = [&](const Tensor& t) {
    return (t.dim() == 1 ? t : t.flatten(0, -2).sum(0)).to(type);
  };
  NormGradients gradients;
  auto& [dx, dweight, dbias] = gradients;
  if (mask[0]) {
    const Tensor b = BesselFactor(x.sym_size(-1)) * alpha * sigma / s;
    dx = ((g - alpha * Mean(g) - b * (z - alpha * Mean(z)) * Mean(g * z)) / sigma)
             .to(x.scalar_type());
  }
  if (mask[1]) dweight = sum(dy * z);
  if (mask[2]) dbias = sum(dy);
  return gradients;
}

OperatorPair OnlineLayerNorm(const Tensor& x, const Tensor& state, const OptionalTensor& weight,
                             const OptionalTensor& bias, double alpha) {
  CheckLayout(kName, x);
  const KernelParameters parameters(x, weight, bias);
  auto [y, next, statistics] = CallForward(x, state, parameters.weight(), parameters.bias(), alpha);
  return {std::move(y), std::move(next)};
}

}  // namespace

inline namespace PLANISH_API {

std::tuple<Tensor, Tensor> online_layer_norm(const Tensor& x, const Tensor& state,
                                             const OptionalTensor& weight,
                                             const OptionalTensor& bias, double alpha) {
  return OnlineLayerNorm(x, state, weight, bias, alpha);
}

}  // namespace PLANISH_API

TORCH_LIBRARY_FRAGMENT(planish, m) {
  m.def(
      "online_norm_forward(Tensor x, Tensor state, Tensor? weight, Tensor? bias, float alpha) -> "
      "(Tensor y, Tensor new_state, Tensor statistics)");
  m.def(
      "online_norm_backward(Tensor dy, Tensor x, Tensor statistics, Tensor? weight, float alpha, "
      "bool[3] mask) -> (Tensor dx, Tensor dweight, Tensor dbias)");
  m.def(
      "online_layer_norm(Tensor x, Tensor state, Tensor? weight=None, Tensor? bias=None, float "
      "alpha=0.1) -> (Tensor y, Tensor new_state)");
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
}
TORCH_LIBRARY_IMPL(planish, FuncTorchBatchedDecomposition, m) {
  m.impl("online_layer_norm", OnlineLayerNorm);
}

}  // namespace planish
