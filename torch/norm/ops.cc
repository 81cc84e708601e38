#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/library.h>

#include <array>
#include <tuple>

#include "planish/norm.h"
#include "planish/torch_norm.h"
#include "torch/base/compat.h"
#include "torch/base/core.h"

// The core's norms as PyTorch operators, as PyTorch's own generated code does it: two primitives,
// each with a kernel for every backend, and an autograd node that calls them through the
// dispatcher.
namespace planish {

namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;
using Two = std::tuple<Tensor, Tensor>;
using Three = std::tuple<Tensor, Tensor, Tensor>;

// moments: [3, rows], the mean, the part of the mean that its type cannot hold, and rstd.
constexpr char kForward[] =
    "layer_norm_forward(Tensor x, Tensor? weight, Tensor? bias, float eps) -> (Tensor y, Tensor "
    "moments)";
constexpr char kBackward[] =
    "layer_norm_backward(Tensor dy, Tensor x, Tensor moments, Tensor? weight, bool[3] mask) -> "
    "(Tensor dx, Tensor dweight, Tensor dbias)";
constexpr char kLayerNorm[] =
    "layer_norm(Tensor x, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None, "
    "float eps=1e-05) -> Tensor";

// Through the dispatcher: each caller sees the layers below its own (autograd, functional
// transforms, backends).
Two CallForward(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                double eps) {
  static const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("planish::layer_norm_forward", "")
          .typed<Two(const Tensor&, const OptionalTensor&, const OptionalTensor&, double)>();
  return op.call(x, weight, bias, eps);
}

Three CallBackward(const Tensor& dy, const Tensor& x, const Tensor& moments,
                   const OptionalTensor& weight, std::array<bool, 3> mask) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("planish::layer_norm_backward", "")
                             .typed<Three(const Tensor&, const Tensor&, const Tensor&,
                                          const OptionalTensor&, std::array<bool, 3>)>();
  return op.call(dy, x, moments, weight, mask);
}

void CheckVector(const char* name, const OptionalTensor& vector, const Tensor& x) {
  if (!vector) return;
  TORCH_CHECK(vector->dim() == 1 && vector->sym_size(0) == x.sym_size(-1), "[layer_norm] ", name,
              " must have the size of the normalised dimensions, ", x.sym_size(-1), ", but has ",
              vector->sym_sizes());
  TORCH_CHECK(vector->scalar_type() == x.scalar_type() && vector->device() == x.device(),
              "[layer_norm] ", name, " must have x's type and device, ", x.scalar_type(), " on ",
              x.device(), ", but has ", vector->scalar_type(), " on ", vector->device());
}

void CheckForward(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias) {
  TORCH_CHECK(x.dim() >= 1, "[layer_norm] x must have at least one dimension but has none");
  TORCH_CHECK(IsFloatOrDouble(x), "[layer_norm] x must be float or double but has ",
              x.scalar_type());
  CheckVector("weight", weight, x);
  CheckVector("bias", bias, x);
}

c10::SymInt Rows(const Tensor& x) {
  c10::SymInt rows = 1;
  for (int64_t d = 0; d + 1 < x.dim(); ++d) rows *= x.sym_size(d);
  return rows;
}

NormOptions CoreOptions(double eps) { return {.eps = eps, .parallel_for = TorchParallelFor}; }

// LayerNorm-simple is the recipe without a gain and a bias.
Norm WhichNorm(bool affine) { return affine ? Norm::kLayer : Norm::kLayerSimple; }

