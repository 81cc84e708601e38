#include "lab/tasks/char-lm/model.h"

#include <ATen/ops/linear.h>

namespace planish::lab {

CharModel::CharModel(const Options& options)
    : embedding_(register_module("embedding",
                                 torch::nn::Embedding(options.characters, options.embedding))),
      output_(register_module("output", torch::nn::Linear(options.hidden, options.characters))),
      recurrent_(
          register_module("recurrent", MakeRecurrent(options.cell, {.inputs = options.embedding,
                                                                    .hidden = options.hidden,
                                                                    .layers = options.layers,
                                                                    .gain = options.gain,
                                                                    .heads = options.heads}))),
      carried_(register_buffer("carried", recurrent_->ZeroState(options.streams))) {}

std::pair<at::Tensor, at::Tensor> CharModel::forward(const at::Tensor& x, const at::Tensor& state) {
  auto [y, after] = recurrent_->forward(Embed(x), state);
  return {Logits(y.flatten(0, 1)), after};
}

at::Tensor CharModel::Logits(const at::Tensor& h) {
  return at::linear(h, output_->weight.to(h.scalar_type()), output_->bias.to(h.scalar_type()));
}

}  // namespace planish::lab
