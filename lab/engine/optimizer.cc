#include "lab/engine/optimizer.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <stdexcept>

namespace planish::lab {

NamedTensors ParametersOf(const torch::nn::Module& model) {
  NamedTensors parameters;
  for (const auto& item : model.named_parameters())
    parameters.emplace_back(item.key(), item.value());
  return parameters;
}

std::vector<at::Tensor> TakeGradients(const NamedTensors& parameters, std::string_view optimizer) {
  std::vector<at::Tensor> gradients;
  gradients.reserve(parameters.size());
  for (const auto& [name, weight] : parameters) {
    at::Tensor& gradient = weight.mutable_grad();
    if (!gradient.defined()) {
      throw std::runtime_error(fmt::format("[{}] {} has no gradient", optimizer, name));
    }
    gradients.push_back(std::exchange(gradient, at::Tensor()));
  }
  return gradients;
}

at::Tensor NormOf(const std::vector<at::Tensor>& gradients) {
  if (gradients.empty()) return at::zeros({}, at::kDouble);
  const at::Tensor norms = at::stack(at::_foreach_norm(gradients)).to(at::kDouble);
  return norms.square().cumsum(0)[-1].sqrt();  // cumsum adds in the order of the parameters
}

void ScaleToNorm(const std::vector<at::Tensor>& gradients, const at::Tensor& norm, double limit) {
  if (norm.is_cpu()) {
    const auto value = norm.item<double>();
    if (value > limit) at::_foreach_mul_(gradients, limit / value);
  } else {
    const at::Tensor factor = (limit / norm).clamp_max_(1);
    at::_foreach_mul_(gradients, factor.to(gradients.front().scalar_type()));
  }
}

Clipping ClipTogether(double limit) {
  if (limit <= 0) return {};
  return [limit](const std::vector<at::Tensor>& gradients) {
    ScaleToNorm(gradients, NormOf(gradients), limit);
  };
}

Clipping ClipEach(double limit) {
  if (limit <= 0) return {};
  return [limit](const std::vector<at::Tensor>& gradients) {
    const std::vector<at::Tensor> norms = at::_foreach_norm(gradients);
    for (size_t i = 0; i < gradients.size(); ++i) {
      const at::Tensor max_norm = at::scalar_tensor(limit, norms[i].options());
      // The factor is exactly 1 if the norm is within the limit.
      gradients[i].mul_(max_norm / norms[i].clamp_min(max_norm));
    }
  };
}

}  // namespace planish::lab