Two ForwardCpu(const Tensor& x_, const OptionalTensor& weight_, const OptionalTensor& bias_,
               double eps) {
  CheckForward(x_, weight_, bias_);
  const Tensor x = x_.contiguous();
  const Tensor weight = Contiguous(OrUndefined(weight_)), bias = Contiguous(OrUndefined(bias_));
  const int64_t cols = x.size(-1);
  const int64_t rows = Rows(x).expect_int();
  Tensor y = at::empty(x.sizes(), x.options());
  Tensor moments = at::empty({3, rows}, x.options());
  ByType(x.scalar_type(), [&]<class T>() {
    T* saved = moments.mutable_data_ptr<T>();
    NormForward<T>(WhichNorm(weight.defined() || bias.defined()),
                   {.rows = rows,
                    .cols = cols,
                    .x = x.const_data_ptr<T>(),
                    .gain = Data<T>(weight),
                    .bias = Data<T>(bias),
                    .y = y.mutable_data_ptr<T>(),
                    .mean = saved,
                    .mean_lo = saved + rows,
                    .rstd = saved + 2 * rows},
                   CoreOptions(eps));
  });
  return {y, moments};
}

Three BackwardCpu(const Tensor& dy_, const Tensor& x_, const Tensor& moments_,
                  const OptionalTensor& weight_, std::array<bool, 3> mask) {
  TORCH_CHECK(dy_.sizes() == x_.sizes(), "[layer_norm_backward] dy must have x's sizes, ",
              x_.sizes(), ", but has ", dy_.sizes());
  TORCH_CHECK(dy_.scalar_type() == x_.scalar_type() && moments_.scalar_type() == x_.scalar_type(),
              "[layer_norm_backward] dy and moments must have x's type, ", x_.scalar_type(),
              ", but have ", dy_.scalar_type(), " and ", moments_.scalar_type());
  CheckForward(x_, weight_, std::nullopt);
  const Tensor x = x_.contiguous(), dy = dy_.contiguous(), moments = moments_.contiguous();
  const Tensor weight = Contiguous(OrUndefined(weight_));
  const int64_t cols = x.size(-1);
  const int64_t rows = Rows(x).expect_int();
  TORCH_CHECK(moments.dim() == 2 && moments.size(0) == 3 && moments.size(1) == rows,
              "[layer_norm_backward] moments must have [3, ", rows, "] numbers but has ",
              moments.sizes());
  const Tensor dx = mask[0] ? at::empty(x.sizes(), x.options()) : Tensor();
  const Tensor dweight = mask[1] ? at::empty({cols}, x.options()) : Tensor();
  const Tensor dbias = mask[2] ? at::empty({cols}, x.options()) : Tensor();
  ByType(x.scalar_type(), [&]<class T>() {
    const T* saved = moments.const_data_ptr<T>();
    NormBackward<T>(WhichNorm(weight.defined() || mask[1] || mask[2]),
                    {.rows = rows,
                     .cols = cols,
                     .dy = dy.const_data_ptr<T>(),
                     .x = x.const_data_ptr<T>(),
                     .gain = Data<T>(weight),
                     .mean = saved,
                     .mean_lo = saved + rows,
                     .rstd = saved + 2 * rows,
                     .dx = MutableData<T>(dx),
                     .dgain = MutableData<T>(dweight),
                     .dbias = MutableData<T>(dbias)},
                    CoreOptions(0));
  });
  return {dx, dweight, dbias};
}

Two ForwardMeta(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias, double) {
  CheckForward(x, weight, bias);
  return {at::empty_symint(x.sym_sizes(), x.options()),
          at::empty_symint({3, Rows(x)}, x.options())};
}

Three BackwardMeta(const Tensor&, const Tensor& x, const Tensor&, const OptionalTensor&,
                   std::array<bool, 3> mask) {
  const auto vector = [&](bool wanted) {
    return wanted ? at::empty_symint({x.sym_size(-1)}, x.options()) : Tensor();
  };
  return {mask[0] ? at::empty_symint(x.sym_sizes(), x.options()) : Tensor(), vector(mask[1]),
          vector(mask[2])};
}

struct LayerNormBackward final : torch::autograd::Node {
  SavedVariable x, weight, moments;

