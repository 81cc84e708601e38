#include "lab/tasks/online-ln/model.h"

#include <ATen/Functions.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <iterator>
#include <memory>

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
    const bool bias = options.norm == "none" || options.norm == "weight";
    net->push_back(torch::nn::Linear(torch::nn::LinearOptions(inputs, widths[layer]).bias(bias)));
    if (options.norm == "online") {
      net->push_back(nn::OnlineLayerNorm(nn::OnlineLayerNormOptions(widths[layer])
                                             .alpha(options.alpha)
                                             .schedule(options.schedule)));
    } else if (options.norm != "none") {
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
    if (auto* norm = module->as<NormModule>()) norm->StartFrom(weights[layer - 1]);
    auto* linear = module->as<torch::nn::LinearImpl>();
    if (!linear) continue;
    linear->weight.copy_(weights[layer++]);
    if (linear->bias.defined()) linear->bias.zero_();
  }
}

template <class Visit>
at::Tensor OnlineMlp::Forward(at::Tensor x, const Visit& visit) {
  for (auto layer = net_->begin(); layer != net_->end(); ++layer) {
    auto linear = std::dynamic_pointer_cast<torch::nn::LinearImpl>(layer->ptr());
    if (!linear) {
      x = layer->forward(x);
      continue;
    }
    const auto next = std::next(layer);
    auto* norm = next == net_->end() ? nullptr : next->ptr().get();
    if (norm != nullptr && norm->as<torch::nn::ReLU>() != nullptr) norm = nullptr;
    auto* weights = norm == nullptr ? nullptr : norm->as<NormModule>();
    const Layer visited{x, linear.get(), norm};
    x = weights ? InputOfNorm(*weights, linear, x) : linear->forward(x);
    visit(visited, x);
  }
  return x;
}

at::Tensor OnlineMlp::forward(const at::Tensor& x) {
  return Forward(x, [](const Layer& /*layer*/, const at::Tensor& /*sums*/) {});
}

std::vector<OnlineMlp::Statistics> OnlineMlp::StatisticsOf(const at::Tensor& x) {
  std::vector<Statistics> statistics;
  for (const auto& module : net_->children()) {
    if (const auto* norm = module->as<nn::OnlineLayerNormImpl>()) {
      statistics.push_back({norm->mu(), norm->sigma()});
    }
  }
  if (!statistics.empty()) return statistics;
  Forward(x, [&](const Layer& /*layer*/, const at::Tensor& sums) {
    statistics.push_back({sums.mean().item<double>(),
                          sums.std(at::OptionalIntArrayRef(1), true).mean().item<double>()});
  });
  return statistics;
}

std::vector<OnlineMlp::Layer> OnlineMlp::Layers(const at::Tensor& x) {
  std::vector<Layer> layers;
  Forward(x, [&](const Layer& layer, const at::Tensor& /*sums*/) { layers.push_back(layer); });
  return layers;
}

}  // namespace planish::lab
