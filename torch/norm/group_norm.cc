#include "planish/group_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "planish/cuda.h"
#include "planish/torch_norm.h"
#include "torch/base/autograd.h"
#include "torch/base/device.h"
#include "torch/norm/levels.h"
#include "torch/norm/ops.h"

// group_norm and instance_norm, which has a group for each channel. Both are calls of the
// primitives group_norm_forward and group_norm_backward. With running estimates instance_norm is
// batch_norm.
namespace planish {

namespace {

using at::Tensor;

constexpr char kName[] = "group_norm";
constexpr NormSpec kSpec = {.over = Over::kChannels};  // for layouts

/// The groups of a call. `count` 0 means one for each channel.
struct GroupSpec {
  int64_t count = 1;
  double eps = 1e-5;

  c10::SymInt CountOf(const Tensor& x) const { return count == 0 ? x.sym_size(1) : count; }
};

NormOutputs CallForward(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                        const GroupSpec& spec, bool save) {
  static const auto op =
      FindOperator<OperatorPair(const Tensor&, const OptionalTensor&, const OptionalTensor&,
                                int64_t, double, bool)>("planish::group_norm_forward");
  auto [y, statistics] = op.call(x, weight, bias, spec.count, spec.eps, save);
  return {std::move(y), std::move(statistics)};
}

NormGradients CallBackward(const Tensor& dy, const Tensor& x, const Tensor& statistics,
                           const OptionalTensor& weight, const GroupSpec& spec, Mask mask) {
  static const auto op = FindOperator<OperatorTriple(const Tensor&, const Tensor&, const Tensor&,
                                                     const OptionalTensor&, int64_t, double, Mask)>(
      "planish::group_norm_backward");
  auto [dx, dweight, dbias] = op.call(dy, x, statistics, weight, spec.count, spec.eps, mask);
  return {std::move(dx), std::move(dweight), std::move(dbias)};
}

void CheckGroups(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                 const GroupSpec& spec) {
  CheckX(kName, x, 2);
  CheckEps(kName, spec.eps);
  TORCH_CHECK_VALUE(spec.count >= 0, "[group_norm] num_groups must be at least 1, got ",
                    spec.count);
  TORCH_CHECK_VALUE(spec.count == 0 || x.sym_size(1) % spec.count == 0,
                    "[group_norm] num_groups must divide the channels of x, ", x.sym_size(1),
                    ", got ", spec.count);
  CheckParameters(kName, weight, bias, x, x.sym_size(1));
}

// ---- Kernels

NormOutputs ForwardMeta(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                        int64_t groups, double eps, bool save) {
  const GroupSpec spec = {groups, eps};
  CheckGroups(x, weight, bias, spec);
  const c10::SymInt sizes[] = {3, x.sym_size(0), spec.CountOf(x)};
  return {EmptyOutput(kSpec, x), save ? EmptyOn(x, sizes, ComputeType(x.scalar_type())) : Tensor()};
}

/// The memory of a call: its arrays are [batch, channels, spatial], or with channels last [batch,
/// spatial, channels].
struct GroupLayout {
  GroupLayout(const Tensor& x, const GroupSpec& spec)
      : batch(x.size(0)),
        channels(x.size(1)),
        groups(spec.count == 0 ? channels : spec.count),
        // A GPU has no kernel for channels last.
        format(x.is_cpu() ? x.suggest_memory_format() : at::MemoryFormat::Contiguous) {
    for (int64_t d = 2; d < x.dim(); ++d) spatial *= x.size(d);
  }

  template <class Args>
  Args Sizes() const {
    return {.batch = batch, .groups = groups, .channels = channels, .spatial = spatial};
  }
  GroupNormOptions Options(double eps) const {
    return {.eps = eps,
            .channels_last = format != at::MemoryFormat::Contiguous,
            .parallel_for = TorchParallelFor};
  }
  /// Returns a tensor with this layout that is `t` or can be copied to it.
  Tensor Output(const Tensor& t) const {
    return !t.defined() || t.is_contiguous(format) ? t : at::empty(t.sizes(), t.options(), format);
  }

