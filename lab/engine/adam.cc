#include "lab/engine/adam.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <stdexcept>

namespace planish::lab {

Adam::Adam(NamedTensors parameters, const Options& options)
    : options_(options), parameters_(std::move(parameters)) {
  for (const auto& [name, weight] : parameters_) {
    weights_.push_back(weight.detach());
    first_moments_.push_back(at::zeros_like(weight));
    second_moments_.push_back(at::zeros_like(weight));
    steps_.push_back(at::zeros({}, at::kFloat));
    if (options.theano) forever_.push_back(at::full({}, 1e30, at::kFloat));
  }
}

void Adam::Step() {
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  gradients.reserve(weights_.size());
  for (auto& [name, weight] : parameters_) {
    at::Tensor& gradient = weight.mutable_grad();
    if (!gradient.defined()) {
      throw std::runtime_error("[Adam] " + name + " has no gradient");
    }
    gradients.push_back(std::move(gradient));
    gradient.reset();
  }
  for (at::Tensor& step : steps_) step.add_(1);
  double rate = options_.learning_rate;
  if (options_.theano && !steps_.empty()) {
    const auto t = steps_.front().item<double>();
    rate *= std::sqrt(1 - std::pow(1 - options_.beta2, t)) / (1 - std::pow(1 - options_.beta1, t));
  }
  at::_fused_adam_(weights_, gradients, first_moments_, second_moments_, {},
                   options_.theano ? forever_ : steps_, rate, options_.beta1, options_.beta2,
                   /*weight_decay=*/0.0, options_.epsilon, /*amsgrad=*/false, /*maximize=*/false);
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

}  // namespace planish::lab
