#include "lab/tasks/pi-mnist/model.h"

namespace planish::lab {

PixelMlp::PixelMlp(const Options& options) : options_(options) {
  int64_t inputs = options.inputs;
  for (int64_t layer = 0; layer <= options.depth; ++layer) {
    const bool is_output = layer == options.depth;
    const int64_t outputs = is_output ? options.classes : options.width;
    const std::string norm = is_output && !options.norm_on_logits ? "none" : options.norm;
    const std::string index = std::to_string(layer);
    linears_.push_back(register_module("linear" + index, torch::nn::Linear(inputs, outputs)));
    norms_.push_back(
        register_module("norm" + index, MakeNorm(norm, {outputs}, options.norm_options)));
    norms_.back()->StartFrom(linears_.back()->weight);
    inputs = outputs;
  }
}

at::Tensor PixelMlp::forward(at::Tensor x) {
  for (size_t layer = 0; layer < linears_.size(); ++layer) {
    x = norms_[layer]->forward(Sums(layer, x));
    // In place: neither the product nor a norm needs its own output for backward.
    if (layer + 1 < linears_.size()) x.relu_();
  }
  return x;
}

at::Tensor PixelMlp::Sums(size_t layer, const at::Tensor& x) {
  return InputOfNorm(*norms_.at(layer), linears_.at(layer), x);
}

}  // namespace planish::lab