  int64_t batch, channels, spatial = 1, groups;
  at::MemoryFormat format;
};

NormOutputs Forward(const Tensor& x_, const OptionalTensor& weight_, const OptionalTensor& bias_,
                    int64_t groups, double eps, bool save) {
  NormOutputs outputs = ForwardMeta(x_, weight_, bias_, groups, eps, save);
  if (x_.numel() == 0) {
    if (save) outputs.statistics.fill_(std::numeric_limits<double>::quiet_NaN());
    return outputs;
  }
  const GroupLayout layout(x_, {groups, eps});
  const Tensor x = x_.contiguous(layout.format), y = layout.Output(outputs.y);
  const Tensor weight = Contiguous(OrUndefined(weight_)), bias = Contiguous(OrUndefined(bias_));
  const Tensor& statistics = outputs.statistics;
  ByTypes(x, weight.defined() ? weight : bias, [&]<class T, class P>() {
    const auto args =
        WithArrays(layout.Sizes<GroupNormForwardArgs<T, P>>(), {{"x", x},
                                                                {"gain", weight},
                                                                {"bias", bias},
                                                                {"y", y},
                                                                {"mean", statistics, 0},
                                                                {"mean_lo", statistics, 1},
                                                                {"rstd", statistics, 2}});
    if (x.is_cpu()) return GroupNormForward<T, P>(args, layout.Options(eps));
    const GpuCall call(x, cuda::WorkspaceBytes(args));
    cuda::GroupNormForward<T, P>(args, call.With(cuda::GroupNormOptions{.eps = eps}));
  });
  if (!y.is_same(outputs.y)) outputs.y.copy_(y);
  return outputs;
}

NormGradients BackwardMeta(const Tensor& dy, const Tensor& x, const Tensor& statistics,
                           const OptionalTensor& weight, int64_t groups, double eps, Mask mask) {
  const GroupSpec spec = {groups, eps};
  CheckGroups(x, weight, std::nullopt, spec);
  CheckLike(kName, "dy", dy, x);
  const c10::SymInt sizes[] = {3, x.sym_size(0), spec.CountOf(x)};
  TORCH_CHECK_VALUE(statistics.sym_sizes().equals(sizes) &&
                        statistics.scalar_type() == ComputeType(x.scalar_type()),
                    "[group_norm] statistics must have ", c10::SymIntArrayRef(sizes), " ",
                    ComputeType(x.scalar_type()), ", got ", statistics.sym_sizes(), " ",
                    statistics.scalar_type());
  return EmptyGradients(kSpec, x, weight, mask);
}

NormGradients Backward(const Tensor& dy_, const Tensor& x_, const Tensor& statistics_,
                       const OptionalTensor& weight_, int64_t groups, double eps, Mask mask) {
  NormGradients gradients = BackwardMeta(dy_, x_, statistics_, weight_, groups, eps, mask);
  const auto& [given_dx, dweight, dbias] = gradients;
  if (x_.numel() == 0) {
    for (const Tensor* sum : {&dweight, &dbias}) {
      if (sum->defined()) sum->zero_();
    }
    return gradients;
  }
  const GroupLayout layout(x_, {groups, eps});
  const Tensor x = x_.contiguous(layout.format), dy = dy_.contiguous(layout.format);
  const Tensor dx = layout.Output(given_dx), statistics = statistics_.contiguous();
  const Tensor weight = Contiguous(OrUndefined(weight_));
  const Tensor& like = dweight.defined() ? dweight : dbias.defined() ? dbias : weight;
  ByTypes(x, like, [&]<class T, class P>() {
    const auto args =
        WithArrays(layout.Sizes<GroupNormBackwardArgs<T, P>>(), {{"dy", dy},
                                                                 {"x", x},
                                                                 {"gain", weight},
                                                                 {"mean", statistics, 0},
                                                                 {"mean_lo", statistics, 1},
                                                                 {"rstd", statistics, 2},
                                                                 {"dx", dx},
                                                                 {"dgain", dweight},
                                                                 {"dbias", dbias}});
    if (x.is_cpu()) return GroupNormBackward<T, P>(args, layout.Options(eps));
    const GpuCall call(x, cuda::WorkspaceBytes(args));
    cuda::GroupNormBackward<T, P>(args, call.With(cuda::GroupNormOptions{.eps = eps}));
  });
  if (dx.defined() && !dx.is_same(given_dx)) given_dx.copy_(dx);
  return gradients;
}

// ---- The equations in PyTorch's operators, for forward mode, higher derivatives and vmap

/// x as [batch, groups, elements], and its statistics as differentiable functions of x.
class ComposedGroups {
 public:
  ComposedGroups(const Tensor& x, const GroupSpec& spec) : x_(x) {
    c10::SymInt length = x.sym_size(1) / std::max<c10::SymInt>(1, spec.CountOf(x));
    for (int64_t d = 2; d < x.dim(); ++d) length = length * x.sym_size(d);
    sizes_ = {x.sym_size(0), spec.CountOf(x), length};
    const Tensor wide = Grouped(Wide(x));
    // The saved mean: subtracting it cancels nothing; only the mean of the rest depends on x.
    const Tensor mean = wide.detach().mean(-1, /*keepdim=*/true), rest = wide - mean;
    const Tensor rest_mean = rest.mean(-1, /*keepdim=*/true), centred = rest - rest_mean;
    rstd = (centred.square().mean(-1, /*keepdim=*/true) + spec.eps).rsqrt();
    xhat = centred * rstd;
    statistics = at::stack({mean, rest_mean, rstd}).squeeze(-1).detach();
  }

