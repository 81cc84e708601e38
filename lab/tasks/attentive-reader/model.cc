#include "lab/tasks/attentive-reader/model.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <limits>
#include <mutex>
#include <utility>

#include "lab/model/dropout.h"
#include "lab/model/linear.h"

namespace planish::lab {

namespace {

// Draws a number from the default generator, to seed it later.
uint64_t DrawSeed() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get<at::CPUGeneratorImpl>()->random64();
}

void Seed(uint64_t seed) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(seed);
}

}  // namespace

AttentiveReader::AttentiveReader(const Options& options) : options_(options) {
  const uint64_t passage_seed = DrawSeed(), question_seed = DrawSeed(), dropout_seed = DrawSeed();
  const int64_t h = options.hidden;
  embedding_ = register_parameter(
      "embedding", at::randn({options.symbols, options.embedding}) * options.deviation);
  passage_attention_ = Weight("passage_attention", {h, h});
  question_attention_ = Weight("question_attention", {h, h});
  attention_bias_ = Zeros("attention_bias", h);
  attention_weight_ = Weight("attention_weight", {h});
  if (options.released) similarity_ = Weight("similarity", {h, h});
  passage_output_ = Weight("passage_output", {h, h});
  question_output_ = Weight("question_output", {h, h});
  if (options.released) mean_output_ = Weight("mean_output", {h, h});
  output_bias_ = Zeros("output_bias", h);
  logits_weight_ = Weight("logits_weight", {options.entities, h});
  logits_bias_ = Zeros("logits_bias", options.entities);
  passage_ = MakeEncoder("passage", passage_seed, options.passage_steps);
  question_ = MakeEncoder("question", question_seed, options.question_steps);
  Seed(dropout_seed);
  if (options.norm == "batch-everywhere") {
    norm_ym_ = Norm("passage_attention_norm");
    norm_um_ = Norm("question_attention_norm");
    norm_rg_ = Norm("passage_output_norm");
    norm_ug_ = Norm("question_output_norm");
    if (options.released) norm_mg_ = Norm("mean_output_norm");
  }
}

at::Tensor AttentiveReader::Weight(const std::string& name, at::IntArrayRef sizes) {
  const double bound = 1 / std::sqrt(static_cast<double>(sizes.back()));
  return register_parameter(name, (at::rand(sizes) * 2 - 1) * bound);
}

at::Tensor AttentiveReader::Zeros(const std::string& name, int64_t size) {
  return register_parameter(name, at::zeros({size}));
}

AttentiveReader::Encoder AttentiveReader::MakeEncoder(const std::string& name, uint64_t seed,
                                                      int64_t steps) {
  Seed(seed);
  Encoder encoder;
  if (has_estimates()) {
    encoder.lstm =
        std::make_shared<BatchNormLstm>(BatchNormLstm::Options{.inputs = options_.embedding,
                                                               .hidden = options_.hidden,
                                                               .epsilon = options_.epsilon,
                                                               .gain = options_.gain,
                                                               .composed = options_.composed,
                                                               .steps = steps});
  } else {
    encoder.lstm = MakeRecurrent(options_.norm == "layer" ? "ln-lstm" : "lstm",
                                 {.inputs = options_.embedding,
                                  .hidden = options_.hidden,
                                  .epsilon = options_.epsilon,
                                  .gain = options_.gain,
                                  .composed = options_.composed});
  }
  register_module(name + "_lstm", encoder.lstm);
  at::NoGradGuard no_grad;
  for (auto& item : encoder.lstm->named_parameters()) {
    at::Tensor& value = item.value();
    if (item.key().find("bias") != std::string::npos) value.zero_();
    if (options_.equal_gates && value.dim() == 2) {
      value.copy_(value.slice(0, 0, options_.hidden).repeat({4, 1}));
    }
  }
  encoder.h0 = Zeros(name + "_h0", options_.hidden);
  encoder.c0 = Zeros(name + "_c0", options_.hidden);
  return encoder;
}

