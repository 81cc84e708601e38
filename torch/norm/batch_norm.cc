#include "planish/batch_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/rsqrt.h>
#include <torch/library.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "planish/cuda.h"
#include "planish/torch_norm.h"
#include "torch/base/autograd.h"
#include "torch/base/device.h"
#include "torch/norm/ops.h"

// batch_norm. Training calls norm_forward over the batch. Evaluation, by running estimates, has its
// own primitives.
namespace planish {

namespace {

using at::Tensor;

constexpr char kName[] = "batch_norm";
constexpr NormSpec kSpec = {.over = Over::kBatch};  // for sizes and layouts

Tensor CallEvaluate(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                    const Tensor& mean, const Tensor& var, double eps) {
  static const auto op =
      FindOperator<Tensor(const Tensor&, const OptionalTensor&, const OptionalTensor&,
                          const Tensor&, const Tensor&, double)>("planish::batch_norm_evaluate");
  return op.call(x, weight, bias, mean, var, eps);
}

NormGradients CallEvaluateBackward(const Tensor& dy, const Tensor& x, const OptionalTensor& weight,
                                   const Tensor& mean, const Tensor& var, double eps, Mask mask) {
  static const auto op =
      FindOperator<OperatorTriple(const Tensor&, const Tensor&, const OptionalTensor&,
                                  const Tensor&, const Tensor&, double, Mask)>(
          "planish::batch_norm_evaluate_backward");
  auto [dx, dweight, dbias] = op.call(dy, x, weight, mean, var, eps, mask);
  return {std::move(dx), std::move(dweight), std::move(dbias)};
}

/// Checks that the running estimates are [channels].
void CheckEstimates(const Tensor& x, const Tensor& mean, const Tensor& var) {
  for (const auto& [name, t] : {std::pair("running_mean", &mean), std::pair("running_var", &var)}) {
    TORCH_CHECK_VALUE(t->dim() == 1 && t->sym_size(0) == x.sym_size(1), "[batch_norm] ", name,
                      " must have [", x.sym_size(1), "], got ", t->sym_sizes());
    TORCH_CHECK_VALUE(IsNormType(t->scalar_type()) && t->device() == x.device(), "[batch_norm] ",
                      name, " must be float on ", x.device(), ", got ", t->scalar_type(), " on ",
                      t->device());
  }
}

void CheckEvaluate(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                   const Tensor& mean, const Tensor& var, double eps) {
  CheckX(kName, x, 2);
  CheckEps(kName, eps);
  CheckParameters(kName, weight, bias, x, x.sym_size(1));
  CheckEstimates(x, mean, var);
}

Tensor EvaluateMeta(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                    const Tensor& mean, const Tensor& var, double eps) {
  CheckEvaluate(x, weight, bias, mean, var, eps);
  return EmptyOutput(kSpec, x);
}

NormGradients EvaluateBackwardMeta(const Tensor& dy, const Tensor& x, const OptionalTensor& weight,
                                   const Tensor& mean, const Tensor& var, double eps, Mask mask) {
  CheckEvaluate(x, weight, std::nullopt, mean, var, eps);
  CheckLike(kName, "dy", dy, x);
  return EmptyGradients(kSpec, x, weight, mask);
}

Tensor Estimate(const Tensor& t, const Tensor& x) {
  return t.to(ComputeType(x.scalar_type())).contiguous();
}

Tensor EvaluateKernel(const Tensor& x_, const OptionalTensor& weight_, const OptionalTensor& bias_,
                      const Tensor& mean_, const Tensor& var_, double eps) {
  Tensor y = EvaluateMeta(x_, weight_, bias_, mean_, var_, eps);
  const Tensor x = x_.contiguous(x_.suggest_memory_format());
  const Tensor weight = Contiguous(OrUndefined(weight_)), bias = Contiguous(OrUndefined(bias_));
  const Tensor mean = Estimate(mean_, x), var = Estimate(var_, x);
  const auto [batch, channels, spatial] = LayoutOf(kSpec, x_);
  ByTypes(x, weight.defined() ? weight : bias, [&]<class T, class P>() {
    const auto args = WithArrays<BatchNormEvaluateArgs<T, P>>(
        {.batch = batch, .channels = channels, .spatial = spatial}, {{"x", x},
                                                                     {"gain", weight},
                                                                     {"bias", bias},
                                                                     {"running_mean", mean},
                                                                     {"running_var", var},
                                                                     {"y", y}});
    if (x.is_cpu()) {
      return BatchNormEvaluate<T, P>(args, {.eps = eps, .parallel_for = TorchParallelFor});
    }
    const GpuCall call(x, cuda::WorkspaceBytes(args));
    cuda::BatchNormEvaluate<T, P>(args, call.With(cuda::BatchNormOptions{.eps = eps}));
  });
  return y;
}

NormGradients EvaluateBackwardKernel(const Tensor& dy_, const Tensor& x_,
                                     const OptionalTensor& weight_, const Tensor& mean_,
                                     const Tensor& var_, double eps, Mask mask) {
  NormGradients gradients = EvaluateBackwardMeta(dy_, x_, weight_, mean_, var_, eps, mask);
  const at::MemoryFormat format = x_.suggest_memory_format();
  const Tensor x = x_.contiguous(format), dy = dy_.contiguous(format);
  const Tensor weight = Contiguous(OrUndefined(weight_));
  const Tensor mean = Estimate(mean_, x), var = Estimate(var_, x);
  const auto [batch, channels, spatial] = LayoutOf(kSpec, x_);
  ByTypes(x, gradients.dweight.defined() ? gradients.dweight : weight, [&]<class T, class P>() {
    const auto args = WithArrays<BatchNormEvaluateBackwardArgs<T, P>>(
        {.batch = batch, .channels = channels, .spatial = spatial}, {{"dy", dy},
                                                                     {"x", x},
                                                                     {"gain", weight},
                                                                     {"running_mean", mean},
                                                                     {"running_var", var},
                                                                     {"dx", gradients.dx},
                                                                     {"dgain", gradients.dweight},
                                                                     {"dbias", gradients.dbias}});
    if (x.is_cpu()) {
      return BatchNormEvaluateBackward<T, P>(args, {.eps = eps, .parallel_for = TorchParallelFor});
    }
    const GpuCall call(x, cuda::WorkspaceBytes(args));
    cuda::BatchNormEvaluateBackward<T, P>(args, call.With(cuda::BatchNormOptions{.eps = eps}));
  });
  return gradients;
}

// ---- The equations in PyTorch's operators, for higher derivatives

/// Returns a [channels] tensor in a shape that broadcasts to x.
Tensor ByChannel(const Tensor& t, const Tensor& x) {
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[1] = -1;
  return Wide(t).view(shape);
}

Tensor Normalized(const Tensor& x, const Tensor& mean, const Tensor& var, double eps) {
  return (Wide(x) - ByChannel(mean, x)) * ByChannel(at::rsqrt(Wide(var) + eps), x);
}

Tensor SumToChannels(const Tensor& t, at::ScalarType type) {
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < t.dim(); ++d) {
    if (d != 1) dims.push_back(d);
  }
  return t.sum(dims).to(type);
}

Tensor EvaluateAutograd(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                        const Tensor& mean, const Tensor& var, double eps) {
  const Tensor &w = OrUndefined(weight), &b = OrUndefined(bias);
  if (AnyTangent(x, w, b)) {
    CheckEvaluate(x, weight, bias, mean, var, eps);
    Tensor y = Normalized(x, mean, var, eps);
    if (w.defined()) y = y * ByChannel(w, x);
    if (b.defined()) y = y + ByChannel(b, x);
    return y.to(x.scalar_type());
  }
  const auto forward = [&] { return CallEvaluate(x, weight, bias, mean, var, eps); };
  if (!torch::autograd::compute_requires_grad(x, w, b)) return BelowAutograd(forward);
  return WithHistory(
      "PlanishBatchNormEvaluateBackward", {x, w, b}, forward,
      [&](const Tensor&) { return Tensors{x, w, mean, var}; },
      [](const Tensor& y) { return Tensors{y}; },
      [eps](const Tensors& g, const Tensors& kept, const auto& needed) {
        if (!g[0].defined()) return Tensors(3);
        const auto [dx, dweight, dbias] =
            CallEvaluateBackward(g[0], kept[0], OrNone(kept[1]), kept[2], kept[3], eps,
                                 {needed(0), needed(1), needed(2)});
        return Tensors{dx, dweight, dbias};
      });
}

NormGradients EvaluateBackwardAutograd(const Tensor& dy, const Tensor& x,
                                       const OptionalTensor& weight, const Tensor& mean,
                                       const Tensor& var, double eps, Mask mask) {
  const Tensor& w = OrUndefined(weight);
  if (!AnyTangent(dy, x, w) && !torch::autograd::compute_requires_grad(dy, x, w)) {
    return BelowAutograd([&] { return CallEvaluateBackward(dy, x, weight, mean, var, eps, mask); });
  }
  CheckEvaluate(x, weight, std::nullopt, mean, var, eps);
  const Tensor g = w.defined() ? Wide(dy) * ByChannel(w, x) : Wide(dy);
  const at::ScalarType type = OrElse(weight, x).scalar_type();
  NormGradients gradients;
  auto& [dx, dweight, dbias] = gradients;
  if (mask[0]) dx = (g * ByChannel(at::rsqrt(Wide(var) + eps), x)).to(x.scalar_type());
  if (mask[1]) dweight = SumToChannels(Wide(dy) * Normalized(x, mean, var, eps), type);
  if (mask[2]) dbias = SumToChannels(Wide(dy), type);
  return gradients;
}

Tensor BatchNorm(const Tensor& x, const OptionalTensor& weight_, const OptionalTensor& bias_,
                 const OptionalTensor& running_mean, const OptionalTensor& running_var,
                 bool training, double momentum, double eps, bool unbiased) {
  CheckLayout(kName, x);
  const KernelParameters parameters(x, weight_, bias_);
  const OptionalTensor &weight = parameters.weight(), &bias = parameters.bias();
  CheckX(kName, x, 2);
  CheckMomentum(kName, momentum);
  TORCH_CHECK_VALUE(running_mean.has_value() == running_var.has_value(),
                    "[batch_norm] running_mean and running_var must be given together, got only "
                    "one");
  TORCH_CHECK_VALUE(training || running_mean,
                    "[batch_norm] running_mean must be a tensor in evaluation, got none");
  if (running_mean) CheckEstimates(x, *running_mean, *running_var);
  if (!training) {
    return CallEvaluate(x, weight, bias, *running_mean, *running_var, eps);
  }
  const c10::SymInt count = x.sym_size(1) == 0 ? c10::SymInt(0) : x.sym_numel() / x.sym_size(1);
  TORCH_CHECK_VALUE(
      (!running_mean && !unbiased) || count != 1,
      "[batch_norm] x must have at least 2 elements in each channel in training, got ",
      x.sym_sizes());
  auto [y, statistics] = CallNormForward(
      x, weight, bias, {.over = Over::kBatch, .eps = eps, .unbiased = unbiased}, /*save=*/true);
  if (running_mean && count != 0) {
    const at::NoGradGuard no_grad;
    const auto update = [&](const Tensor& estimate, const Tensor& now) {
      estimate.mul_(1 - momentum).add_(now.to(estimate.scalar_type()), momentum);
    };
    update(*running_mean, statistics.select(0, 0));
    update(*running_var, statistics.select(0, 3));
  }
  return y;
}

}  // namespace