  Tensor Grouped(const Tensor& t) const { return t.reshape_symint(sizes_); }
  /// Returns a tensor of groups in the shape of x.
  Tensor Ungrouped(const Tensor& t) const { return t.reshape_symint(x_.sym_sizes()); }
  /// Returns a [channels] parameter in a shape that broadcasts to x.
  Tensor Parameter(const Tensor& t) const {
    std::vector<int64_t> shape(static_cast<size_t>(x_.dim()), 1);
    shape[1] = -1;
    return t.to(ComputeType(x_.scalar_type())).view(shape);
  }
  Tensor SumToChannels(const Tensor& t, at::ScalarType type) const {
    std::vector<int64_t> dims = {0};
    for (int64_t d = 2; d < x_.dim(); ++d) dims.push_back(d);
    return t.sum(dims).to(type);
  }

  Tensor xhat, rstd;  ///< [batch, groups, elements] and [batch, groups, 1]
  Tensor statistics;  ///< [3, batch, groups]

 private:
  const Tensor& x_;
  std::vector<c10::SymInt> sizes_;
};

NormOutputs ComposedForward(const Tensor& x, const Tensor& weight, const Tensor& bias,
                            const GroupSpec& spec) {
  const ComposedGroups groups(x, spec);
  Tensor y = groups.Ungrouped(groups.xhat);
  if (weight.defined()) y = y * groups.Parameter(weight);
  if (bias.defined()) y = y + groups.Parameter(bias);
  return {y.to(x.scalar_type()), groups.statistics};
}

NormGradients ComposedBackward(const Tensor& dy_, const Tensor& x, const OptionalTensor& weight,
                               const GroupSpec& spec, Mask mask) {
  const ComposedGroups groups(x, spec);
  const Tensor dy = Wide(dy_);
  const at::ScalarType type = OrElse(weight, x).scalar_type();
  NormGradients d;
  if (mask[0]) {
    const Tensor g = groups.Grouped(weight ? dy * groups.Parameter(*weight) : dy);
    const auto mean = [](const Tensor& t) { return t.mean(-1, /*keepdim=*/true); };
    const Tensor dx = groups.rstd * (g - mean(g) - groups.xhat * mean(g * groups.xhat));
    d.dx = groups.Ungrouped(dx).to(x.scalar_type());
  }
  if (mask[1]) d.dweight = groups.SumToChannels(dy * groups.Ungrouped(groups.xhat), type);
  if (mask[2]) d.dbias = groups.SumToChannels(dy, type);
  return d;
}

// ---- Autograd

NormOutputs ForwardAutograd(const Tensor& x, const OptionalTensor& weight_,
                            const OptionalTensor& bias_, int64_t count, double eps, bool save) {
  const GroupSpec spec = {count, eps};
  const Tensor &weight = OrUndefined(weight_), &bias = OrUndefined(bias_);
  if (AnyTangent(x, weight, bias)) {
    CheckGroups(x, weight_, bias_, spec);
    return ComposedForward(x, weight, bias, spec);
  }
  const bool needed = torch::autograd::compute_requires_grad(x, weight, bias);
  const auto forward = [&] { return CallForward(x, weight_, bias_, spec, save || needed); };
  if (!needed) return BelowAutograd(forward);
  return WithHistory(
      "PlanishGroupNormBackward", {x, weight, bias}, forward,
      [&](const NormOutputs& outputs) { return Tensors{x, outputs.statistics, weight}; },
      [](const NormOutputs& outputs) { return Tensors{outputs.y}; },
      [spec](const Tensors& g, const Tensors& kept, const auto& wanted) {
        if (!g[0].defined()) return Tensors(3);
        auto [dx, dweight, dbias] = CallBackward(g[0], kept[0], kept[1], OrNone(kept[2]), spec,
                                                 {wanted(0), wanted(1), wanted(2)});
        return Tensors{dx, dweight, dbias};
      });
}

NormGradients BackwardAutograd(const Tensor& dy, const Tensor& x, const Tensor& statistics,
                               const OptionalTensor& weight_, int64_t count, double eps,
                               Mask mask) {
  const GroupSpec spec = {count, eps};
  const Tensor& weight = OrUndefined(weight_);
  if (!AnyTangent(dy, x, weight) && !torch::autograd::compute_requires_grad(dy, x, weight)) {
    return BelowAutograd([&] { return CallBackward(dy, x, statistics, weight_, spec, mask); });
  }
  CheckGroups(x, weight_, std::nullopt, spec);
  return ComposedBackward(dy, x, weight_, spec, mask);
}

// ---- vmap. Mapped cases that have the same parameters are more samples of one call.

NormOutputs ForwardBatched(const Tensor& x_, const OptionalTensor& weight_,
                           const OptionalTensor& bias_, int64_t count, double eps, bool save) {
  const GroupSpec spec = {count, eps};
  CheckGroups(x_, weight_, bias_, spec);
  const Level level;
  const Mapped x = level.Unwrap(x_), weight = level.Unwrap(OrUndefined(weight_)),
               bias = level.Unwrap(OrUndefined(bias_));
  if (!x.mapped || weight.mapped || bias.mapped) {
    return ComposedForward(x_, OrUndefined(weight_), OrUndefined(bias_), spec);
  }
  const c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::FuncTorchBatched);
  auto [y, statistics] =
      CallForward(x.tensor.flatten(0, 1), OrNone(weight.tensor), OrNone(bias.tensor), spec, save);
  if (save) {
    const c10::SymInt cases = x.tensor.sym_size(0);
    statistics = level.Wrap(
        statistics.view_symint({3, cases, x.tensor.sym_size(1), statistics.sym_size(2)}), 1);
  }
  return {level.Wrap(y.view_symint(x.tensor.sym_sizes())), statistics};
}

NormGradients BackwardBatched(const Tensor& dy_, const Tensor& x_, const Tensor& statistics_,
                              const OptionalTensor& weight_, int64_t count, double eps, Mask mask) {
  const GroupSpec spec = {count, eps};
  const Level level;
  const Mapped dy = level.Unwrap(dy_), x = level.Unwrap(x_),
               statistics = level.Unwrap(statistics_, 1),
               weight = level.Unwrap(OrUndefined(weight_));
  const bool fold = mask[0] && dy.mapped && x.mapped && statistics.mapped && !weight.mapped;
  // Each case has its own gradients of weight and bias.
  NormGradients d = ComposedBackward(dy_, x_, weight_, spec, {mask[0] && !fold, mask[1], mask[2]});
  if (fold) {
    const c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::FuncTorchBatched);
    const Tensor dx = CallBackward(dy.tensor.flatten(0, 1), x.tensor.flatten(0, 1),
                                   statistics.tensor.flatten(1, 2), OrNone(weight.tensor), spec,
                                   {true, false, false})
                          .dx;
    d.dx = level.Wrap(dx.view_symint(x.tensor.sym_sizes()));
  }
  return d;
}

