#include "lab/tasks/skip-thoughts/model.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/init.h>

#include <cmath>
#include <limits>

namespace planish::lab {

namespace {

constexpr double kUniform = 0.1;

// Makes a recurrent layer without advancing the generator, because cells draw different amounts.
std::shared_ptr<RecurrentModule> MakeBlank(const std::string& cell,
                                           const RecurrentOptions& options) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const at::Tensor state = generator.get_state();
  auto layer = MakeRecurrent(cell, options);
  generator.set_state(state);
  return layer;
}

void Start(RecurrentModule& layer, int64_t hidden) {
  const at::NoGradGuard no_grad;
  for (auto& item : layer.named_parameters()) {
    at::Tensor& weight = item.value();
    const auto is = [&](const char* name) { return item.key().find(name) != item.key().npos; };
    if (is("weight_ih_l") && !is("ln_")) {
      weight.uniform_(-kUniform, kUniform);
    } else if (is("weight_hh_l") && !is("ln_")) {
      for (const at::Tensor& gate : weight.split(hidden)) torch::nn::init::orthogonal_(gate);
    } else if (is("bias")) {
      weight.zero_();
    }
  }
}

}  // namespace

SkipThoughtModel::SkipThoughtModel(const Options& options) : condition_(options.condition) {
  embedding_ = register_parameter(
      "embedding", at::empty({options.vocabulary, options.words}).uniform_(-kUniform, kUniform));
  output_ = register_module("output", Linear(options.hidden, options.vocabulary));
  {
    const at::NoGradGuard no_grad;
    output_->weight.uniform_(-kUniform, kUniform);
    output_->bias.zero_();
  }
  RecurrentOptions layer{.inputs = options.words,
                         .hidden = options.hidden,
                         .epsilon = options.epsilon,
                         .gain = options.gain,
                         .composed = options.composed};
  const auto make = [&](const char* name) {
    auto made = register_module(name, MakeBlank(options.cell, layer));
    Start(*made, options.hidden);
    return made;
  };
  encoder_ = make("encoder");
  if (condition_ == Condition::kSteps) layer.inputs += options.hidden;
  previous_ = make("previous");
  next_ = make("next");
}

at::Tensor SkipThoughtModel::Encode(const at::Tensor& words, const at::Tensor& lengths) {
  return encoder_
      ->forward(at::embedding(embedding_, words), encoder_->ZeroState(words.size(1)), lengths)
      .second[0][0];
}

at::Tensor SkipThoughtModel::Decode(Decoder decoder, const at::Tensor& words,
                                    const at::Tensor& lengths, const at::Tensor& vectors) {
  RecurrentModule& layer = decoder == kPrevious ? *previous_ : *next_;
  // Zeros precede the first word.
  at::Tensor x =
      at::constant_pad_nd(at::embedding(embedding_, words.slice(0, 0, -1)), {0, 0, 0, 0, 1, 0});
  if (condition_ == Condition::kStart) {
    return layer.forward(x, vectors.unsqueeze(0).unsqueeze(0), lengths).first;
  }
  x = at::cat({x, vectors.unsqueeze(0).expand({x.size(0), -1, -1})}, 2);
  return layer.forward(x, layer.ZeroState(x.size(1)), lengths).first;
}

at::Tensor ZipfLogProbabilities(int64_t vocabulary) {
  const at::Tensor i = at::arange(vocabulary, at::TensorOptions().dtype(at::kDouble));
  return (at::log((i + 2) / (i + 1)) / std::log(static_cast<double>(vocabulary) + 1)).log();
}

at::Tensor DrawWords(int64_t vocabulary, int64_t count) {
  // The probability before word i is log(i + 1) / log(V + 1).
  const at::Tensor before = at::rand({count}, at::kDouble);
  return ((before * std::log(static_cast<double>(vocabulary) + 1)).exp() - 1)
      .floor()
      .to(at::kLong)
      .clamp(0, vocabulary - 1);
}

at::Tensor SampledLoss(const at::Tensor& states, const Linear& output, const at::Tensor& targets,
                       const at::Tensor& samples, const at::Tensor& log_probabilities) {
  const int64_t count = samples.size(0);
  const at::Tensor words = at::cat({samples, targets});
  const at::Tensor weight = at::embedding(output->weight, words);
  const at::Tensor bias =
      output->bias.index_select(0, words) -
      (log_probabilities.index_select(0, words) + std::log(static_cast<double>(count)))
          .to(states.scalar_type());
  const at::Tensor others =
      LinearProduct(states, weight.slice(0, 0, count), bias.slice(0, 0, count))
          .masked_fill(targets.unsqueeze(1) == samples, -std::numeric_limits<double>::infinity());
  const at::Tensor target = (states * weight.slice(0, count)).sum(1) + bias.slice(0, count);
  return (at::logsumexp(at::cat({target.unsqueeze(1), others}, 1), 1) - target).sum();
}

}  // namespace planish::lab
