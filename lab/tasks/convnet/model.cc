#include "lab/tasks/convnet/model.h"

#include <ATen/Functions.h>

#include <algorithm>

namespace planish::lab {

namespace {

constexpr int64_t kKernel = 3, kPool = 2;
constexpr char kChannels[] = "layer-channels";

}  // namespace

ConvNet::ConvNet(const Options& options) : side_(options.side) {
  const bool over_channels = options.norm == kChannels;
  const std::string norm = over_channels ? "layer" : options.norm;
  int64_t inputs = 1, side = options.side;
  for (const int64_t outputs :
       {options.channels, options.channels, 2 * options.channels, 2 * options.channels}) {
    if (convolutions_.size() == 2) side /= kPool;
    const std::string name = "convolution" + std::to_string(convolutions_.size());
    Convolution convolution;
    convolution.layer = register_module(
        name,
        torch::nn::Conv2d(torch::nn::Conv2dOptions(inputs, outputs, kKernel).padding(kKernel / 2)));
    inputs = outputs;
    const bool channels_alone = over_channels || IsOfChannels(norm);
    convolution.norm = register_module(
        name + "_norm",
        MakeNorm(norm, channels_alone ? std::vector{outputs} : std::vector{side, side, outputs},
                 options.norm_options));
    convolution.norm->StartFrom(convolution.layer->weight);
    convolutions_.push_back(std::move(convolution));
  }
  side /= kPool;
  hidden_ = register_module("hidden", torch::nn::Linear(side * side * inputs, options.hidden));
  hidden_norm_ =
      register_module("hidden_norm", MakeNorm(norm, {options.hidden}, options.norm_options));
  hidden_norm_->StartFrom(hidden_->weight);
  output_ = register_module("output", torch::nn::Linear(options.hidden, options.classes));
}

at::Tensor ConvNet::forward(const at::Tensor& x) { return Run(x, nullptr); }

std::vector<ConvNet::Units> ConvNet::UnitsOf(const at::Tensor& x) {
  std::vector<Units> units;
  Run(x, &units);
  return units;
}

at::Tensor ConvNet::Run(const at::Tensor& x, std::vector<Units>* units) {
  at::Tensor y = x.view({-1, side_, side_, 1});
  for (size_t i = 0; i < convolutions_.size(); ++i) {
    // [N, H, W, C] to a convolution's channels-last view and back, without copying.
    const at::Tensor sums =
        InputOfNorm(*convolutions_[i].norm, convolutions_[i].layer, y.permute({0, 3, 1, 2}))
            .permute({0, 2, 3, 1});
    y = convolutions_[i].norm->forward(sums);
    // Without a norm y is `sums`, which must stay unchanged if a caller wants it.
    y = units ? y.relu() : y.relu_();
    if (units) units->push_back({sums, y});
    if (i % 2 == 1) y = at::max_pool2d(y.permute({0, 3, 1, 2}), kPool).permute({0, 2, 3, 1});
  }
  y = hidden_norm_->forward(InputOfNorm(*hidden_norm_, hidden_, y.flatten(1)));
  return output_->forward(y.relu_());
}

std::vector<std::string> ConvNetNorms() {
  std::vector<std::string> norms = NormNames();
  norms.insert(std::ranges::find(norms, "layer") + 1, kChannels);
  return norms;
}

}  // namespace planish::lab