// ---- Functions that users call

Tensor GroupNorm(const Tensor& x, int64_t num_groups, const OptionalTensor& weight,
                 const OptionalTensor& bias, double eps) {
  CheckLayout(kName, x);
  TORCH_CHECK_VALUE(num_groups >= 1, "[group_norm] num_groups must be at least 1, got ",
                    num_groups);
  const KernelParameters parameters(x, weight, bias);
  return CallForward(x, parameters.weight(), parameters.bias(), {num_groups, eps}, false).y;
}

/// Makes each channel of each sample a channel of one batch, as PyTorch does. Then averages the
/// updated estimates over the samples.
Tensor InstanceNormWithEstimates(const Tensor& x, const OptionalTensor& weight,
                                 const OptionalTensor& bias, const Tensor& mean, const Tensor& var,
                                 double momentum, double eps) {
  const c10::SymInt batch = x.sym_size(0), channels = x.sym_size(1);
  std::vector<c10::SymInt> sizes(x.sym_sizes().begin(), x.sym_sizes().end());
  sizes[0] = 1;
  sizes[1] = batch * channels;
  const c10::SymInt repeats[] = {batch};
  const auto each = [&](const OptionalTensor& t) {
    return t && t->defined() ? OptionalTensor(t->repeat_symint(repeats)) : std::nullopt;
  };
  const OptionalTensor means = each(mean), vars = each(var);
  const Tensor y = planish::batch_norm(x.reshape_symint(sizes), each(weight), each(bias), means,
                                       vars, /*training=*/true, momentum, eps);
  {
    const at::NoGradGuard no_grad;
    if (batch != 0) {
      mean.copy_(means->view_symint({batch, channels}).mean(0));
      var.copy_(vars->view_symint({batch, channels}).mean(0));
    }
  }
  return y.view_symint(x.sym_sizes());
}

