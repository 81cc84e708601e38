#include <ATen/ops/empty.h>

#include <ostream>

#include "planish/torch_norm.h"

namespace planish::nn {

LayerNormImpl::LayerNormImpl(LayerNormOptions options_) : options(std::move(options_)) {
  LayerNormImpl::reset();
}

void LayerNormImpl::reset() {
  if (options.elementwise_affine()) {
    weight = register_parameter("weight", at::empty(options.normalized_shape()));
    bias = register_parameter("bias", at::empty(options.normalized_shape()));
  } else {
    weight = register_parameter("weight", at::Tensor(), /*requires_grad=*/false);
    bias = register_parameter("bias", at::Tensor(), /*requires_grad=*/false);
  }
  reset_parameters();
}

void LayerNormImpl::reset_parameters() {
  if (!options.elementwise_affine()) return;
  at::NoGradGuard no_grad;
  weight.fill_(1);
  bias.fill_(0);
}

void LayerNormImpl::pretty_print(std::ostream& stream) const {
  stream << std::boolalpha << "planish::nn::LayerNorm("
         << at::IntArrayRef(options.normalized_shape()) << ", eps=" << options.eps()
         << ", elementwise_affine=" << options.elementwise_affine() << ")";
}

at::Tensor LayerNormImpl::forward(const at::Tensor& x) {
  const auto optional = [](const at::Tensor& t) {
    return t.defined() ? std::optional<at::Tensor>(t) : std::nullopt;
  };
  return planish::layer_norm(x, options.normalized_shape(), optional(weight), optional(bias),
                             options.eps());
}

}  // namespace planish::nn
