#include "lab/model/linear.h"

#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <string_view>

namespace planish::lab {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Signature of PyTorch's operator for compiled graphs: x w' + b with a fused operation after it.
using ProductSignature = at::Tensor(const at::Tensor& x, const at::Tensor& w,
                                    const std::optional<at::Tensor>& b, std::string_view after,
                                    c10::List<std::optional<at::Scalar>> scalars,
                                    std::optional<std::string_view> algorithm);

const std::optional<c10::TypedOperatorHandle<ProductSignature>>& OneDnn() {
  static const auto product = []() -> std::optional<c10::TypedOperatorHandle<ProductSignature>> {
    const auto found = c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
    if (!found) return std::nullopt;
    return found->typed<ProductSignature>();
  }();
  return product;
}

// Returns x w' + b of x [N, I], w [O, I], b [O] or none.
at::Tensor Product(const at::Tensor& x, const at::Tensor& w,
                   const std::optional<at::Tensor>& b = std::nullopt) {
  return OneDnn()->call(x, w, b, "none", c10::List<std::optional<at::Scalar>>(), "");
}

struct LinearFunction final : torch::autograd::Function<LinearFunction> {
  // x [N, I].
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& w,
                            const std::optional<at::Tensor>& b) {
    context->save_for_backward({x, w});
    context->saved_data["bias"] = b.has_value();
    return Product(x, w, b);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &w = saved[1], &g = gradients[0];
    variable_list result(3);
    if (context->needs_input_grad(0)) result[0] = Product(g, w.t());
    if (context->needs_input_grad(1)) {
      // The first factor is transposed by copying, so it is the smaller one.
      result[1] =
          x.size(1) < g.size(1) ? Product(x.t(), g.t()).t().contiguous() : Product(g.t(), x.t());
    }
    // Without a bias there is no third input.
    if (context->saved_data["bias"].toBool() && context->needs_input_grad(2)) result[2] = g.sum(0);
    return result;
  }
};

}  // namespace

at::Tensor LinearProduct(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  if (!OneDnn() || x.scalar_type() != at::kFloat || x.numel() == 0) {
    return at::linear(x, weight, bias);
  }
  const at::Tensor rows = x.reshape({-1, x.size(-1)});
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.size(0);
  const std::optional<at::Tensor> added = bias.defined() ? std::optional(bias) : std::nullopt;
  return LinearFunction::apply(rows, weight, added).view(sizes);
}

at::Tensor LinearImpl::forward(const at::Tensor& x) { return LinearProduct(x, weight, bias); }

}  // namespace planish::lab
