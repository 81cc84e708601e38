#include "lab/tasks/mnist-cnn/model.h"

#include <ATen/Functions.h>

namespace planish::lab {

namespace {

constexpr int64_t kKernel = 5, kPool = 2;

}  // namespace

DigitCnn::DigitCnn(const Options& options) : shape_(options.shape) {
  int64_t channels = shape_.channels, height = shape_.height, width = shape_.width;
  for (const int64_t outputs : options.channels) {
    const std::string name = "convolution" + std::to_string(convolutions_.size());
    Convolution convolution;
    convolution.layer = register_module(
        name, torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, outputs, kKernel)));
    channels = outputs;
    height -= kKernel - 1;
    width -= kKernel - 1;
    if (options.norm_convolutions) {
      const std::vector<int64_t> case_shape = {height, width, channels};
      convolution.norm = register_module(
          name + "_norm",
          MakeNorm(options.norm, IsOfChannels(options.norm) ? std::vector{channels} : case_shape,
                   options.norm_options));
      convolution.norm->StartFrom(convolution.layer->weight);
    }
    height /= kPool;
    width /= kPool;
    convolutions_.push_back(std::move(convolution));
  }
  hidden_ = register_module("hidden", torch::nn::Linear(height * width * channels, options.hidden));
  hidden_norm_ = register_module("hidden_norm",
                                 MakeNorm(options.norm, {options.hidden}, options.norm_options));
  hidden_norm_->StartFrom(hidden_->weight);
  output_ = register_module("output", torch::nn::Linear(options.hidden, options.classes));
}

at::Tensor DigitCnn::forward(const at::Tensor& x) {
  at::Tensor y = x.view({-1, shape_.height, shape_.width, shape_.channels});
  for (Convolution& convolution : convolutions_) {
    // [N, H, W, C] to a convolution's channels-last view and back, without copying.
    y = y.permute({0, 3, 1, 2});
    y = convolution.norm ? InputOfNorm(*convolution.norm, convolution.layer, y)
                         : convolution.layer->forward(y);
    y = y.permute({0, 2, 3, 1});
    if (convolution.norm) y = convolution.norm->forward(y);
    // ReLU of the maximum equals the maximum of ReLUs, at a quarter of the cost. In place: the
    // maximum does not need its own output for backward.
    y = at::max_pool2d(y.permute({0, 3, 1, 2}), kPool).relu_().permute({0, 2, 3, 1});
  }
  y = hidden_norm_->forward(InputOfNorm(*hidden_norm_, hidden_, y.flatten(1)));
  return output_->forward(y.relu_());
}

}  // namespace planish::lab