Tensor InstanceNorm(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                    const OptionalTensor& running_mean, const OptionalTensor& running_var,
                    bool use_input_stats, double momentum, double eps) {
  constexpr char kInstance[] = "instance_norm";
  CheckLayout(kInstance, x);
  CheckX(kInstance, x, 3);
  CheckEps(kInstance, eps);
  CheckMomentum(kInstance, momentum);
  TORCH_CHECK_VALUE(running_mean.has_value() == running_var.has_value(),
                    "[instance_norm] running_mean and running_var must be given together, got only "
                    "one");
  TORCH_CHECK_VALUE(use_input_stats || running_mean,
                    "[instance_norm] running_mean must be a tensor without use_input_stats, got "
                    "none");
  const KernelParameters parameters(x, weight, bias);
  CheckParameters(kInstance, parameters.weight(), parameters.bias(), x, x.sym_size(1));
  if (!use_input_stats) {
    return planish::batch_norm(x, weight, bias, running_mean, running_var, /*training=*/false,
                               momentum, eps);
  }
  c10::SymInt spatial = 1;
  for (int64_t d = 2; d < x.dim(); ++d) spatial = spatial * x.sym_size(d);
  TORCH_CHECK_VALUE(spatial != 1, "[instance_norm] x must have at least 2 spatial elements, got ",
                    x.sym_sizes());
  if (running_mean) {
    return InstanceNormWithEstimates(x, weight, bias, *running_mean, *running_var, momentum, eps);
  }
  return CallForward(x, parameters.weight(), parameters.bias(), {0, eps}, false).y;
}

}  // namespace

