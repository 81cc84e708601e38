#include "lab/engine/adam.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace planish::lab {

Adam::Adam(NamedTensors parameters, const Options& options)
    : options_(options), parameters_(std::move(parameters)) {
  for (const auto& [name, weight] : parameters_) {
    weights_.push_back(weight.detach());
    first_moments_.push_back(at::zeros_like(weight));
    second_moments_.push_back(at::zeros_like(weight));
    steps_.push_back(at::zeros({}, at::kFloat));
  }
}

void Adam::Step() {
  at::NoGradGuard no_grad;
  const std::vector<at::Tensor> gradients = TakeGradients(parameters_, "Adam");
  if (gradients.empty()) return;
  for (at::Tensor& step : steps_) step.add_(1);
  Move(gradients, steps_.front().item<double>());
}

void Adam::Move(const std::vector<at::Tensor>& gradients, double updates) {
  Apply(gradients, updates, options_.learning_rate);
}

void Adam::Apply(const std::vector<at::Tensor>& gradients, double updates, double learning_rate) {
  const std::vector<at::Tensor> steps(
      weights_.size(),
      at::full({}, updates, at::TensorOptions(weights_.front().device()).dtype(at::kFloat)));
  at::_fused_adam_(weights_, gradients, first_moments_, second_moments_, {}, steps, learning_rate,
                   options_.beta1, options_.beta2, /*weight_decay=*/0.0, options_.epsilon,
                   /*amsgrad=*/false, /*maximize=*/false);
}

NamedTensors Adam::State() const {
  NamedTensors state;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const std::string& name = parameters_[i].first;
    state.emplace_back("adam.first_moment." + name, first_moments_[i]);
    state.emplace_back("adam.second_moment." + name, second_moments_[i]);
    state.emplace_back("adam.step." + name, steps_[i]);
  }
  return state;
}

void Adam::CheckState(int64_t updates) const {
  // A float counts exactly to 2^24.
  const auto count = static_cast<float>(std::min(updates, int64_t{1} << 24));
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const std::string& name = parameters_[i].first;
    if (const auto steps = steps_[i].item<float>(); steps != count) {
      throw std::invalid_argument(
          fmt::format("adam.step.{} must be {}, got {}", name, count, steps));
    }
    if (second_moments_[i].lt(0).any().item<bool>()) {
      throw std::invalid_argument(
          fmt::format("adam.second_moment.{} must have no element below 0", name));
    }
  }
}

Adam::Options AdamOptionsOf(const Settings& settings) {
  return {.learning_rate = settings.Real("lr"),
          .beta1 = settings.Real("adam_beta1"),
          .beta2 = settings.Real("adam_beta2"),
          .epsilon = settings.Real("adam_eps")};
}

}  // namespace planish::lab
