#include "lab/tasks/order-embedding/model.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/init.h>

#include <cmath>
#include <string_view>
#include <vector>

#include "lab/model/order_violation.h"

namespace planish::lab {

namespace {

constexpr int64_t kGates = 3;
// Minimum length, which prevents division by 0.
constexpr double kMinLength = 1e-12;

at::Tensor Uniform(at::IntArrayRef sizes, double bound) {
  return at::empty(sizes).uniform_(-bound, bound);
}

// Returns a square matrix for each gate, stacked.
at::Tensor Orthogonal(int64_t hidden) {
  std::vector<at::Tensor> gates;
  for (int64_t i = 0; i < kGates; ++i) {
    gates.push_back(torch::nn::init::orthogonal_(at::empty({hidden, hidden})));
  }
  return at::cat(gates);
}

bool Has(std::string_view name, std::string_view part) { return name.find(part) != name.npos; }

}  // namespace

OrderEmbedding::OrderEmbedding(const Options& o) : order_(o.order) {
  const at::NoGradGuard no_grad;
  words_ = register_parameter("words", Uniform({o.words, o.word_size}, 0.1), true);
  // Drawn before the layers draw, because cells draw as many values as they have parameters.
  const at::Tensor from_words = Uniform({kGates * o.hidden, o.word_size}, 0.1);
  const at::Tensor from_state = Orthogonal(o.hidden);
  const double glorot = std::sqrt(6.0 / static_cast<double>(o.features + o.hidden));
  const at::Tensor from_image = Uniform({o.hidden, o.features}, glorot);

  image_ = register_module("image", Linear(o.features, o.hidden));
  image_->weight.copy_(from_image);
  image_->bias.zero_();
  RecurrentOptions options;
  options.inputs = o.word_size;
  options.hidden = o.hidden;
  options.gain = o.gain;
  options.epsilon = o.epsilon;
  options.composed = o.composed;
  recurrent_ = register_module("recurrent", MakeRecurrent(o.cell, options));
  for (auto& item : recurrent_->named_parameters()) {
    const std::string& name = item.key();
    if (Has(name, "weight_ih")) {
      item.value().copy_(from_words);
    } else if (Has(name, "weight_hh")) {
      item.value().copy_(from_state);
    } else if (!Has(name, "ln_")) {
      item.value().zero_();
    }
  }
}

at::Tensor OrderEmbedding::Place(const at::Tensor& x) const {
  const at::Tensor y = x / x.norm(2, {1}, /*keepdim=*/true).clamp_min(kMinLength);
  return order_ ? y.abs() : y;
}

at::Tensor OrderEmbedding::Captions(const at::Tensor& captions, const at::Tensor& lengths) {
  const at::Tensor x = at::embedding(words_, captions);
  const at::Tensor last = recurrent_->forward(x, recurrent_->ZeroState(x.size(1)), lengths).second;
  return Place(last[0][0]);
}

at::Tensor OrderEmbedding::Images(const at::Tensor& images) {
  return Place(image_->forward(images));
}

at::Tensor OrderEmbedding::Errors(const at::Tensor& captions, const at::Tensor& images) const {
  return order_ ? OrderViolation(captions, images) : -at::mm(captions, images.t());
}

at::Tensor ContrastiveLoss(const at::Tensor& errors, double margin) {
  const at::Tensor right = errors.diagonal();
  const at::Tensor other_images = (margin - errors + right.unsqueeze(1)).clamp_min(0);
  const at::Tensor other_captions = (margin - errors + right.unsqueeze(0)).clamp_min(0);
  const at::Tensor same = at::eye(errors.size(0), errors.options().dtype(at::kBool));
  return (other_images + other_captions).masked_fill(same, 0).sum();
}

}  // namespace planish::lab