inline namespace PLANISH_API {

Tensor group_norm(const Tensor& x, int64_t num_groups, const OptionalTensor& weight,
                  const OptionalTensor& bias, double eps) {
  return GroupNorm(x, num_groups, weight, bias, eps);
}

Tensor instance_norm(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                     const OptionalTensor& running_mean, const OptionalTensor& running_var,
                     bool use_input_stats, double momentum, double eps) {
  static const auto op =
      FindOperator<Tensor(const Tensor&, const OptionalTensor&, const OptionalTensor&,
                          const OptionalTensor&, const OptionalTensor&, bool, double, double)>(
          "planish::instance_norm");
  return op.call(x, weight, bias, running_mean, running_var, use_input_stats, momentum, eps);
}

}  // namespace PLANISH_API

TORCH_LIBRARY_FRAGMENT(planish, m) {
  m.def(
      "group_norm_forward(Tensor x, Tensor? weight, Tensor? bias, int groups, float eps, bool "
      "save) -> (Tensor y, Tensor statistics)");
  m.def(
      "group_norm_backward(Tensor dy, Tensor x, Tensor statistics, Tensor? weight, int groups, "
      "float eps, bool[3] mask) -> (Tensor dx, Tensor dweight, Tensor dbias)");
  m.def(
      "group_norm(Tensor x, int num_groups, Tensor? weight=None, Tensor? bias=None, float "
      "eps=1e-05) -> Tensor");
  m.def(
      "instance_norm(Tensor x, Tensor? weight=None, Tensor? bias=None, Tensor(a!)? "
      "running_mean=None, Tensor(b!)? running_var=None, bool use_input_stats=True, float "
      "momentum=0.1, float eps=1e-05) -> Tensor");
}

void RegisterGroupNorm(torch::Library& m) {
  m.impl("group_norm_forward", TupleKernel<Forward>::Call);
  m.impl("group_norm_backward", TupleKernel<Backward>::Call);
}

TORCH_LIBRARY_IMPL(planish, CPU, m) { RegisterGroupNorm(m); }
TORCH_LIBRARY_IMPL(planish, CUDA, m) { RegisterGroupNorm(m); }

TORCH_LIBRARY_IMPL(planish, Meta, m) {
  m.impl("group_norm_forward", TupleKernel<ForwardMeta>::Call);
  m.impl("group_norm_backward", TupleKernel<BackwardMeta>::Call);
}

TORCH_LIBRARY_IMPL(planish, Autograd, m) {
  m.impl("group_norm_forward", TupleKernel<ForwardAutograd>::Call);
  m.impl("group_norm_backward", TupleKernel<BackwardAutograd>::Call);
}

TORCH_LIBRARY_IMPL(planish, FuncTorchBatched, m) {
  m.impl("group_norm_forward", TupleKernel<ForwardBatched>::Call);
  m.impl("group_norm_backward", TupleKernel<BackwardBatched>::Call);
}

void RegisterGroupFunctions(torch::Library& m) {
  m.impl("group_norm", GroupNorm);
  m.impl("instance_norm", InstanceNorm);
}

TORCH_LIBRARY_IMPL(planish, CompositeImplicitAutograd, m) { RegisterGroupFunctions(m); }
TORCH_LIBRARY_IMPL(planish, FuncTorchBatchedDecomposition, m) { RegisterGroupFunctions(m); }

}  // namespace planish
