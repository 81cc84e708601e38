#include "lab/tasks/online-ln/model.h"

#include <ATen/Functions.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>

#include <cmath>

namespace planish::lab {

namespace {

std::vector<int64_t> Widths(const OnlineMlp::Options& options) {
  std::vector<int64_t> widths = options.hidden;
  widths.push_back(options.classes);
  return widths;
}

torch::nn::Sequential MakeNet(const OnlineMlp::Options& options) {
  torch::nn::Sequential net;
  int64_t inputs = options.inputs;
  const std::vector<int64_t> widths = Widths(options);
  for (size_t layer = 0; layer < widths.size(); ++layer) {
    const bool bias = options.norm == "none";
    net->push_back(torch::nn::Linear(torch::nn::LinearOptions(inputs, widths[layer]).bias(bias)));
    if (options.norm == "online") {
      net->push_back(
          nn::OnlineLayerNorm(nn::OnlineLayerNormOptions(widths[layer]).alpha(options.alpha)));
    } else if (!bias) {
      net->push_back(MakeNorm(options.norm, {widths[layer]}, options.norm_options));
    }
    if (layer + 1 < widths.size()) net->push_back(torch::nn::ReLU());
    inputs = widths[layer];
  }
  return net;
}

}  // namespace

OnlineMlp::OnlineMlp(const Options& options) {
  // Weights first: modules with and without biases draw different amounts, so norms would start
  // from different weights.
  std::vector<at::Tensor> weights;
  int64_t inputs = options.inputs;
  for (const int64_t width : Widths(options)) {
    const double bound = 1 / std::sqrt(static_cast<double>(inputs));
    weights.push_back(at::empty({width, inputs}).uniform_(-bound, bound));
    inputs = width;
  }
  net_ = register_module("net", MakeNet(options));
  at::NoGradGuard no_grad;
  size_t layer = 0;
  for (const auto& module : net_->children()) {
    auto* linear = module->as<torch::nn::LinearImpl>();
    if (!linear) continue;
    linear->weight.copy_(weights[layer++]);
    if (linear->bias.defined()) linear->bias.zero_();
  }
}

std::vector<OnlineMlp::Statistics> OnlineMlp::StatisticsOf(const at::Tensor& x) {
  std::vector<Statistics> statistics;
  for (const auto& module : net_->children()) {
    if (const auto* norm = module->as<nn::OnlineLayerNormImpl>()) {
      statistics.push_back({norm->mu(), norm->sigma()});
    }
  }
  if (!statistics.empty()) return statistics;
  at::Tensor y = x;
  for (torch::nn::AnyModule& layer : *net_) {
    y = layer.forward(y);
    if (layer.ptr()->as<torch::nn::LinearImpl>()) {
      statistics.push_back(
          {y.mean().item<double>(), y.std(at::OptionalIntArrayRef(1), true).mean().item<double>()});
    }
  }
  return statistics;
}

}  // namespace planish::lab
