#include "lab/engine/optimizer.h"

#include <ATen/Functions.h>

#include <cmath>
#include <span>

namespace planish::lab {

NamedTensors ParametersOf(const torch::nn::Module& model) {
  NamedTensors parameters;
  for (const auto& item : model.named_parameters())
    parameters.emplace_back(item.key(), item.value());
  return parameters;
}

double NormOf(const std::vector<at::Tensor>& gradients) {
  if (gradients.empty()) return 0;
  // One copy from a GPU, not one for each gradient.
  const at::Tensor norms = at::stack(at::_foreach_norm(gradients)).to(at::kCPU, at::kDouble);
  double square = 0;
  for (const double norm : std::span(norms.const_data_ptr<double>(), gradients.size())) {
    square += norm * norm;
  }
  return std::sqrt(square);
}

Clipping ClipTogether(double limit) {
  if (limit <= 0) return {};
  return [limit](const std::vector<at::Tensor>& gradients) {
    const double norm = NormOf(gradients);
    if (norm > limit) at::_foreach_mul_(gradients, limit / norm);
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