std::shared_ptr<NormModule> AttentiveReader::Norm(const std::string& name) {
  auto norm = MakeNorm("batch", {options_.hidden}, {.epsilon = options_.epsilon});
  at::NoGradGuard no_grad;
  for (auto& item : norm->named_parameters()) {
    if (item.key().ends_with("weight")) item.value().fill_(options_.gain);
  }
  return register_module(name, norm);
}

std::pair<at::Tensor, at::Tensor> AttentiveReader::Encoder::Read(const at::Tensor& x,
                                                                 const at::Tensor& lengths) const {
  const at::Tensor first = at::stack({h0, c0}).view({2, 1, 1, -1}).expand({2, 1, x.size(1), -1});
  const auto [y, last] = lstm->forward(x, first, lengths);
  return {y, last[0][0]};
}

at::Tensor AttentiveReader::Embed(const at::Tensor& words) {
  const at::Tensor x = at::embedding(embedding_, words);
  return Dropout(x, options_.dropout, is_training());
}

AttentiveReader::Reading AttentiveReader::forward(const at::Tensor& passage,
                                                  const at::Tensor& passage_lengths,
                                                  const at::Tensor& question,
                                                  const at::Tensor& question_lengths) {
  const at::Tensor y = passage_.Read(Embed(passage), passage_lengths).first;
  const at::Tensor u = question_.Read(Embed(question), question_lengths).second;
  const auto normalized = [](const std::shared_ptr<NormModule>& norm, const at::Tensor& z) {
    return norm ? norm->forward(z) : z;
  };
  const at::Tensor active =
      at::arange(y.size(0), passage_lengths.options()).unsqueeze(1) < passage_lengths;  // [T, B]

  at::Tensor ym = LinearProduct(y, passage_attention_, {});
  if (norm_ym_) {  // of the real words
    const at::Tensor there = active.flatten().nonzero().squeeze(1);
    const at::Tensor rows = norm_ym_->forward(ym.flatten(0, 1).index_select(0, there));
    ym = at::zeros_like(ym.flatten(0, 1)).index_copy(0, there, rows).view_as(ym);
  }
  const at::Tensor um =
      normalized(norm_um_, LinearProduct(u, question_attention_, attention_bias_));
  at::Tensor m = ym + um;
  const at::Tensor by_case = y.transpose(0, 1);  // [B, T, H]
  if (similarity_.defined()) {
    const at::Tensor v = LinearProduct(LinearProduct(u, similarity_.t(), {}), similarity_, {});
    m = m + at::bmm(by_case, v.unsqueeze(2)).transpose(0, 1);
  }
  const at::Tensor scores = at::matmul(m.tanh(), attention_weight_);  // [T, B]
  const at::Tensor attention =
      scores.masked_fill(active.logical_not(), -std::numeric_limits<float>::infinity()).softmax(0);
  const at::Tensor r = at::bmm(attention.t().unsqueeze(1), by_case).squeeze(1);

  at::Tensor sum = normalized(norm_rg_, LinearProduct(r, passage_output_, {})) +
                   normalized(norm_ug_, LinearProduct(u, question_output_, output_bias_));
  if (mean_output_.defined()) {
    const at::Tensor mean = y.sum(0) / passage_lengths.unsqueeze(1);
    sum = sum + normalized(norm_mg_, LinearProduct(mean, mean_output_, {}));
  }
  const at::Tensor g = Dropout(sum.tanh(), options_.dropout, is_training());
  return {LinearProduct(g, logits_weight_, logits_bias_), attention};
}

void AttentiveReader::BeginEstimates() {
  for (const Encoder* encoder : {&passage_, &question_}) {
    dynamic_cast<BatchNormLstm&>(*encoder->lstm).BeginEstimates();
  }
}

void AttentiveReader::EndEstimates() {
  for (const Encoder* encoder : {&passage_, &question_}) {
    dynamic_cast<BatchNormLstm&>(*encoder->lstm).EndEstimates();
  }
}

}  // namespace planish::lab
