#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/library.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <tuple>

#include "torch/norm/derivatives.h"
#include "torch/norm/gains.h"
#include "torch/norm/levels.h"
#include "torch/norm/ops.h"

// vmap of norm_forward and norm_backward. If all cases have the same weight and bias, they become
// more rows of one call. Other calls are composed of PyTorch's operators, which have vmap rules.
namespace planish {

namespace {

using at::Tensor;

// Returns t with the mapped dimension merged. Channels must be dimension 1; rows need no merge.
Tensor Fold(const NormSpec& spec, const Tensor& t) {
  return spec.over == Over::kRow || !t.defined() ? t : t.flatten(0, 1);
}
Tensor Unfold(const NormSpec& spec, const Tensor& t, const Tensor& like) {
  return spec.over == Over::kRow ? t : t.view_symint(like.sym_sizes());
}

NormOutputs ForwardBatched(const Tensor& x_, const OptionalTensor& weight_,
                           const OptionalTensor& bias_, std::string_view norm, int64_t over,
                           double eps, double scale, double slope, bool unbiased, bool save) {
  const NormSpec spec = SpecOf(norm, over, eps, scale, slope, unbiased);
  CheckNormForward(spec, x_, weight_, bias_);
  const Level level;
  const Mapped x = level.Unwrap(x_), weight = level.Unwrap(OrUndefined(weight_)),
               bias = level.Unwrap(OrUndefined(bias_));
  if (!CanFold(spec, {x}, {weight, bias}) || !KernelsTake(x.tensor, weight.tensor)) {
    const Tensor statistics = ComposedStatistics(spec, x_);
    return {ComposedNorm(spec, {x_, statistics, OrUndefined(weight_), OrUndefined(bias_)}),
            statistics};
  }
  const c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::FuncTorchBatched);
  auto [y, statistics] =
      CallNormForward(Fold(spec, x.tensor), OrNone(weight.tensor), OrNone(bias.tensor), spec, save);
  if (save) {
    auto sizes = StatisticsSizes(spec, x_);
    sizes.insert(sizes.begin() + 1, x.tensor.sym_size(0));
    statistics = level.Wrap(statistics.view_symint(sizes), 1);
  }
  return {level.Wrap(Unfold(spec, y, x.tensor)), statistics};
}

OperatorTriple AddForwardBatched(const Tensor& x, const Tensor& residual,
                                 const OptionalTensor& weight, const OptionalTensor& bias,
                                 std::string_view norm, int64_t over, double eps, bool save) {
  const Tensor sum = x + residual;
  auto [y, statistics] =
      CallNormForward(sum, weight, bias, SpecOf(norm, over, eps, 1, 0, false), save);
  return {y, sum, statistics};
}

NormGradients BackwardBatched(const OptionalTensor& dy_, const OptionalTensor& dsum_,
                              const Tensor& x_, const Tensor& statistics_,
                              const OptionalTensor& weight_, std::string_view norm, int64_t over,
                              double eps, double scale, double slope, bool unbiased, Mask mask) {
  const NormSpec spec = SpecOf(norm, over, eps, scale, slope, unbiased);
  const Level level;
  const Mapped dy = level.Unwrap(OrUndefined(dy_)), dsum = level.Unwrap(OrUndefined(dsum_)),
               x = level.Unwrap(x_), statistics = level.Unwrap(statistics_, 1),
               weight = level.Unwrap(OrUndefined(weight_));
  const bool fold = mask[0] && CanFold(spec, {dy, dsum, x, statistics}, {weight}) &&
                    KernelsTake(x.tensor, weight.tensor);
  // Each case has its own gradients of weight and bias.
  NormGradients gradients = ComposedNormBackward(spec, OrUndefined(dy_), OrUndefined(dsum_),
                                                 {x_, statistics_, OrUndefined(weight_), {}},
                                                 {mask[0] && !fold, mask[1], mask[2]});
  if (fold) {
    const c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::FuncTorchBatched);
    const Tensor dx =
        CallNormBackward(
            Fold(spec, dy.tensor), OrNone(Fold(spec, dsum.tensor)), Fold(spec, x.tensor),
            spec.over == Over::kRow ? statistics.tensor : statistics.tensor.flatten(1, 2),
            OrNone(weight.tensor), spec, {true, false, false})
            .dx;
    gradients.dx = level.Wrap(Unfold(spec, dx, x.tensor));
  }
  return gradients;
}

}  // namespace

TORCH_LIBRARY_IMPL(planish, FuncTorchBatched, m) {
  m.impl("norm_forward", TupleKernel<ForwardBatched>::Call);
  m.impl("add_norm_forward", AddForwardBatched);
  m.impl("norm_backward", TupleKernel<BackwardBatched>::Call);
}

}  // namespace planish