  std::string name() const override { return "PlanishLayerNormBackward"; }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    x.reset_data();
    weight.reset_data();
    moments.reset_data();
  }

  variable_list apply(variable_list&& gradients) override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!gradients[0].defined()) return variable_list(3);
    const Tensor saved_weight = weight.unpack();
    auto [dx, dweight, dbias] =
        CallBackward(gradients[0], x.unpack(), moments.unpack(getptr()),
                     saved_weight.defined() ? OptionalTensor(saved_weight) : std::nullopt,
                     {task_should_compute_output(0), task_should_compute_output(1),
                      task_should_compute_output(2)});
    return {dx, dweight, dbias};
  }
};

Two ForwardAutograd(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                    double eps) {
  TORCH_CHECK_NOT_IMPLEMENTED(!torch::autograd::isFwGradDefined(x) &&
                                  !torch::autograd::isFwGradDefined(weight) &&
                                  !torch::autograd::isFwGradDefined(bias),
                              "[layer_norm] forward-mode gradients are not implemented");
  const Tensor w = OrUndefined(weight), b = OrUndefined(bias);
  NodePtr<LayerNormBackward> node;
  if (torch::autograd::compute_requires_grad(x, w, b)) {
    node = MakeNode<LayerNormBackward>();
    node->set_next_edges(torch::autograd::collect_next_edges(x, w, b));
    node->x = SavedVariable(x, /*is_output=*/false);
    node->weight = SavedVariable(w, /*is_output=*/false);
  }
  auto [y, moments] = [&] {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return CallForward(x, weight, bias, eps);
  }();
  if (node) {
    torch::autograd::set_history(y, node);
    node->moments = SavedVariable(moments, /*is_output=*/false);
  }
  return {y, moments};
}

Tensor LayerNormComposite(const Tensor& x, c10::SymIntArrayRef normalized_shape,
                          const OptionalTensor& weight, const OptionalTensor& bias, double eps) {
  const int64_t dims = static_cast<int64_t>(normalized_shape.size());
  TORCH_CHECK(
      dims >= 1 && dims <= x.dim() && x.sym_sizes().slice(x.dim() - dims) == normalized_shape,
      "[layer_norm] normalized_shape must be the last dimensions of x, which has ", x.sym_sizes(),
      ", but has ", normalized_shape);
  for (const auto& [name, vector] : {std::pair("weight", &weight), std::pair("bias", &bias)}) {
    TORCH_CHECK(!*vector || (*vector)->sym_sizes() == normalized_shape, "[layer_norm] ", name,
                " must have normalized_shape, ", normalized_shape, ", but has ",
                (*vector)->sym_sizes());
  }
  if (dims == 1) return std::get<0>(CallForward(x, weight, bias, eps));
  const auto flat = [](const OptionalTensor& t) {
    return t ? OptionalTensor(t->flatten()) : std::nullopt;
  };
  return std::get<0>(CallForward(x.flatten(x.dim() - dims), flat(weight), flat(bias), eps))
      .view_symint(x.sym_sizes());
}

}  // namespace

Tensor layer_norm(const Tensor& x, at::IntArrayRef normalized_shape, const OptionalTensor& weight,
                  const OptionalTensor& bias, double eps) {
  return LayerNormComposite(x, c10::fromIntArrayRefSlow(normalized_shape), weight, bias, eps);
}

TORCH_LIBRARY(planish, m) {
  m.def(kForward);
  m.def(kBackward);
  m.def(kLayerNorm);
}

TORCH_LIBRARY_IMPL(planish, CPU, m) {
  m.impl("layer_norm_forward", ForwardCpu);
  m.impl("layer_norm_backward", BackwardCpu);
}

TORCH_LIBRARY_IMPL(planish, Meta, m) {
  m.impl("layer_norm_forward", ForwardMeta);
  m.impl("layer_norm_backward", BackwardMeta);
}

TORCH_LIBRARY_IMPL(planish, Autograd, m) {
  m.impl("layer_norm_forward", ForwardAutograd);
  // No second derivative yet: an error in its place, not zeros.
  m.impl("layer_norm_backward", torch::autograd::autogradNotImplementedFallback());
}

TORCH_LIBRARY_IMPL(planish, CompositeImplicitAutograd, m) {
  m.impl("layer_norm", LayerNormComposite);
}

}  // namespace planish
