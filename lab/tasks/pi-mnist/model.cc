#include "lab/tasks/pi-mnist/model.h"

namespace planish::lab {

PixelMlp::PixelMlp(const Options& options) : options_(options) {
  int64_t inputs = options.inputs;
  for (int64_t layer = 0; layer <= options.depth; ++layer) {
    const bool is_output = layer == options.depth;
    const int64_t outputs = is_output ? options.classes : options.width;
    const std::string norm = is_output && !options.norm_on_logits ? "none" : options.norm;
    const std::string index = std::to_string(layer);
    const torch::nn::Linear linear =
        register_module("linear" + index, torch::nn::Linear(inputs, outputs));
    layers_.push_back(
        {linear, register_module("norm" + index, MakeNorm(norm, {outputs}, options.norm_options)),
         norm});
    layers_.back().norm->StartFrom(linear->weight);
    inputs = outputs;
  }
}

std::vector<at::Tensor> PixelMlp::InputsOfLayers(at::Tensor x) {
  std::vector<at::Tensor> inputs;
  Run(std::move(x), &inputs);
  return inputs;
}

at::Tensor PixelMlp::Run(at::Tensor x, std::vector<at::Tensor>* inputs) {
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (inputs != nullptr) inputs->push_back(x);
    x = layers_[i].norm->forward(Sums(i, x));
    // In place: neither the product nor a norm needs its own output for backward.
    if (i + 1 < layers_.size()) x.relu_();
  }
  return x;
}

at::Tensor PixelMlp::Sums(size_t layer, const at::Tensor& x) {
  Layer& of = layers_.at(layer);
  return InputOfNorm(*of.norm, of.linear, x);
}

}  // namespace planish::lab