inline namespace PLANISH_API {

Tensor batch_norm(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                  const OptionalTensor& running_mean, const OptionalTensor& running_var,
                  bool training, double momentum, double eps, bool unbiased) {
  static const auto op = FindOperator<Tensor(
      const Tensor&, const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
      const OptionalTensor&, bool, double, double, bool)>("planish::batch_norm");
  return op.call(x, weight, bias, running_mean, running_var, training, momentum, eps, unbiased);
}

}  // namespace PLANISH_API

TORCH_LIBRARY_FRAGMENT(planish, m) {
  m.def(
      "batch_norm_evaluate(Tensor x, Tensor? weight, Tensor? bias, Tensor mean, Tensor var, float "
      "eps) -> Tensor");
  m.def(
      "batch_norm_evaluate_backward(Tensor dy, Tensor x, Tensor? weight, Tensor mean, Tensor var, "
      "float eps, bool[3] mask) -> (Tensor dx, Tensor dweight, Tensor dbias)");
  m.def(
      "batch_norm(Tensor x, Tensor? weight, Tensor? bias, Tensor(a!)? running_mean, Tensor(b!)? "
      "running_var, bool training, float momentum, float eps, bool unbiased=False) -> Tensor");
}

void RegisterBatchNorm(torch::Library& m) {
  m.impl("batch_norm_evaluate", EvaluateKernel);
  m.impl("batch_norm_evaluate_backward", TupleKernel<EvaluateBackwardKernel>::Call);
}

TORCH_LIBRARY_IMPL(planish, CPU, m) { RegisterBatchNorm(m); }
TORCH_LIBRARY_IMPL(planish, CUDA, m) { RegisterBatchNorm(m); }

TORCH_LIBRARY_IMPL(planish, Meta, m) {
  m.impl("batch_norm_evaluate", EvaluateMeta);
  m.impl("batch_norm_evaluate_backward", TupleKernel<EvaluateBackwardMeta>::Call);
}

TORCH_LIBRARY_IMPL(planish, Autograd, m) {
  m.impl("batch_norm_evaluate", EvaluateAutograd);
  m.impl("batch_norm_evaluate_backward", TupleKernel<EvaluateBackwardAutograd>::Call);
}

TORCH_LIBRARY_IMPL(planish, CompositeImplicitAutograd, m) { m.impl("batch_norm", BatchNorm); }
TORCH_LIBRARY_IMPL(planish, FuncTorchBatchedDecomposition, m) { m.impl("batch_norm", BatchNorm); }

}  // namespace planish
